package config

import (
	"cmp"
	"crypto/md5"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

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
	option         *option.Row[option.Topic] // the topic option whose default this setting is; nil: none
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
	s.key = cmp.Or(s.key, strings.ReplaceAll(s.flag, "-", "_"))
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

// ByKey returns the value of one setting by its name in the file; it returns no secrets, and leaves out the passwords
// in addresses.
func (o Options) ByKey(key string) (any, bool) {
	for s := range settings(&o) {
		if s.key == key && !s.envOnly {
			return s.public(), true
		}
	}
	return nil, false
}

var errTLSRequired = errors.New("must be true, false or tcp-https")

// set parses text, checks the limits, and stores the value. A list is replaced by the elements between commas.
func (s setting) set(text string) error {
	if s.isList() {
		s.value.SetZero()
		return s.add(text)
	}
	v, err := parse(s.value.Type(), text)
	if err != nil {
		return err
	}
	if s.oneof != nil {
		v.SetString(strings.ToLower(v.String()))
	}
	if err := s.check(v); err != nil {
		return err
	}
	s.value.Set(v)
	return nil
}

func (s setting) add(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		v, err := parse(s.value.Type().Elem(), item)
		if err != nil {
			return err
		}
		s.value.Set(reflect.Append(s.value, v))
	}
	return nil
}

func parse(t reflect.Type, text string) (reflect.Value, error) {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		if _, number := strconv.ParseFloat(text, 64); err != nil && number == nil {
			return reflect.ValueOf(d), fmt.Errorf("must be a duration such as 250ms or 1m30s; %s has no unit", text)
		}
		return reflect.ValueOf(d), plain(err, "a duration such as 250ms or 1m30s")
	case t == reflect.TypeFor[TLSRequired]():
		r, err := parseTLSRequired(text)
		return reflect.ValueOf(r), err
	}
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		v.SetBool(b)
		return v, plain(err, "true or false")
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 0, 64)
		v.SetInt(n)
		return v, plain(err, "a whole number")
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		v.SetFloat(f)
		return v, plain(err, "a number")
	}
	v.SetString(text)
	return v, nil
}

// plain replaces strconv's wording, which names Go functions.
func plain(err error, want string) error {
	if err == nil {
		return nil
	}
	return errors.New("must be " + want)
}

func parseTLSRequired(text string) (TLSRequired, error) {
	if strings.EqualFold(text, string(TLSRequiredExceptHTTP)) {
		return TLSRequiredExceptHTTP, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return "", errTLSRequired
	}
	return TLSRequired(strconv.FormatBool(b)), nil
}

func (s setting) check(v reflect.Value) error {
	if s.oneof != nil && !slices.Contains(s.oneof, v.String()) {
		return fmt.Errorf("must be one of %s", strings.Join(nonEmpty(s.oneof), ", "))
	}
	for _, limit := range []struct {
		text, word string
		sign       int64
	}{{s.min, "at least", 1}, {s.max, "at most", -1}} {
		if limit.text == "" {
			continue
		}
		bound, err := parse(v.Type(), limit.text)
		if err != nil {
			panic("config: limit of --" + s.flag + ": " + err.Error()) // a test sets all limits
		}
		if limit.sign*v.Int() < limit.sign*bound.Int() {
			return fmt.Errorf("must be %s %s", limit.word, limit.text)
		}
	}
	return nil
}

func nonEmpty(in []string) []string {
	return slices.DeleteFunc(slices.Clone(in), func(s string) bool { return s == "" })
}
