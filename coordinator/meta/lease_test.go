package meta_test

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/coordinator/meta"
)

// TestRenewalsLogInOnce: an etcd that asks for a password hashes it at each log-in,
// which is slow on purpose. A lease that is renewed for long needs one, also where
// etcd was away in between.
func TestRenewalsLogInOnce(t *testing.T) {
	b := newEtcdBackend(t)
	admin, err := clientv3.New(clientv3.Config{Endpoints: b.server.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.UserAdd(withDeadline(t), "root", "secret")
	require.NoError(t, err)
	_, err = admin.UserGrantRole(withDeadline(t), "root", "root")
	require.NoError(t, err)
	_, err = admin.AuthEnable(withDeadline(t))
	require.NoError(t, err)
	s, err := meta.DialEtcd(withDeadline(t), meta.Config{Endpoints: b.server.Endpoints(), Username: "root", Password: "secret"})
	require.NoError(t, err)
	defer s.Close()

	_, lost, err := s.Lease(withDeadline(t), 1)
	require.NoError(t, err)
	begun := b.calls(t, "msg_received", "LeaseKeepAlive")
	logins := b.calls(t, "started", "Authenticate")
	b.renewed(t, begun+6)
	require.LessOrEqual(t, b.calls(t, "started", "Authenticate")-logins, 1)

	b.interrupt(t, s)
	b.renewed(t, b.calls(t, "msg_received", "LeaseKeepAlive")+6)
	select {
	case <-lost:
		require.Fail(t, "the lease was not renewed after all")
	default:
	}
}

func (b *etcdBackend) renewed(t *testing.T, times int) {
	t.Helper()
	require.Eventually(t, func() bool { return b.calls(t, "msg_received", "LeaseKeepAlive") >= times }, deadline, 20*time.Millisecond)
}

// calls reads how often a method of etcd was called, or got a message.
func (b *etcdBackend) calls(t *testing.T, counter, method string) int {
	t.Helper()
	r, err := http.Get(b.server.Endpoints()[0] + "/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	found := regexp.MustCompile(`grpc_server_` + counter + `_total\{[^}]*grpc_method="` + method + `"[^}]*\} (\d+)`).FindSubmatch(text)
	require.NotEmpty(t, found, "%s of %s is not counted", counter, method)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}
