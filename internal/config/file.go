package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/BurntSushi/toml"
)

// file reads the TOML file of --config or $NSQD_CONFIG.
func (l *loader) file() {
	path := ""
	if texts := l.given["config"]; len(texts) > 0 {
		path = texts[len(texts)-1]
	}
	if path == "" {
		return
	}
	content, err := l.src.ReadFile(path)
	if err != nil {
		l.faults.add(ErrInvalid, "configuration file %s: %v", path, err)
		return
	}
	var values map[string]any
	if err := toml.Unmarshal(content, &values); err != nil {
		l.faults.add(ErrInvalid, "configuration file %s: %v", path, err)
		return
	}
	l.noteFile(path, values)
}

func (l *loader) noteFile(path string, values map[string]any) {
	for s := range settings(&l.options) {
		if s.flagOnly {
			continue
		}
		value, ok := values[s.key]
		delete(values, s.key)
		if ok && s.envOnly {
			l.faults.add(ErrInvalid, "%s: %s is a secret: put it into the environment ($%s), or into a separate file and its path into %s_file", path, s.key, s.env, s.key)
			continue
		}
		if _, stronger := l.given[s.flag]; !ok || stronger {
			continue
		}
		texts, err := textsOf(s, value)
		if err != nil {
			l.faults.add(ErrInvalid, "%s: %s: %v", path, s.key, err)
			continue
		}
		l.note(s, origin{path + ": " + s.key, ErrInvalid, "file " + path}, texts...)
	}
	var unknown []string
	for key := range values {
		unknown = append(unknown, key)
	}
	slices.Sort(unknown)
	for _, key := range unknown { // a stock nsqd ignores them silently; a typing error deserves a warning
		l.warnings = append(l.warnings, fmt.Sprintf("%s: unknown key %q is ignored", path, key))
	}
}

// textsOf returns a TOML value as on the command line.
func textsOf(s setting, value any) ([]string, error) {
	switch v := value.(type) {
	case []any:
		if !s.isList() {
			return nil, fmt.Errorf("must be one value, not a list")
		}
		texts := make([]string, len(v))
		for i, item := range v {
			texts[i] = fmt.Sprint(item)
		}
		return texts, nil
	case map[string]any, []map[string]any:
		return nil, fmt.Errorf("must be a value, not a table")
	case int64:
		if _, ok := s.value.Interface().(time.Duration); ok {
			return []string{fmt.Sprintf("%dms", v)}, nil // a bare number is milliseconds, as in a stock file
		}
	case string:
		return []string{v}, nil
	}
	return []string{fmt.Sprint(value)}, nil
}
