package recovercmd

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newRecoverMetadata() *cobra.Command {
	var broker stopped
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
		RunE:    func(cmd *cobra.Command, _ []string) error { return continueWith(cmd, broker) },
	}
	broker.declare(cmd, "the others are lost permanently")
	return cmd
}

func continueWith(cmd *cobra.Command, broker stopped) error {
	if err := broker.confirmed(fmt.Sprintf("this removes all other members from the etcd of %s; entries that only they have are lost", broker.Node)); err != nil {
		return err
	}
	topics, copied, err := broker.Metadata(cmd.Context())
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), `%s is the only member now; it knows %d topics. A copy of what it was: %s
Start it with its usual settings, then the others with empty data paths.
`, broker.Node, topics, copied)
	return nil
}
