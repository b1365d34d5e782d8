package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

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
		l.faults.add(errInvalid, "configuration file %s: %v", path, err)
		return
	}
	var values map[string]any
	if err := toml.Unmarshal(content, &values); err != nil {
		l.faults.add(errInvalid, "configuration file %s: %v", path, err)
		return
	}
	l.noteFile(path, values)
}

func (l *loader) noteFile(path string, values map[string]any) {
	var keys []string
	for s := range settings(&l.options) {
		value, ok := values[s.key]
		if s.flagOnly {
			if ok && s.noop != "" { // a stock nsqd ignores the key with a value of any type
				l.warn("%s: %s has no effect: %s", path, s.key, s.noop)
				delete(values, s.key)
			} else if ok {
				l.faults.add(errInvalid, "%s: unknown key %q; it is a flag alone", path, s.key)
				delete(values, s.key)
			}
			continue
		}
		delete(values, s.key)
		keys = append(keys, s.key)
		if ok && s.envOnly {
			l.faults.add(errInvalid, "%s: %s is a secret: put it into the environment ($%s), or into a separate file and its path into %s_file", path, s.key, s.env, s.key)
			continue
		}
		if _, stronger := l.given[s.flag]; !ok || stronger {
			continue
		}
		texts, err := textsOf(s, value)
		if err != nil {
			l.faults.add(errInvalid, "%s: %s: %v", path, s.key, err)
			continue
		}
		l.note(s, origin{path + ": " + s.key, errInvalid, "file " + path}, texts...)
	}
	l.unknownKeys(path, values, keys)
}

// unknownKeys refuses keys of the file that are no settings. A stock nsqd silently ignores them, so that its operator
// believes a setting to be in force that is not.
func (l *loader) unknownKeys(path string, values map[string]any, keys []string) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch values[key].(type) {
		case map[string]any, []map[string]any:
			l.faults.add(errInvalid, "%s: unknown section [%s]: settings have no section", path, key)
			continue
		}
		hint := meant(key, "", keys)
		for s := range settings(&l.options) {
			if s.flag == key || s.env == key || strings.ReplaceAll(s.flag, "-", "_") == key {
				hint = "; did you mean " + s.key + "?"
			}
		}
		l.faults.add(errInvalid, "%s: unknown key %q%s", path, key, hint)
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
	case string:
		return []string{v}, nil
	}
	return []string{fmt.Sprint(value)}, nil
}
