package etcdserver

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// memberDir is where etcd keeps a member's files in its directory.
const memberDir = "member"

// makeMember makes the directory of a member that was added to a cluster and has
// heard nothing yet: an empty log with its identity in front, which is what etcd
// itself leaves when it ends right after it has joined. Left to itself etcd would
// take its identity from the first other member that answers, and that one may
// have slept since the old member at this address was removed: then the heartbeat
// of a leader that slept as long tells an empty log what it has committed, and
// etcd panics. The log appears as a whole or not at all.
func makeMember(dir string, cluster, id uint64) error {
	path := filepath.Join(dir, memberDir)
	if err := os.RemoveAll(path); err != nil { // of a start that came to no log
		return fmt.Errorf("etcdserver: make the member's directory: %w", err)
	}
	if err := os.MkdirAll(path, privateDir); err != nil {
		return fmt.Errorf("etcdserver: make the member's directory: %w", err)
	}
	identity, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: &id, ClusterID: &cluster})
	if err != nil {
		return fmt.Errorf("etcdserver: encode the member's identity: %w", err)
	}
	log, err := wal.Create(zap.NewNop(), logDir(dir), identity)
	if err != nil {
		return fmt.Errorf("etcdserver: make the member's log: %w", err)
	}
	return log.Close()
}

func logDir(dir string) string { return filepath.Join(dir, memberDir, "wal") }
