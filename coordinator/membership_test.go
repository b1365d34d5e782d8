package coordinator_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// members are those of a metadata store that the brokers embed. They note each
// notification: the notifying broker and the dead one.
type members struct {
	mu     sync.Mutex
	deaths map[link]bool
}

// member is the metadata member of one broker.
type member struct {
	*members
	of string
}

// Remove implements metadata.Members.
func (m member) Remove(context.Context, ident.Node) error { return nil }

// NotifyDeath implements metadata.Members.
func (m member) NotifyDeath(_ context.Context, n ident.Node) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deaths[link{m.of, string(n)}] = true
	return nil
}

func (m *members) heard(of, death string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deaths[link{of, death}]
}

// TestMetadataIsNotifiedOfDeaths: the metadata's members are notified of a broker that is gone,
// not of one that is partitioned.
func TestMetadataIsNotifiedOfDeaths(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &members{deaths: map[link]bool{}}
		c := newClusterOf(t, cluster{size: 3, members: m})
		require.NoError(t, c.put("n1", "orders", "all know each other"))
		c.whole("orders")
		c.net.isolate("n3", "n1", "n2")
		c.kill("n1")
		c.eventually(func() bool { return m.heard("n2", "n1") }, "n2 tells nobody")
		require.False(t, m.heard("n2", "n3"), "it lives")
	})
}

// lostRevocations drops the requests that revoke a lease until lost is closed; a request that is in progress then
// fails.
type lostRevocations struct {
	metadata.Store
	asked chan<- int64 // the lease of each request; capacity for all
	lost  <-chan struct{}
}

func (l lostRevocations) Revoke(ctx context.Context, lease int64) error {
	l.asked <- lease
	select {
	case <-l.lost:
		return l.Store.Revoke(ctx, lease)
	default:
	}
	select {
	case <-l.lost:
	case <-ctx.Done():
	}
	return metadata.ErrUnavailable
}

// TestDeathEndsNoLaterRegistration: the other brokers revoke the registration of a process that died, and their
// requests are lost. Before they repeat them the broker has started again. The registration of the new process stays.
func TestDeathEndsNoLaterRegistration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, lost := make(chan int64, 100), make(chan struct{})
		c := newClusterOf(t, cluster{size: 3, wrap: func(name string, s metadata.Store) metadata.Store {
			if name == "n3" {
				return s
			}
			return lostRevocations{s, asked, lost}
		}})
		require.NoError(t, c.put("n1", "orders", "all know each other"))
		c.whole("orders")
		died, _ := c.registration("n3")
		c.kill("n3")
		require.Equal(t, died.Lease, <-asked)
		c.restart("n3")
		back, entry := c.registration("n3")
		require.NotEqual(t, died.Lease, back.Lease)
		synctest.Wait() // the watches of n1 and n2 have it
		close(lost)
		time.Sleep(5 * time.Second) // longer than the dead process's lease would have lived
		now, err := c.meta.Get(t.Context(), entry.Key)
		require.NoError(t, err, "a death ended the registration of the next process")
		require.Equal(t, entry.Create, now.Create, "a death ended the registration of the next process")
	})
}
