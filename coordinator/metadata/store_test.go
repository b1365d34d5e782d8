package metadata_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMemoryConformance(t *testing.T) {
	t.Parallel()
	conformance(t, &memoryBackend{metadatatest.NewMemory()})
}

func TestEtcdConformance(t *testing.T) { t.Parallel(); conformance(t, newEtcdBackend(t)) }

type memoryBackend struct{ m *metadatatest.Memory }

func (b *memoryBackend) open(t testing.TB) metadata.Store {
	s := b.m.Session()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (b *memoryBackend) lapse(t *testing.T, s metadata.Store, lease int64) {
	require.NoError(t, s.Close())
	b.m.Expire(lease)
}

func (b *memoryBackend) compact(*testing.T) { b.m.Compact() }

func (b *memoryBackend) interrupt(t *testing.T, s metadata.Store) {
	m := s.(*metadatatest.Memory)
	m.Cut()
	_, _, err := s.Txn(context.Background(), nil, nil)
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	m.Heal()
}

type etcdBackend struct {
	options etcd.Options
	server  *etcd.Server
}

func newEtcdBackend(t testing.TB) *etcdBackend {
	log, _ := logtest.NewNullLogger()
	b := &etcdBackend{options: etcd.Options{
		Name: "n1", Dir: t.TempDir(), ClientAddress: freeAddress(t), PeerAddress: freeAddress(t),
		Heartbeat: 100 * time.Millisecond, Election: time.Second, Log: log,
	}}
	b.start(t)
	t.Cleanup(func() { b.server.Stop() })
	return b
}

// freeAddress finds a port that nobody listens on: etcd advertises its
// addresses, so it cannot choose one by itself. It is below those that the system
// gives to connections, which take the port of a member that is stopped for a moment.
func freeAddress(t testing.TB) string {
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+nextPort.Add(1)%22_000))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	require.FailNow(t, "no port is free")
	return ""
}

// nextPort gives no port twice: tests run alongside each other, and the port of a member that is
// stopped for a while must stay free.
var nextPort atomic.Uint32

func (b *etcdBackend) start(t testing.TB) {
	s, err := etcd.Start(t.Context(), b.options)
	require.NoError(t, err)
	require.NoError(t, s.Wait(wait.Context(t)))
	b.server = s
}

func (b *etcdBackend) open(t testing.TB) metadata.Store {
	s, err := metadata.DialEtcd(wait.Context(t), metadata.Config{Endpoints: b.server.Endpoints(), Namespace: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func (b *etcdBackend) lapse(t *testing.T, s metadata.Store, _ int64) { require.NoError(t, s.Close()) }

func (b *etcdBackend) compact(t *testing.T) {
	c, err := clientv3.New(clientv3.Config{Endpoints: b.server.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	defer c.Close()
	r, err := c.Get(wait.Context(t), "x")
	require.NoError(t, err)
	_, err = c.Compact(wait.Context(t), r.Header.Revision)
	require.NoError(t, err)
}

func (b *etcdBackend) interrupt(t *testing.T, _ metadata.Store) {
	b.server.Stop()
	b.start(t)
}

// TestUnknownOutcome stops etcd under a transaction: nothing but "unknown" is
// true of one that was on its way.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	b := newEtcdBackend(t)
	s := b.open(t)
	put(t, s, "/a", "1", 0)
	b.server.Stop()
	_, _, err := s.Txn(&begun{t: t}, nil, []metadata.Put{{Key: "/a", Value: []byte("2")}})
	require.ErrorIs(t, err, metadata.ErrUnknown)
}

// begun is a context that runs out after its first use: the transaction has begun then.
type begun struct {
	context.Context
	t *testing.T
}

func (b *begun) Err() error {
	if b.Context == nil {
		b.Context = wait.Expiring(b.t, 300*time.Millisecond)
		return nil
	}
	return b.Context.Err()
}

// TestRestoredBackupIsNoticed: etcd comes back in the state of an earlier copy of
// its directory.
func TestRestoredBackupIsNoticed(t *testing.T) {
	t.Parallel()
	b := newEtcdBackend(t)
	s := b.open(t)
	put(t, s, "/a", "1", 0)
	b.server.Stop()
	backup := t.TempDir()
	require.NoError(t, os.CopyFS(backup, os.DirFS(b.options.Dir)))
	b.start(t)
	last := put(t, s, "/a", "2", 0)
	for c := range s.Watch(t.Context(), "/") {
		if c.Revision >= last {
			break
		}
	}
	b.interrupt(t, s)
	_, err := s.Get(wait.Context(t), "/a")
	require.NoError(t, err, "a restart is none")
	b.server.Stop()
	b.options.Dir = backup
	b.start(t)
	_, err = s.Get(wait.Context(t), "/a")
	require.ErrorIs(t, err, metadata.ErrWentBack)
	_, err = b.open(t).Get(wait.Context(t), "/a")
	require.NoError(t, err, "who begins anew may use it")
}

// TestLeaseOutlivesAnOutage proves that an etcd that does not answer is not
// taken for one whose answer is that the lease is gone.
func TestLeaseOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	b := newEtcdBackend(t)
	s := b.open(t)
	id, lost, err := s.Lease(wait.Context(t), leaseTTL)
	require.NoError(t, err)
	put(t, s, "/live", "n1", id)
	b.server.Stop()
	select {
	case <-lost:
		require.Fail(t, "an outage was taken for the end of the lease")
	case <-wait.Expiring(t, (leaseTTL+1)*time.Second).Done():
	}
	b.start(t)
	e, err := s.Get(wait.Context(t), "/live")
	require.NoError(t, err)
	require.Equal(t, id, e.Lease)
}
