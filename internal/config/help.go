package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
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

// name is the flag, or the environment variable of a setting without a flag: every user of the machine sees the command
// line.
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

// description is the meaning, the permitted values, and the reason to change the setting.
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
