package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"
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
