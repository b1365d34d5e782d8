package main

import (
	"flag"
	"fmt"
	"os"
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
	var b strings.Builder
	fmt.Fprintf(&b, "# nsqctl\n\nThis page is generated from the code (`make reference`).\n\n%s\n\n%s\n## Flags of every command\n\n%s",
		reflow(root.Long), indented(root.Example), flagTable(root.PersistentFlags()))
	b.WriteString("\n## Commands\n\n| command | |\n|---|---|\n")
	leaves(root, func(cmd *cobra.Command) {
		if listed(cmd) {
			fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cell(cmd.Short))
		}
	})
	leaves(root, func(cmd *cobra.Command) {
		if !listed(cmd) {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n    %s\n\n%s\n\n%s", cmd.CommandPath(), cmd.UseLine(), sentence(cmd), indented(cmd.Example))
		if own := flagsOf(root, cmd); own.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s", flagTable(own))
		}
	})
	text := strings.ReplaceAll(b.String(), "\n\n\n", "\n\n")
	if *rewrite {
		require.NoError(t, os.WriteFile(document, []byte(text), 0o644))
	}
	stands, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, text, string(stands), "the commands have changed: make reference")
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

func sentence(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return reflow(cmd.Long)
	}
	return strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
}

// reflow keeps a text as it is: Markdown joins the lines of a paragraph by itself.
func reflow(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(strings.TrimSpace(text))
}

func indented(example string) string {
	if strings.TrimSpace(example) == "" {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(example, "\n") + "\n") {
		b.WriteString("    " + strings.TrimPrefix(line, "  "))
	}
	return b.String()
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`).Replace(text)
}

func flagTable(flags *pflag.FlagSet) string {
	var b strings.Builder
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		byDefault := f.DefValue
		if byDefault != "" && byDefault != "[]" {
			byDefault = "`" + byDefault + "`"
		} else {
			byDefault = ""
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, cell(byDefault), cell(f.Usage))
	})
	return b.String()
}
