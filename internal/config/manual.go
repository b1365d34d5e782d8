package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
)

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
