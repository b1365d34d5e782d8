package config

import (
	"fmt"
	"io"
	"strings"
)

// Reference writes the tables of docs/reference/nsqd.md.
func Reference(w io.Writer) {
	group := ""
	var o Options
	for s := range settings(&o) {
		if s.group != group {
			group = s.group
			fmt.Fprintf(w, "\n## %s\n\n", group)
		}
		name := "`--" + s.flag + "`"
		switch {
		case s.envOnly:
			name = "`$" + s.env + "`"
		case s.flagOnly:
			name += " (flag alone)"
		case s.key != strings.ReplaceAll(s.flag, "-", "_"):
			name += ", in the file `" + s.key + "`"
		}
		byDefault := strings.TrimPrefix(s.argument(), "=")
		switch {
		case byDefault == "" || byDefault == "false":
			byDefault = ""
		case strings.HasPrefix(byDefault, "<"):
			byDefault = " (" + strings.Trim(byDefault, "<>") + ")"
		default:
			byDefault = " (`" + byDefault + "`)"
		}
		s.when = "" // the file of all settings and --help-all have it
		fmt.Fprintf(w, "- %s%s: %s\n", name, byDefault, s.description())
	}
}

// OwnName is ownName.
var OwnName = ownName

// Keys returns the names of all settings, as in files and /config/<key>. Secrets have none.
func Keys() (keys []string) {
	var o Options
	for s := range settings(&o) {
		if !s.envOnly {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// NoOps returns the flags that are accepted without effect, with the reason.
func NoOps() map[string]string {
	var o Options
	out := map[string]string{}
	for s := range settings(&o) {
		if s.noop != "" {
			out[s.flag] = s.noop
		}
	}
	return out
}

// The errors that only tests tell apart.
var (
	ErrInvalid = errInvalid
	ErrUsage   = errUsage
)
