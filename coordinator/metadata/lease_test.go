package metadata_test

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestRenewalsLogInOnce: an etcd that asks for a password hashes it at each log-in,
// which is slow on purpose. A lease that is renewed for long needs one, also where
// etcd was away in between.
func TestRenewalsLogInOnce(t *testing.T) {
	t.Parallel()
	b := newEtcdBackend(t)
	admin, err := clientv3.New(clientv3.Config{Endpoints: b.server.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.UserAdd(wait.Context(t), "root", "secret")
	require.NoError(t, err)
	_, err = admin.UserGrantRole(wait.Context(t), "root", "root")
	require.NoError(t, err)
	_, err = admin.AuthEnable(wait.Context(t))
	require.NoError(t, err)
	s, err := metadata.DialEtcd(wait.Context(t), metadata.Config{Endpoints: b.server.Endpoints(), Username: "root", Password: "secret"})
	require.NoError(t, err)
	defer s.Close()

	id, lost, err := s.Lease(wait.Context(t), leaseTTL)
	require.NoError(t, err)
	leases, err := clientv3.New(clientv3.Config{Endpoints: b.server.Endpoints(), Username: "root", Password: "secret", Logger: zap.NewNop()})
	require.NoError(t, err)
	defer leases.Close()
	logins := b.logins(t)
	renewed(t, leases, id)
	require.LessOrEqual(t, b.logins(t)-logins, 1)

	b.interrupt(t, s)
	renewed(t, leases, id)
	select {
	case <-lost:
		require.Fail(t, "the lease was not renewed after all")
	default:
	}
}

// renewed waits until a lease was renewed twice.
func renewed(t *testing.T, c *clientv3.Client, id int64) {
	t.Helper()
	times, before := 0, int64(leaseTTL)
	wait.Until(t, func() bool {
		r, err := c.TimeToLive(wait.Context(t), clientv3.LeaseID(id))
		if err != nil {
			return false
		}
		if r.TTL > before {
			times++
		}
		before = r.TTL
		return times == 2
	}, "the lease is renewed")
}

// logins reads how often a client has logged in to an etcd of this process.
func (b *etcdBackend) logins(t *testing.T) int {
	t.Helper()
	r, err := http.Get(b.server.Endpoints()[0] + "/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	found := regexp.MustCompile(`grpc_server_started_total\{[^}]*grpc_method="Authenticate"[^}]*\} (\d+)`).FindSubmatch(text)
	require.NotEmpty(t, found)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}
