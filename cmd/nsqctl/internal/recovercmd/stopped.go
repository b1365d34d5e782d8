package recovercmd

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// stopped is the stopped broker that a command changes, and the operator's confirmation.
type stopped struct{ dataPath, node, cluster, confirm string }

func newRecoverDataPath() *cobra.Command {
	return onStopped(&cobra.Command{
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
	}, "the broker never ran after the copy was taken", "if %s ran after this copy was taken, acknowledged messages are lost", func(cmd *cobra.Command, s stopped) error {
		if err := s.vouch(); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s counts as the newest state of %s now; start it with its usual settings\n", s.dataPath, s.node)
		return nil
	})
}

func newRecoverMetadata() *cobra.Command {
	return onStopped(&cobra.Command{
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
	}, "the others are lost permanently", "this removes all other members from the etcd of %s; entries that only they have are lost", func(cmd *cobra.Command, s stopped) error {
		topics, copied, err := s.recoverMetadata(cmd.Context(), raisedBy)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), `%s is the only member now; it has %s. A copy of its earlier state: %s
Start it with its usual settings, then the others with empty data paths.
`, s.node, cli.Count(topics, "topic"), copied)
		return nil
	})
}

// onStopped completes a command on a stopped broker: run follows the confirmation of a fact, without which loss is possible.
func onStopped(cmd *cobra.Command, fact, loss string, run func(*cobra.Command, stopped) error) *cobra.Command {
	var s stopped
	f := cmd.Flags()
	f.StringVar(&s.dataPath, "data-path", "", "data path of the stopped broker")
	f.StringVar(&s.node, "node-name", "", "node name of the stopped broker")
	f.StringVar(&s.cluster, "cluster-name", "lockstep", "cluster name of the broker")
	f.StringVar(&s.confirm, "confirm", "", "the node's name again, to confirm that "+fact)
	_, _ = cmd.MarkFlagRequired("data-path"), cmd.MarkFlagRequired("node-name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.confirm != s.node {
			return fmt.Errorf(loss+": repeat with --confirm %s", s.node, s.node)
		}
		return run(cmd, s)
	}
	return cmd
}

// open locks the data path until release is called, and reads the broker's node file. It fails while a broker
// runs there. The lock comes first: a broker that is just stopping still writes its node file.
func (s stopped) open() (node *nodefile.File, release func(), err error) {
	lock, err := nodefile.Lock(s.dataPath)
	switch {
	case errors.Is(err, nodefile.ErrInUse):
		return nil, nil, errors.New("the broker still runs on this data path: stop it")
	case err != nil:
		return nil, nil, fmt.Errorf("lock the data path: %w", err)
	}
	release = func() { _ = lock.Unlock() } // the end of the process releases it too
	if node, err = nodefile.Open(vfs.OS, filepath.ToSlash(s.dataPath), s.cluster, ident.Node(s.node)); err != nil {
		release()
		return nil, nil, err
	}
	return node, release, nil
}

// vouch marks a copied data path as the newest state of its broker.
func (s stopped) vouch() error {
	node, release, err := s.open()
	if err != nil {
		return err
	}
	defer release()
	if node.Record().Boot == 0 {
		return fmt.Errorf("%s has no node.json of a broker that has run", s.dataPath)
	}
	marks, err := nodefile.Mark(s.dataPath)
	if err != nil {
		return err
	}
	return node.Update(func(r *nodefile.Record) { r.Marks, r.Doubted = marks, false })
}
