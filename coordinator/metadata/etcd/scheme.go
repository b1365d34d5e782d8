package etcd

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
)

// followTLS changes the scheme of the members' stored addresses to that of the options: TLS may have been switched on or off
// since they were written. Only a majority could change them, and none can form while the members use the wrong scheme.
func (o Options) followTLS(log *zap.Logger) error {
	path := filepath.Join(o.Dir, memberDir, "snap", "db")
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
				return fmt.Errorf("etcdserver: address of member %s: %w", m.Name, err)
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
