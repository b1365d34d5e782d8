package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// completionTimeout bounds how long a shell waits for names.
const completionTimeout = 2 * time.Second

// VersionLine describes the build of nsqctl.
func VersionLine() string {
	return fmt.Sprintf("%s, speaks NSQ %s", api.ReadBuild().Describe(metadata.Level), api.Version)
}

// NewRoot returns the command that has these commands, and the flags of every command. The flags set up
// t before a command runs.
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
	f.String("profile", "", "profile to use (nsqctl profile); empty: the one that \"profile use\" chose")
	t.Security.flags(f)
	root.AddCommand(commands...)
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
	for _, sub := range cmd.Commands() {
		t.complete(sub)
	}
}

// argumentsOf is the number of arguments that a usage names: each word is one but "[X]", which is optional, "X...", which
// may be repeated, and a flag with its value.
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

// completeNames completes the arguments of a command that its usage calls TOPIC, CHANNEL or BROKER.
// Other arguments are completed as files.
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

// namesOf returns the possible names of an argument; none without an answer in time.
func (t *Target) namesOf(cmd *cobra.Command, word string, args []string) (names []string, known bool) {
	if word != "TOPIC" && word != "CHANNEL" && word != "BROKER" {
		return nil, false
	}
	if t.prepare(cmd) != nil {
		return nil, true
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background() // a completion runs without the context of main
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	switch {
	case word == "TOPIC":
		names, _ = brokerapi.List[string](ctx, &t.Client, "/topics", nil, "topics")
		return names, true
	case word == "CHANNEL" && len(args) > 0:
		names, _ = brokerapi.List[string](ctx, &t.Client, "/channels", url.Values{"topic": args[:1]}, "channels")
		return names, true
	case word == "CHANNEL":
		return nil, true
	}
	v, _ := t.Cluster(ctx)
	for _, b := range v.Brokers {
		names = append(names, string(b.Name))
	}
	return names, true
}

// Request is the query of a command: its arguments under the words of its usage, and the named flags that are given or have a
// default, with underscores.
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

// parameters are the words of usages that the HTTP API calls otherwise.
var parameters = map[string]string{"BROKER": "node", "[BROKER]": "node", "POSITION": "to", "NUMBER": "partitions", "true|false": "order"}

// noDefault are the values of flags that stand for the broker's default.
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

// StepsShown bounds the partitions of a plan that the text lists; "wide" and JSON have all.
const StepsShown = 20

// PlanFlags adds --dry-run and --yes to a command.
func PlanFlags(cmd *cobra.Command) {
	cmd.Flags().Bool("dry-run", false, "print the plan, and change nothing")
	cmd.Flags().BoolP("yes", "y", false, "do not ask on a terminal")
}

// Planning reports whether a command with PlanFlags only shows its plan, and whether it asks: on a terminal, unless --yes
// is given.
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

// Places is the help of an argument that Place reads.
const Places = "earliest, latest, a sequence, or a time: RFC 3339, how long ago, such as 90m, or a Unix time in ns"

// Place reads a place of a log as brokers do, and also how long ago it is. It returns the text for a broker.
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

// Ends are the ends of the partitions that a command reads from a place.
type Ends struct {
	within bool
	beyond error
}

// Note adds the end of a partition.
func (e *Ends) Note(place string, partition int, end uint64) {
	p, _ := api.ParsePlace(place) // the broker has read it
	err := p.Beyond(uint16(partition), ident.Sequence(end))
	e.within = e.within || err == nil
	e.beyond = cmp.Or(e.beyond, err)
}

// Err is the error of a place beyond the ends of all partitions that were read. If only some partitions end before the
// place, nothing is skipped; but a command that reads nothing has not done what was asked.
func (e *Ends) Err() error {
	if e.within {
		return nil
	}
	return e.beyond
}
