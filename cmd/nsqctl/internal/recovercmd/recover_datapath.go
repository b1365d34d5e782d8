package recovercmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/recovery"
)

// vouching is the command's broker, and the operator's confirmation.
type vouching struct {
	recovery.Broker
	confirm string
}

func newRecoverDataPath() *cobra.Command {
	var v vouching
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
		RunE:    func(cmd *cobra.Command, _ []string) error { return v.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&v.DataPath, "data-path", "", "data path of the stopped broker")
	f.StringVar(&v.Node, "node-name", "", "node name of the stopped broker")
	f.StringVar(&v.Cluster, "cluster-name", "lockstep", "cluster name of the broker")
	f.StringVar(&v.confirm, "confirm", "", "the node's name again, to confirm that the broker never ran after the copy was taken")
	for _, name := range []string{"data-path", "node-name"} {
		_ = cmd.MarkFlagRequired(name) // the flags are declared above
	}
	return cmd
}

func (v vouching) run(cmd *cobra.Command) error {
	if v.confirm != v.Node {
		return fmt.Errorf("if %s ran after this copy was taken, acknowledged messages are lost: repeat with --confirm %s", v.Node, v.Node)
	}
	if err := v.Vouch(); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s counts as the newest state of %s now; start it with its usual settings\n", v.DataPath, v.Node)
	return nil
}
