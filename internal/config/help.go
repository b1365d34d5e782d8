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

const helpIntro = `nsqd - a replicated message broker for clients of NSQ

Start a single broker for this machine; with --require-users it serves the network, once
nsqctl user create root --admin has made the first user:

  nsqd --data-path=/var/lib/nsqd

Start a secure cluster of three with three replicas of every message: on each host, with the
files of nsqctl cert broker in /etc/lockstep/tls, and the same command (docs/guide/secure-cluster.md):

  nsqd --join=n1.example,n2.example,n3.example --require-users --tls-required --data-path=/var/lib/lockstep

Use an external etcd instead of the embedded one:

  nsqd --etcd-endpoints=http://etcd1:2379,http://etcd2:2379,http://etcd3:2379 --replication-factor=3 …

Every flag can also be given as -flag value or --flag=value, as an environment
variable (--tcp-address is NSQD_TCP_ADDRESS), or in the TOML file of
--config (tcp_address = "…"). A flag beats the environment, which beats the file.
`

// Help writes the text of --help, or of --help-all.
func Help(w io.Writer, all bool) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, helpIntro)
	if !all {
		fmt.Fprint(b, "\nThese are the settings of a new cluster; nsqd --help-all explains all of them.\n")
	}
	group := ""
	var o Options
	for s := range settings(&o) {
		if !all && (s.when != "" || s.noop != "") {
			continue
		}
		if s.group != group {
			group = s.group
			fmt.Fprintf(b, "\n%s:\n", group)
		}
		fmt.Fprintf(b, "  %s%s\n        %s\n", s.name(), s.argument(), s.description())
	}
	return b.Flush()
}

// name is the flag, or the environment variable of a setting without a flag. Such settings are secrets: every user of
// the machine sees the command line.
func (s setting) name() string {
	if s.envOnly {
		return "$" + s.env
	}
	return "--" + s.flag
}

// argument returns the default, or the type of the value.
func (s setting) argument() string {
	switch {
	case s.shown == "$hostname":
		return "=<this host's name>"
	case s.shown == "$nodeid":
		return "=<from this host's name>"
	case s.shown != "" && strings.TrimSpace(s.shown) != s.shown:
		return fmt.Sprintf("=%q", s.shown)
	case s.shown != "":
		return "=" + s.shown
	}
	return "="
}

// description describes a setting: its meaning, the permitted values, and when to change it.
func (s setting) description() string {
	d := s.help
	if s.oneof != nil {
		d += " (" + strings.Join(nonEmpty(s.oneof), ", ") + ")"
	}
	d += s.limits()
	if s.noop != "" {
		d += "; no effect: " + s.noop
	}
	if s.when != "" {
		d += "; change it when " + s.when
	}
	return d
}

// Manual writes the manual page nsqd(8) in the language of man(7), with the date and the version in its footer.
func Manual(w io.Writer, date time.Time, version string) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, ".TH NSQD 8 %q %q \"Lockstep\"\n", date.UTC().Format(time.DateOnly), "lockstep "+version)
	fmt.Fprint(b, ".SH NAME\n", roff("nsqd - a replicated message broker for clients of NSQ"), ".SH SYNOPSIS\n.B nsqd\n[\\-\\-config=FILE] [SETTING ...]\n")
	_, example, _ := strings.Cut(helpIntro, "\n\n")
	fmt.Fprint(b, ".SH DESCRIPTION\n.nf\n", roff(strings.TrimSpace(example)), ".fi\n.SH SETTINGS\n")
	group := ""
	var o Options
	for s := range settings(&o) {
		if s.group != group {
			group = s.group
			fmt.Fprintf(b, ".SS %s", roff(group))
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s", strings.TrimSpace(roff(s.name()+s.argument())), roff(s.description()))
	}
	fmt.Fprint(b, ".SH SIGNALS\n", roff("SIGTERM and SIGINT transfer the leaderships and stop the broker; a second one, a second later or more, ends it at once. "+
		"SIGHUP reloads the certificates and the log level."),
		".SH EXIT STATUS\n", roff("0 after a requested stop; 1 if the broker could not start or had to stop, with the reason in the log; 2 for a wrong command line, or if --check-config finds a fault."),
		".SH FILES\n.TP\n.I /etc/lockstep/nsqd.toml\n", roff("the settings of the packaged service"), ".TP\n.I /var/lib/lockstep\n", roff("its data"),
		".SH SEE ALSO\n.BR nsqctl (1)\n")
	return b.Flush()
}

// roff returns a text and a newline. It escapes requests and special characters of man(7).
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

const printIntro = `# The settings of nsqd in effect, as a file for --config. The comment behind a value is
# its source. Secrets, and the passwords and values of queries in addresses, are left out.
`

// Print writes the effective settings as a TOML file. A comment after each value names its source: default, file,
// environment or flag. Print never writes a secret: a comment takes its place, and an address with a password is
// written without the password. Settings without effect appear only if they were given. The error is from Load or from
// the writer.
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

// public returns the value without passwords in addresses. An empty list is returned as non-nil, so that it is [] in
// TOML and JSON.
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
