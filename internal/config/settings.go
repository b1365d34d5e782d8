package config

import (
	"cmp"
	"crypto/md5"
	"fmt"
	"hash/crc32"
	"iter"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/internal/option"
)

// setting is one field of Options with the values of its tags.
type setting struct {
	flag, key, env string
	shown          string // default as in the tag
	group          string
	help, noop     string
	when           string // end of "change it when …"; "": also in --help
	flagOnly       bool   // neither in the environment nor in the file
	envOnly        bool   // a secret: only in the environment
	min, max       string
	oneof          []string                  // nil: any
	option         *option.Row[option.Topic] // the setting is the default of this topic option; nil: of none
	value          reflect.Value
}

// settings lists the fields of o in the order of the help.
func settings(o *Options) iter.Seq[setting] {
	return func(yield func(setting) bool) { each(reflect.ValueOf(o).Elem(), "", yield) }
}

// each yields the fields of a group, and of the groups in it. It reports whether to continue.
func each(v reflect.Value, group string, yield func(setting) bool) bool {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			if !each(v.Field(i), cmp.Or(f.Tag.Get("group"), group), yield) {
				return false
			}
			continue
		}
		s := settingOf(f.Tag, v.Field(i))
		s.group = group
		if !yield(s) {
			return false
		}
	}
	return true
}

func settingOf(tag reflect.StructTag, v reflect.Value) setting {
	s := setting{
		flag: tag.Get("flag"), key: tag.Get("key"), shown: tag.Get("default"), help: tag.Get("help"), when: tag.Get("when"),
		noop: tag.Get("noop"), flagOnly: tag.Get("source") == "flag", envOnly: tag.Get("source") == "environment", min: tag.Get("min"), max: tag.Get("max"), value: v,
	}
	if at := slices.IndexFunc(option.Topics, func(r option.Row[option.Topic]) bool { return r.Name == tag.Get("option") }); at >= 0 {
		s.option = &option.Topics[at]
		s.help = s.option.Help
	}
	if s.key == "" {
		s.key = strings.ReplaceAll(s.flag, "-", "_")
	}
	s.env = "NSQD_" + strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))
	if values, ok := tag.Lookup("oneof"); ok {
		s.oneof = strings.Split(values, ",")
	}
	return s
}

// machineDefault replaces the parts of a default that depend on the machine.
func machineDefault(value string) string {
	if !strings.HasPrefix(value, "$") {
		return value
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	if value == "$hostname" {
		return hostname
	}
	// The formula of a stock nsqd, so that statistics keep their node id.
	sum := md5.Sum([]byte(hostname))
	return fmt.Sprint(crc32.ChecksumIEEE(sum[:]) % 1024)
}

func (s setting) isBool() bool {
	return s.value.Kind() == reflect.Bool || s.value.Type() == reflect.TypeFor[TLSRequired]()
}

func (s setting) isList() bool { return s.value.Kind() == reflect.Slice }

// Defaults returns the options of a broker without any configuration.
func Defaults() Options {
	var o Options
	for s := range settings(&o) {
		if err := s.set(machineDefault(s.shown)); err != nil {
			panic("config: default of --" + s.flag + ": " + err.Error()) // a test sets all defaults
		}
	}
	return o
}

// ByKey returns the value of one setting by its name in the file; it finds no secret, and leaves out the passwords in
// addresses.
func (o Options) ByKey(key string) (any, bool) {
	for s := range settings(&o) {
		if s.key == key && !s.envOnly {
			return s.public(), true
		}
	}
	return nil, false
}
