package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

// helpAll is the flag that prints every setting. It is not a setting itself.
const helpAll = "help-all"

var (
	// ErrHelp means that --help was given; the settings are not complete.
	ErrHelp = errors.New("config: help requested")
	// ErrHelpAll is ErrHelp for --help-all.
	ErrHelpAll = fmt.Errorf("%w: all settings", ErrHelp)
	// errUsage means that the command line is wrong: exit with 2.
	errUsage = errors.New("config: bad command line")
	// errInvalid means that settings are wrong or contradict each other: exit with 1.
	errInvalid = errors.New("config: bad settings")
)

// Faults are all faults of the settings, one sentence each, in the order of their sources. It is errUsage if one of
// them is on the command line, otherwise errInvalid.
type Faults struct {
	Kind  error
	Lines []string
	// Understood holds the settings without the faulty ones. Only --check-config uses it: it also reports the faults of
	// the files.
	Understood Options
}

// Error returns one fault per line.
func (f *Faults) Error() string { return strings.Join(f.Lines, "\n") }

// Unwrap makes errors.Is find errUsage or errInvalid.
func (f *Faults) Unwrap() error { return f.Kind }

func (f *Faults) add(kind error, format string, args ...any) {
	if f.Kind == nil || kind == errUsage {
		f.Kind = kind
	}
	f.Lines = append(f.Lines, redact.Text(fmt.Sprintf(format, args...)))
}

// ExitCode returns the exit status of the process for an error of Load.
func ExitCode(err error) int {
	var f *Faults
	switch {
	case err == nil, errors.Is(err, ErrHelp):
		return 0
	case errors.Is(err, errUsage), errors.As(err, &f) && f.Understood.CheckConfig:
		return 2
	}
	return 1
}

// Source is the origin of the settings.
type Source struct {
	Args     []string                          // without the program's name
	Env      func(name string) (string, bool)  // os.LookupEnv
	Environ  func() []string                   // os.Environ; nil: mistyped variables are not found
	ReadFile func(path string) ([]byte, error) // os.ReadFile
}

// Load reads all settings. warnings are for the log (unknown keys in the file, flags without effect). On ErrHelp the
// caller prints Help; every other error is a *Faults. Load does not handle Version.
func Load(src Source) (o Options, warnings []string, err error) {
	l, err := load(src)
	if err != nil {
		return o, l.warnings, err
	}
	return l.options, l.warnings, nil
}

func load(src Source) (*loader, error) {
	l := &loader{src: src, options: Defaults(), given: map[string][]string{}, origin: map[string]origin{}}
	if err := l.flags(); err != nil {
		return l, err
	}
	l.environment()
	l.file()
	l.apply()
	l.derive()
	l.validate()
	if len(l.faults.Lines) > 0 && !l.options.Version {
		l.faults.Understood = l.options
		return l, &l.faults
	}
	return l, nil
}

// loader collects the settings of one Load. Each source records its texts; a weaker source does not replace the texts
// of a stronger one.
type loader struct {
	src      Source
	options  Options
	given    map[string][]string // flag name → texts of the strongest source so far
	origin   map[string]origin
	faults   Faults
	warnings []string
}

// origin is the source of a text: name is for the wording of faults, source for --print-config.
type origin struct {
	name   string
	kind   error
	source string
}

// flags reads the command line. It returns ErrHelp for --help, and ErrHelpAll for --help-all.
func (l *loader) flags() error {
	set := flag.NewFlagSet("nsqd", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	names := []string{helpAll}
	all := false
	set.BoolVar(&all, helpAll, false, "")
	for s := range settings(&l.options) {
		if s.envOnly {
			continue
		}
		names = append(names, s.flag)
		set.Var(&noted{l: l, s: s}, s.flag, s.help)
	}
	for args := l.src.Args; ; args = afterFault(set.Args()) {
		err := set.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return ErrHelp
		case all:
			return ErrHelpAll
		case err != nil:
			if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
				err = errors.New("there is no flag --" + name + meant(name, "--", names))
			}
			l.faults.add(errUsage, "%v", err)
			continue
		case set.NArg() > 0:
			l.faults.add(errUsage, "argument %q is not a flag (a switch takes its value after =, as in --snappy=false)", set.Arg(0))
		}
		return nil
	}
}

// afterFault removes the argument after an unknown flag, which may be its value, so that the rest is checked too. It
// also removes an argument that is not a flag at all, such as ---x, at which the package flag stops.
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

// noted is a flag.Value that only records the text, so that all invalid values are reported.
type noted struct {
	l *loader
	s setting
}

func (n *noted) String() string { return "" }

func (n *noted) Set(text string) error {
	if !n.s.isList() {
		delete(n.l.given, n.s.flag) // the last flag of a name wins
	}
	n.l.note(n.s, origin{"--" + n.s.flag, errUsage, "flag"}, text)
	return nil
}

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
			l.note(s, origin{"$" + s.env, errInvalid, "environment " + s.env}, text)
		}
	}
	if l.src.Environ != nil {
		l.unknownVariables(l.src.Environ())
	}
}

// unknownVariables warns of mistyped names. Other variables may exist: orchestrators set variables such as NSQD_PORT
// for a service called nsqd.
func (l *loader) unknownVariables(environ []string) {
	var names []string
	for s := range settings(&l.options) {
		if !s.flagOnly {
			names = append(names, s.env)
		}
	}
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "NSQD_") || slices.Contains(names, name) {
			continue
		}
		if near := Nearest(name, names); near != "" && edits(name, near) <= 2 {
			l.warn("unknown variable $%s is ignored; did you mean $%s?", name, near)
		}
	}
}

func (l *loader) apply() {
	for s := range settings(&l.options) {
		texts, ok := l.given[s.flag]
		if !ok {
			continue
		}
		if s.noop != "" {
			l.warn("--%s has no effect: %s", s.flag, s.noop)
		}
		from := l.origin[s.flag]
		if err := s.set(strings.Join(texts, ",")); err != nil {
			l.faults.add(from.kind, "%s=%s: %v", from.name, redact.Addresses(texts), err) // never a secret: a secret accepts any text
		}
	}
}

// Nearest returns the name that a mistyped one probably means: at most a third of its letters differ. "" = none.
func Nearest(typed string, names []string) string {
	best, distance := "", len(typed)/3+1
	for _, name := range names {
		if d := edits(typed, name); d < distance {
			best, distance = name, d
		}
	}
	return best
}

// edits counts the letters to insert, delete or replace between two names.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func meant(typed, prefix string, names []string) string {
	if name := Nearest(typed, names); name != "" {
		return "; did you mean " + prefix + name + "?"
	}
	return ""
}
