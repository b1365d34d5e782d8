package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/nsqctl.md")

// TestReference: docs/reference/nsqctl.md has the commands and flags of this build.
func TestReference(t *testing.T) {
	const document = "../../docs/reference/nsqctl.md"
	root := newRoot()
	firsts := map[[4]string]string{}
	var b strings.Builder
	fmt.Fprintf(&b, "# nsqctl\n\nThis page is generated from the code (`make reference`). `nsqctl COMMAND --help` has the whole text and examples.\n\n%s\n\n## Flags of every command\n\n",
		reflow(root.Long))
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { writeFlag(&b, f) })
	group := ""
	texts := map[string]string{}
	leaves(root, func(cmd *cobra.Command) {
		if !listed(cmd) {
			return
		}
		if first := strings.Fields(cmd.CommandPath())[1]; first != group {
			group = first
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		fmt.Fprintf(&b, "\n**`%s`**: %s\n\n%s", strings.TrimSuffix(cmd.UseLine(), " [flags]"), described(cmd, texts), commandFlags(cmd, flagsOf(root, cmd), firsts))
	})
	text := strings.TrimRight(blankLines.ReplaceAllString(b.String(), "\n\n"), "\n") + "\n"
	requireAllFlags(t, root, text)
	if *rewrite {
		require.NoError(t, os.WriteFile(document, []byte(text), 0o644))
	}
	stands, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, text, string(stands), "the commands have changed: make reference")
}

var blankLines = regexp.MustCompile(`\n{3,}`)

// requireAllFlags: the part of each command names all of its flags.
func requireAllFlags(t *testing.T, root *cobra.Command, text string) {
	sections := map[string]string{}
	for _, section := range strings.Split(text, "\n**`")[1:] {
		use, body, _ := strings.Cut(section, "`**")
		sections[use] = body
	}
	leaves(root, func(cmd *cobra.Command) {
		if !listed(cmd) {
			return
		}
		flagsOf(root, cmd).VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" {
				require.Contains(t, sections[strings.TrimSuffix(cmd.UseLine(), " [flags]")], "`--"+f.Name+"`", cmd.CommandPath())
			}
		})
	})
}

// meaning is the part of a flag that its reader sees.
func meaning(f *pflag.Flag) [4]string {
	return [...]string{f.Name, f.Shorthand, f.DefValue, f.Usage}
}

// commandFlags lists the flags of a command. A flag that means the same at an earlier command is
// only named: firsts has the first command of each meaning.
func commandFlags(cmd *cobra.Command, flags *pflag.FlagSet, firsts map[[4]string]string) string {
	var own, also strings.Builder
	earlier := map[string][]string{}
	var order []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		first, ok := firsts[meaning(f)]
		if !ok {
			firsts[meaning(f)] = cmd.CommandPath()
			writeFlag(&own, f)
			return
		}
		if earlier[first] == nil {
			order = append(order, first)
		}
		earlier[first] = append(earlier[first], "`--"+f.Name+"`")
	})
	for _, first := range order {
		fmt.Fprintf(&also, "- %s: as in `%s`\n", strings.Join(earlier[first], ", "), first)
	}
	return own.String() + also.String()
}

// flagsOf are the flags of a command, with those of its group and without those of every command.
func flagsOf(root, cmd *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	own.AddFlagSet(cmd.NonInheritedFlags())
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if root.PersistentFlags().Lookup(f.Name) == nil {
			own.AddFlag(f)
		}
	})
	return own
}

// listed leaves the groups of commands out, which print their help alone, and hidden ones.
func listed(cmd *cobra.Command) bool { return !cmd.Hidden && !cmd.HasSubCommands() }

// described is the first sentence of a command's help, or the name of an earlier command with the same help: texts has the
// command of each help.
func described(cmd *cobra.Command, texts map[string]string) string {
	first, ok := texts[cmd.Long]
	if !ok || cmd.Long == "" {
		texts[cmd.Long] = cmd.CommandPath()
		return sentence(cmd)
	}
	return "the same as `" + first + "`."
}

var sentenceEnd = regexp.MustCompile(`[.:]\s`)

// sentence is the first sentence of the help.
func sentence(cmd *cobra.Command) string {
	if cmd.Long != "" {
		text := strings.TrimSpace(cmd.Long)
		if at := sentenceEnd.FindStringIndex(text); at != nil {
			text = text[:at[0]] + "."
		}
		return reflow(text)
	}
	return strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
}

// reflow keeps a text as it is: Markdown joins the lines of a paragraph by itself.
func reflow(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(strings.TrimSpace(text))
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`).Replace(text)
}

// writeFlag writes the line of a flag. A default that says nothing is left out.
func writeFlag(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden || f.Name == "help" {
		return
	}
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name += ", `-" + f.Shorthand + "`"
	}
	if !slices.Contains([]string{"", "[]", "false", "0", "0s"}, f.DefValue) {
		name += " (`" + f.DefValue + "`)"
	}
	fmt.Fprintf(b, "- %s: %s\n", name, cell(f.Usage))
}
