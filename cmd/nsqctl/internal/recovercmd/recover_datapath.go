package recovercmd

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newRecoverDataPath() *cobra.Command {
	var broker stopped
	cmd := &cobra.Command{
		Use:   "data-path",
		Short: "vouch that a copied data path is the newest state of its broker",
		Long: `recover data-path runs on the host of a stopped broker whose data path was
copied (to another disk, from a backup) and which therefore waits for other
brokers at its start. It marks the copy as complete: the broker then votes with
it.

Use it only if the broker never ran again after the copy was taken. If it did,
acknowledged messages and metadata can be lost. Without this command nothing is
lost: the broker joins again as soon as the others run, and copies the missing
data.`,
		Example: `  nsqctl recover data-path --data-path /var/lib/nsqd --node-name n1 --confirm n1`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return vouch(cmd, broker) },
	}
	broker.declare(cmd, "the broker never ran after the copy was taken")
	return cmd
}

func vouch(cmd *cobra.Command, broker stopped) error {
	if err := broker.confirmed(fmt.Sprintf("if %s ran after this copy was taken, acknowledged messages are lost", broker.Node)); err != nil {
		return err
	}
	if err := broker.Vouch(); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s counts as the newest state of %s now; start it with its usual settings\n", broker.DataPath, broker.Node)
	return nil
}
