package config

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

const printIntro = `# The settings of nsqd in effect, as a file for --config. The comment behind a value is
# its source. Secrets, and the passwords and values of queries in addresses, are left out.
`

// Print writes the effective settings as a TOML file. A comment behind each value names its source: default, file,
// environment or flag. Print never writes a secret: a comment takes its place, and an address with a password is
// written without the password. Settings without effect appear only if they were given. The error is that of Load, or
// of the writer.
func Print(w io.Writer, src Source) error {
	l, err := load(src)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprint(b, printIntro)
	if l.options.ConfigFile != "" {
		fmt.Fprintf(b, "# The file that was read: %s\n", l.options.ConfigFile)
	}
	group := ""
	for s := range settings(&l.options) {
		_, given := l.given[s.flag]
		if s.flagOnly || s.key == "config" || s.noop != "" && !given {
			continue
		}
		if s.group != group {
			group = s.group
			fmt.Fprintf(b, "\n# %s\n\n", group)
		}
		if s.envOnly {
			if given {
				fmt.Fprintf(b, "# the environment has %s, which is never printed\n", s.env)
			}
			continue
		}
		line, err := s.line()
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s # %s\n", line, l.sourceOf(s))
	}
	return b.Flush()
}

// Changed lists the settings that differ from their defaults, as lines of the file, without secrets and passwords.
func (o Options) Changed() []string {
	var lines []string
	defaults := Defaults()
	before := map[string]reflect.Value{}
	for s := range settings(&defaults) {
		before[s.flag] = s.value
	}
	for s := range settings(&o) {
		if s.flagOnly || reflect.DeepEqual(s.value.Interface(), before[s.flag].Interface()) || s.isList() && s.value.Len() == 0 {
			continue
		}
		if s.envOnly {
			lines = append(lines, s.env+" = (secret)")
			continue
		}
		if line, err := s.line(); err == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

func (l *loader) sourceOf(s setting) string {
	from, ok := l.origin[s.flag]
	switch {
	case ok:
		return from.source
	case strings.HasPrefix(s.shown, "$"):
		return "default (from this host's name)"
	}
	return "default"
}

func (s setting) line() (string, error) {
	value := s.public()
	switch v := value.(type) {
	case time.Duration:
		value = v.String()
	case TLSRequired:
		value = string(v)
	}
	text, err := toml.Marshal(map[string]any{s.key: value})
	return strings.TrimSuffix(string(text), "\n"), err
}

// public returns the value without passwords in addresses. An empty list is not nil: it is [] in TOML and JSON.
func (s setting) public() any {
	switch v := s.value.Interface().(type) {
	case []string:
		list := make([]string, len(v))
		for i, item := range v {
			list[i] = redact.Address(item)
		}
		return list
	case string:
		return redact.Address(v)
	}
	if list := s.value; list.Kind() == reflect.Slice && list.IsNil() {
		return reflect.MakeSlice(list.Type(), 0, 0).Interface()
	}
	return s.value.Interface()
}

func (s setting) limits() string {
	switch {
	case s.min != "" && s.max != "":
		return fmt.Sprintf(" (%s to %s)", s.min, s.max)
	case s.min != "" && s.min != "0" && s.min != "0s":
		return fmt.Sprintf(" (at least %s)", s.min)
	}
	return ""
}
