package metadata_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// TestExternalAuthorityIsRenewed: a client follows an etcd whose certificate and authority have
// changed, without a restart of its own.
func TestExternalAuthorityIsRenewed(t *testing.T) {
	t.Parallel()
	log, _ := logtest.NewNullLogger()
	ca, next := certs.New(t), certs.New(t)
	ca.Issue("n")
	next.Issue("n")
	o := etcd.Options{
		Name: "n", Dir: filepath.Join(t.TempDir(), "etcd"), ClientAddress: freeAddress(t), PeerAddress: freeAddress(t),
		TLS: etcd.TLS{Cert: ca.File("n.pem"), Key: ca.File("n.key"), CA: ca.File("ca.pem")}, Heartbeat: 100 * time.Millisecond, Election: time.Second, Log: log,
	}
	run := func() *etcd.Server {
		s, err := etcd.Start(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(s.Stop)
		require.NoError(t, s.Wait(wait.Context(t)))
		return s
	}
	s := run()
	i, err := peertls.Load(peertls.Files(o.TLS), nil, nil)
	require.NoError(t, err)
	store, err := metadata.DialEtcd(wait.Context(t), metadata.Config{Endpoints: s.Endpoints(), TLS: i.Config})
	require.NoError(t, err)
	defer store.Close()
	_, err = store.Get(wait.Context(t), "k")
	require.ErrorIs(t, err, metadata.ErrNotFound)

	s.Stop()
	for _, file := range []string{"n.key", "n.pem", "ca.pem"} {
		content, err := os.ReadFile(next.File(file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(ca.File(file), content, 0o600))
	}
	run()
	_, err = store.Get(wait.Context(t), "k")
	require.ErrorIs(t, err, metadata.ErrNotFound)
}
