package recovercmd

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	// raisedBy is how many revisions recover metadata skips. The lost members may have committed changes that this
	// one does not have. Their revisions were used as incarnations, and must not be used again. A cluster with
	// 10,000 partitions uses that many in two changes of all leaders.
	//
	// etcdutl can raise the revision of a restored snapshot at once, by any number, in the database alone. That does
	// not work here: the log of this member still has its changes, and a member that joins replays them without the
	// jump. Transactions are in the log.
	raisedBy = 20_000
	// aloneTimeout bounds the run of the member without the others; raising the revision takes some seconds of it.
	aloneTimeout = 5 * time.Minute
	// raisers is the number of concurrent transactions: etcd syncs them together.
	raisers = 256
)

// recoverMetadata makes the broker's member of the embedded etcd the only member of a new cluster, and skips raise
// revisions. It returns the number of topics that the member has, and the path of a copy of its directory as it was.
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
	var failed atomic.Pointer[error]
	concurrency.Each(n, raisers, func(int) {
		if failed.Load() != nil {
			return
		}
		if _, _, err := store.Txn(ctx, nil, []metadata.Put{{Key: key, Value: []byte("{}")}}); err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	})
	if err := failed.Load(); err != nil {
		return fmt.Errorf("raise the revision: %w", *err)
	}
	return nil
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
