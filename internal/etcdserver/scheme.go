package etcdserver

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// followTLS lets the members' addresses in the directory begin with what all members
// speak by the options: TLS between them may have been turned on or off since they
// were written, which is a change that only a majority can make, and none comes about
// while they call each other in vain.
func (o Options) followTLS() error {
	path := filepath.Join(o.Dir, memberDir, "snap", "db")
	if _, err := os.Stat(path); os.IsNotExist(err) { // a new member
		return nil
	}
	log := zapLogger(o.Log)
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
			o.Log.Infof("the member of the embedded etcd %s is called at %v from now on", m.Name, m.PeerURLs)
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
