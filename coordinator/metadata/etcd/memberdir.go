package etcd

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// memberDir is the subdirectory with a member's files.
const memberDir = "member"

// makeMember creates the directory of a member that was added to a cluster and has not run yet: an empty log with its
// identity, as etcd itself leaves it if it ends right after joining. The log appears as a whole or not at all.
//
// It is not safe to leave this to etcd. etcd takes the identity from the first member that answers, and that member may have
// been stopped since the old member at this address was removed. A leader that was stopped as long then sends its commit index
// to an empty log, and etcd panics.
func makeMember(dir string, cluster, id uint64) error {
	path := filepath.Join(dir, memberDir)
	err := os.RemoveAll(path) // left by a start that made no log
	if err == nil {
		err = os.MkdirAll(path, privateDir)
	}
	if err != nil {
		return fmt.Errorf("etcd: create the member's directory: %w", err)
	}
	identity, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: &id, ClusterID: &cluster})
	if err != nil {
		return fmt.Errorf("etcd: encode the member's identity: %w", err)
	}
	log, err := wal.Create(zap.NewNop(), logDir(dir), identity)
	if err != nil {
		return fmt.Errorf("etcd: create the member's log: %w", err)
	}
	return log.Close()
}

func logDir(dir string) string { return filepath.Join(dir, memberDir, "wal") }

func databasePath(dir string) string { return filepath.Join(dir, memberDir, "snap", "db") }

// Copy copies the directory of a member to aside, which must not exist. The member's broker must not run. It omits the socket
// that a killed broker leaves.
func Copy(aside, dir string) error { return os.CopyFS(aside, withoutSockets{os.DirFS(dir)}) }

// withoutSockets is a file tree without its sockets, devices and links.
type withoutSockets struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (w withoutSockets) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(w.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && !e.Type().IsRegular() }), err
}

// followTLS changes the scheme of the members' stored addresses to that of the options: TLS may have been switched on or off
// since they were written. Only a majority could change them, and none can form while the members use the wrong scheme.
func (o Options) followTLS(log *zap.Logger) error {
	path := databasePath(o.Dir)
	if _, err := os.Stat(path); os.IsNotExist(err) { // a new member
		return nil
	}
	be := backend.NewDefaultBackend(log, path, backend.WithMmapSize(quotaBytes))
	defer be.Close()
	stored := schema.NewMembershipBackend(log, be)
	stored.MustCreateBackendBuckets()
	members, _ := stored.MustReadMembersFromBackend()
	for _, m := range members {
		changed := false
		for i, address := range m.PeerURLs {
			u, err := url.Parse(address)
			if err != nil {
				return fmt.Errorf("etcd: address of member %s: %w", m.Name, err)
			}
			if u.Scheme != o.TLS.scheme() {
				u.Scheme, changed = o.TLS.scheme(), true
				m.PeerURLs[i] = u.String()
			}
		}
		if changed {
			o.Log.Infof("the member of the embedded etcd %s is now reached at %v", m.Name, m.PeerURLs)
			stored.MustSaveMemberToBackend(m)
		}
	}
	return nil
}

func (t TLS) scheme() string {
	if t == (TLS{}) {
		return "http"
	}
	return "https"
}
