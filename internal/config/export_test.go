package config

import (
	"cmp"
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
			fmt.Fprintf(w, "\n## %s\n\n| setting | default | meaning |\n|---|---|---|\n", group)
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
		if s.isList() {
			byDefault = cmp.Or(byDefault, "none")
		}
		if byDefault != "" && !strings.HasPrefix(byDefault, "<") {
			byDefault = "`" + byDefault + "`"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, strings.Trim(byDefault, "<>"), strings.ReplaceAll(s.description(), "|", `\|`))
	}
}

// OwnName is ownName.
var OwnName = ownName
