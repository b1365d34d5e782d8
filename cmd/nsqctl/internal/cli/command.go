package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const completionTimeout = 2 * time.Second // bounds how long a shell waits for names

// VersionLine describes the build of nsqctl.
func VersionLine() string {
	return fmt.Sprintf("%s, speaks NSQ %s", api.ReadBuild().Describe(metadata.Level), api.Version)
}

// NewRoot returns the root of these commands and of profile. Its flags, which all commands have, set up t.
func NewRoot(t *Target, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:               "nsqctl",
		Version:           VersionLine(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return t.prepare(cmd) },
	}
	f := root.PersistentFlags()
	f.StringSliceVar(&t.TCP, "nsqd-tcp-address", []string{tcpAddress}, "TCP address of a broker; may be repeated, the next is used when one fails")
	f.StringSliceVar(&t.Addresses, "nsqd-http-address", []string{HTTPAddress}, "HTTP address of any broker, with TLS its HTTPS address ("+httpsAddress+"); may be repeated, the next is asked when one does not answer")
	f.StringVarP(&t.Output, "output", "o", "text", "text (or table), wide, json or yaml")
	f.String("profile", "", "profile to use (nsqctl profile); empty: as \"profile use\" chose")
	t.Security.flags(f)
	root.AddCommand(append(commands, newProfile(t))...)
	root.SetVersionTemplate("nsqctl: {{.Version}}\n")
	for _, group := range append(root.Commands(), root) {
		if !group.Runnable() {
			if group != root {
				group.Example = group.Commands()[0].Example
			}
			group.Args, group.RunE = unknownCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	t.complete(root)
	return root
}

// complete adds what all commands share to a command and its subcommands.
func (t *Target) complete(cmd *cobra.Command) {
	markUsage(cmd)
	t.formatOutput(cmd)
	t.completeNames(cmd)
	cmd.Long = wrap(cmd.Long)
	for _, sub := range cmd.Commands() {
		t.complete(sub)
	}
}

const helpWidth = 80 // width of the lines of help texts

// wrap breaks the paragraphs of a help text into lines. A paragraph with an indented line keeps its own.
func wrap(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if strings.Contains("\n"+p, "\n ") {
			continue
		}
		lines := []string{""}
		for _, word := range strings.Fields(p) {
			if last := &lines[len(lines)-1]; len(*last)+1+len(word) > helpWidth {
				lines = append(lines, word)
			} else {
				*last += Mark(*last != "", " ") + word
			}
		}
		paragraphs[i] = strings.Join(lines, "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

// argumentsOf is the number of arguments that a usage names: each word is one, except "[X]", which is optional, "X...",
// which may be repeated, and a flag with its value.
func argumentsOf(use string) cobra.PositionalArgs {
	least, most, many, flag := 0, 0, false, false
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(word, "--") || flag {
			flag = !flag
			continue
		}
		most++
		if word[0] != '[' {
			least++
		}
		many = many || strings.Contains(word, "...")
	}
	switch {
	case many:
		return cobra.MinimumNArgs(least)
	case most == 0:
		return cobra.NoArgs
	case least == most:
		return cobra.ExactArgs(most)
	case least == 0:
		return cobra.MaximumNArgs(most)
	}
	return cobra.RangeArgs(least, most)
}

// completeNames completes arguments that the usage calls TOPIC, CHANNEL or BROKER; others are completed as files.
func (t *Target) completeNames(cmd *cobra.Command) {
	words := strings.Fields(cmd.Use)[1:]
	if !cmd.Runnable() || cmd.ValidArgsFunction != nil {
		return
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(words) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, known := t.namesOf(cmd, words[len(args)], args)
		if !known {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// namesOf returns the possible names of an argument; none if no answer arrives in time.
func (t *Target) namesOf(cmd *cobra.Command, word string, args []string) (names []string, known bool) {
	if word != "TOPIC" && word != "CHANNEL" && word != "BROKER" {
		return nil, false
	}
	if t.prepare(cmd) != nil {
		return nil, true
	}
	parent := cmp.Or(cmd.Context(), context.Background()) // a completion runs without the context of main
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	switch {
	case word == "TOPIC":
		names, _ = brokerapi.List[string](ctx, &t.Client, "/topics", nil, "topics")
		return names, true
	case word == "CHANNEL":
		if len(args) > 0 {
			names, _ = brokerapi.List[string](ctx, &t.Client, "/channels", url.Values{"topic": args[:1]}, "channels")
		}
		return names, true
	}
	v, _ := t.Cluster(ctx)
	for _, b := range v.Brokers {
		names = append(names, string(b.Name))
	}
	return names, true
}

// Request is the query of a command: its arguments under the words of its usage, and the named flags, with underscores,
// that are given or have a default.
func Request(cmd *cobra.Command, args []string, flags ...string) url.Values {
	q := url.Values{}
	for i, word := range strings.Fields(cmd.Use)[1:] {
		if i >= len(args) {
			break
		}
		name := cmp.Or(parameters[word], strings.ToLower(strings.Trim(word, "[].")))
		if q[name] = args[i : i+1]; strings.HasSuffix(word, "...") {
			q[name] = args[i:]
		}
	}
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed || !slices.Contains(noDefault, f.DefValue) {
			q.Set(strings.ReplaceAll(name, "-", "_"), f.Value.String())
		}
	}
	return q
}

// parameters maps words of usages to the names of the HTTP API where they differ.
var parameters = map[string]string{"BROKER": "node", "[BROKER]": "node", "POSITION": "to", "NUMBER": "partitions", "true|false": "order"}

// noDefault are the default values of flags for which the broker's own default applies.
var noDefault = []string{"", "0", "false", "-1"}

// Post returns the RunE of a command that only makes a change (Request).
func (t *Target) Post(path string, flags ...string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return t.PostAny(cmd.Context(), path, Request(cmd, args, flags...), nil)
	}
}

// Required marks flags as required.
func Required(cmd *cobra.Command, flags ...string) *cobra.Command {
	for _, name := range flags {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is not declared
		}
	}
	return cmd
}

const StepsShown = 20 // bounds the partitions of a plan that the text lists; "wide" and JSON have all

// PlanFlags adds --dry-run and --yes to a command.
func PlanFlags(cmd *cobra.Command) {
	cmd.Flags().Bool("dry-run", false, "print the plan, and change nothing")
	cmd.Flags().BoolP("yes", "y", false, "do not ask on a terminal")
}

// Planning reports whether a command with PlanFlags only shows its plan, and whether it asks: on a terminal without --yes.
func Planning(cmd *cobra.Command, t *Target) (dry, ask bool) {
	dry, _ = cmd.Flags().GetBool("dry-run") // declared by PlanFlags
	yes, _ := cmd.Flags().GetBool("yes")
	return dry, !dry && !yes && t.Output != "json" && IsTerminal(cmd.OutOrStdout()) && IsTerminal(os.Stdin)
}

// Confirm asks a question that y or yes answers.
func Confirm(out io.Writer, in io.Reader) error {
	fmt.Fprint(out, "continue? [y/N] ")
	line, _ := bufio.NewReader(in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed")
}

// Places is the help text for an argument that Place reads.
const Places = "earliest, latest, a sequence, or a time: RFC 3339, how long ago, such as 90m, or a Unix time in ns"

// Place parses a position in a log as brokers do, and additionally an age such as 90m. It returns the text for a
// broker.
func Place(text string) (string, error) {
	if ago, err := time.ParseDuration(text); err == nil && text != "0" {
		at := time.Now().Add(-ago.Abs())
		if at.Year() < 2000 {
			return "", fmt.Errorf("%s is how long ago, in %d; a Unix time is written in ns, without a unit, or as RFC 3339", text, at.Year())
		}
		return strconv.FormatInt(at.UnixNano(), 10), nil
	}
	return text, nil
}

// Beyond returns an error if the position is beyond the end of every partition that was read; ends has them by number.
// If only some end before it, that is no error; but a command that reads nothing has not done what was asked.
func Beyond(place string, ends map[int]uint64) (beyond error) {
	p, _ := api.ParsePlace(place) // the broker has read it
	for _, n := range slices.Sorted(maps.Keys(ends)) {
		err := p.Beyond(uint16(n), ident.Sequence(ends[n]))
		if err == nil {
			return nil
		}
		beyond = cmp.Or(beyond, err)
	}
	return beyond
}

// The exit codes. "cluster health" has its own for 1 and 2: degraded and unsafe.
const (
	ExitFailed      = 1
	ExitUnreachable = 3   // no broker answered
	ExitNotFound    = 4   // no such topic, channel, broker or user
	ExitRefused     = 5   // the broker refused the request; the text says why
	ExitDiffers     = 6   // "check": replicas differ, or one is missing
	ExitUsage       = 64  // unknown command, flag or argument
	ExitInterrupted = 130 // Ctrl-C
)

// ExitCodesHelp is the part of --help that lists them.
const ExitCodesHelp = `Exit codes: 0 done; 1 failed; 3 no broker answers; 4 no such topic, channel,
broker or user; 5 refused by the broker; 6 "check" found a difference; 64 wrong
usage; 130 interrupted. "cluster health" ends with 0 healthy, 1 degraded, 2 unsafe.`

// ExitError is an error with its own exit code.
type ExitError struct {
	Code   int
	Silent bool // the command has printed the reason
	Err    error
}

// Error implements error.
func (e ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e ExitError) Unwrap() error { return e.Err }

// EndUnless returns the error of a command that has printed its answer: err if it is not nil; otherwise the exit code
// without a text, unless the answer is good.
func EndUnless(good bool, code int, err error) error {
	if err != nil || good {
		return err
	}
	return ExitError{code, true, errors.New("failed")}
}

// NotFound is the error of a name that the cluster does not have.
func NotFound(kind, name string) error {
	return ExitError{Code: ExitNotFound, Err: fmt.Errorf("no %s %q", kind, name)}
}

// ExitCode returns the code of a command's error.
func ExitCode(ctx context.Context, err error) int {
	var e ExitError
	switch status := brokerapi.Status(err); {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	case ctx.Err() != nil:
		return ExitInterrupted
	case status == http.StatusNotFound:
		return ExitNotFound
	case status >= 400 && status < 500:
		return ExitRefused
	case brokerapi.Unanswered(err):
		return ExitUnreachable
	}
	return ExitFailed
}

// Usage is the error of a command line that is wrong.
func Usage(format string, args ...any) error {
	return ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// markUsage makes wrong flags and arguments of a command end with ExitUsage.
func markUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return Usage("%w", flagFault(cmd, err)) })
	check := cmd.Args
	if check == nil {
		check = argumentsOf(cmd.Use)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if e := (ExitError{}); err == nil || errors.As(err, &e) {
			return err
		}
		return Usage("%w; usage: %s", err, cmd.UseLine())
	}
}

func flagFault(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := config.Nearest(name, names); near != "" && len(name) > 1 {
			return fmt.Errorf("there is no flag --%s; did you mean --%s?", name, near)
		}
		return fmt.Errorf("there is no flag -%s%s; %s --help lists them", Mark(len(name) > 1, "-"), name, cmd.CommandPath())
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		if want := wanted[f.Value.Type()]; want != "" {
			return fmt.Errorf("--%s=%s: must be %s", f.Name, invalid.GetValue(), want)
		}
		return fmt.Errorf("--%s=%s: %w", f.Name, invalid.GetValue(), invalid.Unwrap())
	}
	return err
}

// wanted describes the valid values of flag types whose own errors name Go functions.
var wanted = map[string]string{
	"bool": "true or false", "duration": "a duration such as 250ms or 1m30s", "float64": "a number",
	"int": wholeNumber, "int64": wholeNumber, "uint16": "a whole number from 0 to 65535", "uint64": wholeNumber + ", 0 or more",
}

const wholeNumber = "a whole number of at most 19 digits"

// unknownCommand refuses the arguments of a command that has only commands below it.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return Usage("%s; did you mean %s?", text, strings.Join(near, " or "))
	}
	return Usage("%s; %s --help lists them", text, cmd.CommandPath())
}

// AsUsage gives the error of a missing flag, for which cobra has neither a type nor a hook, its exit code.
func AsUsage(err error) error {
	if err != nil && strings.HasPrefix(err.Error(), "required flag(s)") {
		return Usage("%w", err)
	}
	return err
}
