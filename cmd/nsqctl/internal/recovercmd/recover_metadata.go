package recovercmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/recovery"
)

// metadataRecovery is the command's broker, and the operator's confirmation.
type metadataRecovery struct {
	recovery.Broker
	confirm string
}

func newRecoverMetadata() *cobra.Command {
	var r metadataRecovery
	cmd := &cobra.Command{
		Use:   "metadata",
		Short: "continue with one member of the embedded etcd after the loss of the majority",
		Long: `recover metadata is for the loss of the majority of the brokers that embed etcd.
It runs on the host of a remaining broker, which must be stopped. The broker's
member becomes the only one of a new cluster; etcd.before-recovery-<time> is a
copy of its directory. Afterwards start this broker with its usual settings, and
the others with empty data paths: they join it as new members.

Entries that had not reached this member are lost: created topics and channels,
and changes of in-sync sets. If it was behind when the others died, its replicas
may count as in sync without having all messages. Choose the broker that ran
longest. The command raises the revision of the metadata by 20,000, so that no
revision that the lost members gave out is used again.`,
		Example: `  nsqctl recover metadata --data-path /var/lib/nsqd --node-name n3 --confirm n3`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&r.DataPath, "data-path", "", "data path of the stopped broker")
	f.StringVar(&r.Node, "node-name", "", "node name of the stopped broker")
	f.StringVar(&r.Cluster, "cluster-name", "lockstep", "cluster name of the broker")
	f.StringVar(&r.confirm, "confirm", "", "the node's name again, to confirm that the others are lost for good")
	for _, name := range []string{"data-path", "node-name"} {
		_ = cmd.MarkFlagRequired(name) // the flags are declared above
	}
	return cmd
}

func (r metadataRecovery) run(cmd *cobra.Command) error {
	if r.confirm != r.Node {
		return fmt.Errorf("this removes all other members from the etcd of %s; entries that only they have are lost: repeat with --confirm %s", r.Node, r.Node)
	}
	topics, copied, err := r.Metadata(cmd.Context())
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), `%s is the only member now; it knows %d topics. A copy of what it was: %s
Start it with its usual settings, then the others with empty data paths.
`, r.Node, topics, copied)
	return nil
}
