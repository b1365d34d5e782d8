package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

// completionTimeout bounds what a shell waits for names.
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
	f.String("profile", "", "settings that \"nsqctl profile\" keeps; empty: those of \"profile use\"")
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

// complete gives a command, and all below it, what every command has.
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

// completeNames gives a command the completion of its arguments by the words of its usage: TOPIC, CHANNEL and BROKER.
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

// namesOf returns the names that an argument may have. Without an answer in time there are none.
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
	var answer struct {
		Topics   []string `json:"topics"`
		Channels []string `json:"channels"`
	}
	switch word {
	case "TOPIC":
		_ = t.GetAny(ctx, "/topics", nil, &answer)
		return answer.Topics, true
	case "CHANNEL":
		if len(args) > 0 {
			_ = t.GetAny(ctx, "/channels", url.Values{"topic": args[:1]}, &answer)
		}
		return answer.Channels, true
	}
	v, _ := t.Cluster(ctx)
	for _, b := range v.Brokers {
		names = append(names, string(b.Name))
	}
	return names, true
}

// Given adds the flags that are on the command line to the arguments of a request, in which they have the same names with
// underscores.
func Given(cmd *cobra.Command, q url.Values, flags ...string) url.Values {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed {
			q.Set(Underscored(name), f.Value.String())
		}
	}
	return q
}

// Underscored returns a flag's name in the spelling of the HTTP API.
func Underscored(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// Required marks flags as required.
func Required(cmd *cobra.Command, flags ...string) *cobra.Command {
	for _, name := range flags {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is not declared
		}
	}
	return cmd
}
