package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

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
	markUsage(root)
	t.formatOutput(root)
	t.completeNames(root)
	return root
}
