package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

var (
	// ErrHelp means that --help was asked for and nothing else is wanted.
	ErrHelp = errors.New("config: help requested")
	// ErrUsage means that the command line itself is wrong: exit with 2.
	ErrUsage = errors.New("config: bad command line")
	// ErrInvalid means that settings are wrong or contradict each other: exit
	// with 1.
	ErrInvalid = errors.New("config: bad settings")
)

// Faults are all that is wrong with the settings, one sentence each, in the
// order of their sources. It is ErrUsage if the command line has a share in it,
// else ErrInvalid.
type Faults struct {
	Kind  error
	Lines []string
}

// Error gives one fault a line.
func (f *Faults) Error() string { return strings.Join(f.Lines, "\n") }

// Unwrap makes errors.Is find ErrUsage or ErrInvalid.
func (f *Faults) Unwrap() error { return f.Kind }

func (f *Faults) add(kind error, format string, args ...any) {
	if f.Kind == nil || kind == ErrUsage {
		f.Kind = kind
	}
	f.Lines = append(f.Lines, fmt.Sprintf(format, args...))
}

// ExitCode gives what the process has to end with after Load said err.
func ExitCode(err error) int {
	switch {
	case err == nil, errors.Is(err, ErrHelp):
		return 0
	case errors.Is(err, ErrUsage):
		return 2
	}
	return 1
}

// Source is where settings come from.
type Source struct {
	Args     []string                          // without the program's name
	Env      func(name string) (string, bool)  // os.LookupEnv
	ReadFile func(path string) ([]byte, error) // os.ReadFile
}

// Load reads all settings. warnings are remarks that deserve a line in the log
// (unknown keys in the file, flags that mean nothing). On ErrHelp the caller
// prints Help; every other error is a *Faults. Version is not acted upon.
func Load(src Source) (o Options, warnings []string, err error) {
	l := loader{src: src, options: Defaults(), given: map[string][]string{}}
	if help := l.flags(); help {
		return o, nil, ErrHelp
	}
	l.environment()
	l.file()
	l.apply()
	l.validate()
	if len(l.faults.Lines) > 0 && !l.options.Version {
		return o, l.warnings, &l.faults
	}
	return l.options, l.warnings, nil
}

// loader collects the settings of one Load. Each source only notes what it
// gives; a weaker source leaves alone what a stronger one gave.
type loader struct {
	src      Source
	options  Options
	given    map[string][]string // flag name → its texts, from the strongest source so far
	origin   map[string]origin
	faults   Faults
	warnings []string
}

// origin says where a text came from, for the wording of faults.
type origin struct {
	name string
	kind error
}

// flags reads the command line; true when help is wanted.
func (l *loader) flags() (help bool) {
	l.origin = map[string]origin{}
	set := flag.NewFlagSet("nsqd", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for s := range settings(&l.options) {
		set.Var(&noted{l: l, s: s}, s.flag, s.help)
	}
	for args := l.src.Args; ; args = afterFault(set.Args()) {
		err := set.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return true
		case err != nil:
			l.faults.add(ErrUsage, "%s", strings.Replace(err.Error(), "flag provided but not defined: -", "there is no flag --", 1))
			continue
		case set.NArg() > 0:
			l.faults.add(ErrUsage, "argument %q is no flag (a switch takes its value after =, as in --snappy=false)", set.Arg(0))
		}
		return false
	}
}

// afterFault leaves out what may be the value of a flag that there is not, so
// that what comes after it is judged too; and what is no flag at all, such as
// ---x, which the package flag leaves in front of the rest.
func afterFault(args []string) []string {
	if len(args) > 0 && (!strings.HasPrefix(args[0], "-") || malformed(args[0])) {
		return args[1:]
	}
	return args
}

func malformed(arg string) bool {
	name := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
	return name != "" && (name[0] == '-' || name[0] == '=')
}

// noted is a flag.Value that only notes the text, so that one bad value does
// not hide the next.
type noted struct {
	l *loader
	s setting
}

// String implements flag.Value.
func (n *noted) String() string { return "" }

// Set implements flag.Value.
func (n *noted) Set(text string) error {
	if !n.s.isList() {
		delete(n.l.given, n.s.flag) // the last one counts
	}
	n.l.note(n.s, origin{"--" + n.s.flag, ErrUsage}, text)
	return nil
}

// IsBoolFlag lets a switch stand alone.
func (n *noted) IsBoolFlag() bool { return n.s.isBool() }

func (l *loader) note(s setting, from origin, texts ...string) {
	l.given[s.flag] = append(l.given[s.flag], texts...)
	l.origin[s.flag] = from
}

func (l *loader) environment() {
	for s := range settings(&l.options) {
		if _, stronger := l.given[s.flag]; stronger || s.flagOnly {
			continue
		}
		if text, ok := l.src.Env(s.env); ok {
			l.note(s, origin{"$" + s.env, ErrInvalid}, text)
		}
	}
}

// apply parses what was noted.
func (l *loader) apply() {
	for s := range settings(&l.options) {
		texts, ok := l.given[s.flag]
		if !ok {
			continue
		}
		if s.noop != "" {
			l.warnings = append(l.warnings, fmt.Sprintf("--%s has no effect: %s", s.flag, s.noop))
		}
		from := l.origin[s.flag]
		if err := s.set(strings.Join(texts, ",")); err != nil {
			l.faults.add(from.kind, "%s=%s: %v", from.name, strings.Join(texts, ","), err)
		}
	}
}
