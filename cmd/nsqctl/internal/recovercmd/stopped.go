package recovercmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// stopped is the stopped broker that a command changes, and the operator's confirmation.
type stopped struct{ dataPath, node, cluster, confirm string }

func newRecoverDataPath() *cobra.Command {
	return onStopped(&cobra.Command{
		Use:   "data-path",
		Short: "vouch that a copied data path is the newest state of its broker",
		Long: `recover data-path runs on the host of a stopped broker whose data path was copied (to another disk, from
a backup) and which therefore waits for other brokers at its start. It marks the copy as complete: the broker then votes
with it.

Use it only if the broker never ran again after the copy was taken. If it did, acknowledged messages and metadata can be
lost. Without this command nothing is lost: the broker joins again as soon as the others run, and copies the missing
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
		Long: `recover metadata is for the loss of the majority of the brokers that embed etcd. It runs on the host of a
remaining broker, which must be stopped. The broker's member becomes the only one of a new cluster;
etcd.before-recovery-<time> is a copy of its directory. Afterwards start this broker with its usual settings, and the
others with empty data paths: they join it as new members.

Entries that had not reached this member are lost: created topics and channels, and changes of in-sync sets. If it was
behind when the others died, its replicas may count as in sync without having all messages. Choose the broker that ran
longest. The command raises the revision of the metadata by 20,000, so that no revision that the lost members gave out
is used again.`,
		Example: `  nsqctl recover metadata --data-path /var/lib/nsqd --node-name n3 --confirm n3`,
	}, "the others are lost permanently", "this removes all other members from the etcd of %s; entries that only they have are lost", func(cmd *cobra.Command, s stopped) error {
		topics, copied, err := s.recoverMetadata(cmd.Context(), raisedBy)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), `%s is the only member now; it has %s. A copy of its earlier state: %s
Start it with its usual settings, then the others with empty data paths.
`, s.node, api.Count(topics, "topic"), copied)
		return nil
	})
}

// onStopped completes a command on a stopped broker. run is called only after the operator has confirmed a fact with
// --confirm, because data may be lost if the fact is wrong.
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

const (
	// raisedBy is how many revisions recover metadata skips. The lost members may have committed changes that this one
	// does not have. Their revisions were used as incarnation numbers, and must not be used again. A cluster with
	// 10,000 partitions uses that many in two changes of all leaders.
	//
	// etcdutl can raise the revision of a restored snapshot at once, by any number, in the database alone. That does
	// not work here: the log of this member still has its changes, and a member that joins replays them without the
	// jump. Transactions are in the log.
	raisedBy = 20_000
	// aloneTimeout bounds the run of the member without the others; raising the revision takes some seconds of it.
	aloneTimeout = 5 * time.Minute
	raisers      = 256 // the number of concurrent transactions: etcd syncs them together
)

// recoverMetadata makes the broker's member of the embedded etcd the only member of a new cluster, and skips raise
// revisions. It returns the number of topics that the member has, and the path of a copy of its original directory.
func (s stopped) recoverMetadata(ctx context.Context, raise int) (topics int, copied string, err error) {
	node, release, err := s.open()
	if err != nil {
		return 0, "", err
	}
	defer release()
	dir := filepath.Join(s.dataPath, "etcd")
	if !etcd.Exists(dir) {
		return 0, "", fmt.Errorf("%s has no member of an embedded etcd", dir)
	}
	copied = fmt.Sprintf("%s.before-recovery-%d", dir, time.Now().Unix())
	if err := etcd.Copy(copied, dir); err != nil {
		return 0, "", fmt.Errorf("copy the directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, aloneTimeout)
	defer cancel()
	topics, err = s.forceNewCluster(ctx, dir, raise)
	if err != nil {
		return 0, "", err
	}
	// The other members belong to the old cluster: they must not form a majority of it again.
	err = node.Update(func(rec *nodefile.Record) {
		rec.Foundation = &lifecycle.Foundation{ID: rand.Text(), Founders: lifecycle.Members{s.node: ""}}
	})
	return topics, copied, err
}

// forceNewCluster starts the member without the others, writes the record, and stops it.
func (s stopped) forceNewCluster(ctx context.Context, dir string, raise int) (topics int, err error) {
	log := logrus.New()
	log.SetLevel(logrus.ErrorLevel)
	o := etcd.Options{Name: s.node, Dir: dir, Log: log}
	if o.ClientAddress, err = freeLoopback(); err != nil {
		return 0, err
	}
	if o.PeerAddress, err = freeLoopback(); err != nil {
		return 0, err
	}
	member, err := etcd.ForceNewCluster(ctx, o)
	if err != nil {
		return 0, err
	}
	defer member.Stop()
	store, err := metadata.DialEtcd(ctx, metadata.Config{Endpoints: member.Endpoints()})
	if err != nil {
		return 0, err
	}
	defer store.Close()
	keys, now := metadata.Keys{Cluster: s.cluster}, time.Now().UTC()
	known, revision, err := store.List(ctx, keys.Topics())
	if err != nil {
		return 0, err
	}
	record := struct {
		V        int       `json:"v"`
		At       time.Time `json:"at"`
		Node     string    `json:"node"`
		Revision int64     `json:"revision"` // of the recovered metadata
	}{metadata.Version, now, s.node, revision}
	name := now.Format("20060102T150405.000") + "-recover-metadata"
	_, _, err = store.Txn(ctx, nil, []metadata.Put{{Key: keys.Audit(name), Value: metadata.Encode(record)}})
	if err == nil {
		err = raiseRevision(ctx, store, keys.Audit(name+"-raised"), raise)
	}
	return len(known), err
}

// raiseRevision writes one key n times, which raises the revision by n. The key remains, as a part of the record.
func raiseRevision(ctx context.Context, store metadata.Store, key string, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	concurrency.Each(n, raisers, func(int) {
		if ctx.Err() != nil {
			return
		}
		if _, _, err := store.Txn(ctx, nil, []metadata.Put{{Key: key, Value: []byte("{}")}}); err != nil {
			cancel(fmt.Errorf("raise the revision: %w", err))
		}
	})
	return context.Cause(ctx)
}

// freeLoopback returns an address on which no process listens: etcd cannot choose one.
func freeLoopback() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
