package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

const templateIntro = `# Settings of nsqd, the broker of Lockstep: the file of --config or $NSQD_CONFIG.
#
# Every setting is here, commented out, with its default. A flag beats the environment
# (%s for the first one below), which beats this file, which beats the default.
# A duration is a text such as "250ms" or "1m30s".
#
#   nsqd --config FILE --check-config    prints all faults
#   nsqd --config FILE --print-config    prints the effective settings and their sources
#
# No secret belongs here: use files, or the environment.
# A change takes effect at a restart. SIGHUP reloads log_level, rpc_tls_allow and the certificates for clients.
`

// Template writes packaging/nsqd.toml: every setting that has an effect, with its explanation, commented out.
func Template(w io.Writer) error {
	b := bufio.NewWriter(w)
	o := Defaults()
	group := ""
	for s := range settings(&o) {
		if s.flagOnly || s.key == "config" || s.noop != "" {
			continue
		}
		if group == "" {
			fmt.Fprintf(b, templateIntro, s.env)
		}
		if s.group != group {
			group = s.group
			fmt.Fprintf(b, "\n\n##### %s\n", group)
		}
		if s.envOnly {
			fmt.Fprintf(b, "\n%s", comment(fmt.Sprintf("$%s in the environment, never here: %s", s.env, s.description())))
			continue
		}
		line, err := s.templateLine()
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "\n%s#%s\n", comment(repeated.Replace(s.description())), line)
	}
	return b.Flush()
}

// repeated replaces the words of the help for lists by those for a file.
var repeated = strings.NewReplacer("(repeat)", "(a list)", "(repeat, or with commas)", "(a list)", "(repeat, or with commas);", "(a list);")

// commentWidth is the longest line of the template.
const commentWidth = 100

// comment breaks a sentence into lines of a comment.
func comment(text string) string {
	var b strings.Builder
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > commentWidth {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
	return b.String()
}

// templateLine returns the line with the default, or with an example if the default depends on the host.
func (s setting) templateLine() (string, error) {
	switch s.shown {
	case "$hostname":
		return s.key + ` = "n1.example" # default: this host's name`, nil
	case "$nodeid":
		return s.key + " = 1 # default: computed from this host's name", nil
	}
	return s.line()
}
