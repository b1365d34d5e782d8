package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/datapath"
	"github.com/lockstepmq/lockstep/internal/etcdserver"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// metadataRecovery makes the embedded etcd's member of one broker a cluster of
// its own.
type metadataRecovery struct {
	dataPath, node, cluster, confirm string
}

func newRecoverMetadata() *cobra.Command {
	var r metadataRecovery
	cmd := &cobra.Command{
		Use:   "metadata",
		Short: "go on with one member of the embedded etcd after the majority is lost",
		Long: `recover metadata is run on the host of a broker that is left, while it is stopped,
when the majority of the brokers that embed etcd are gone for ever. Its member
becomes a cluster of its own; a copy of its directory is kept as
etcd.before-recovery-<time>. Then start this broker with its usual settings, and
the others with empty data paths: they join it anew.

What only the lost members knew is lost: topics and channels created, and changes
of in-sync sets, that had not reached this member. If it was behind when the
others died, it may take itself for in sync with what it never got. Choose the
broker that ran to the last.`,
		Example: `  nsqctl recover metadata --data-path /var/lib/nsqd --node-name n3 --confirm n3`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&r.dataPath, "data-path", "", "of the stopped broker")
	f.StringVar(&r.node, "node-name", "", "of the stopped broker")
	f.StringVar(&r.cluster, "cluster-name", "lockstep", "as the broker's")
	f.StringVar(&r.confirm, "confirm", "", "the node's name again, to say that the others are gone for ever")
	for _, name := range []string{"data-path", "node-name"} {
		_ = cmd.MarkFlagRequired(name) // declared above
	}
	return cmd
}

func (r metadataRecovery) run(cmd *cobra.Command) error {
	if r.confirm != r.node {
		return fmt.Errorf("this makes %s forget all other members of etcd, and what only they knew: say --confirm %s", r.node, r.node)
	}
	if _, err := coordinator.Boots(vfs.OS{}, r.dataPath, r.cluster, ident.Node(r.node)); err != nil {
		return err
	}
	lock, err := datapath.Lock(r.dataPath)
	switch {
	case errors.Is(err, datapath.ErrInUse):
		return errors.New("the broker still runs on this data path: stop it")
	case err != nil:
		return fmt.Errorf("lock the data path: %w", err)
	}
	defer func() { _ = lock.Unlock() }() // it goes with the process
	dir := filepath.Join(r.dataPath, "etcd")
	if !etcdserver.Exists(dir) {
		return fmt.Errorf("%s holds no member of an embedded etcd", dir)
	}
	aside := fmt.Sprintf("%s.before-recovery-%d", dir, time.Now().Unix())
	if err := os.CopyFS(aside, os.DirFS(dir)); err != nil {
		return fmt.Errorf("keep a copy: %w", err)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), readyTimeout)
	defer cancel()
	left, err := r.goAlone(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), `%s is the only member now; it knows %d topics. A copy of what it was: %s
Start it with its usual settings, then the others with empty data paths.
`, r.node, left, aside)
	return nil
}

// goAlone starts the member without the others, writes the record, and stops it.
func (r metadataRecovery) goAlone(ctx context.Context, dir string) (topics int, err error) {
	log := logrus.New()
	log.SetLevel(logrus.ErrorLevel)
	o := etcdserver.Options{Name: r.node, Dir: dir, Log: log}
	if o.ClientAddress, err = freeLoopback(); err != nil {
		return 0, err
	}
	if o.PeerAddress, err = freeLoopback(); err != nil {
		return 0, err
	}
	s, err := etcdserver.StartAlone(ctx, o)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	store, err := meta.DialEtcd(ctx, meta.Config{Endpoints: s.Endpoints()})
	if err != nil {
		return 0, err
	}
	defer store.Close()
	keys, now := meta.Keys{Cluster: r.cluster}, time.Now().UTC()
	known, revision, err := store.List(ctx, keys.Topics())
	if err != nil {
		return 0, err
	}
	record := struct {
		V        int       `json:"v"`
		At       time.Time `json:"at"`
		Node     string    `json:"node"`
		Revision int64     `json:"revision"` // of the metadata that it goes on with
	}{meta.Version, now, r.node, revision}
	key := keys.Audit(now.Format("20060102T150405.000") + "-recover-metadata")
	_, _, err = store.Txn(ctx, nil, []meta.Put{{Key: key, Value: meta.Encode(record)}})
	return len(known), err
}

// freeLoopback finds an address that nobody uses: etcd cannot choose one.
func freeLoopback() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
