package coordinator_test

import (
	"context"
	"sync"
	"testing"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// members are those of a metadata store that the brokers embed: they note who
// told them of whose death.
type members struct {
	mu     sync.Mutex
	deaths map[link]bool
}

// member is the one beside a broker.
type member struct {
	*members
	of string
}

// Remove implements coordinator.Members.
func (m member) Remove(context.Context, ident.Node) error { return nil }

// Died implements coordinator.Members.
func (m member) Died(_ context.Context, n ident.Node) error {
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

// TestMetadataIsToldOfDeaths: of a broker that is gone, not of one that is cut off.
func TestMetadataIsToldOfDeaths(t *testing.T) {
	m := &members{deaths: map[link]bool{}}
	c := newClusterOf(t, cluster{size: 3, members: m})
	require.NoError(t, c.put("n1", "orders", "all know each other"))
	c.whole("orders")
	c.net.isolate("n3", "n1", "n2")
	c.kill("n1")
	c.eventually(func() bool { return m.heard("n2", "n1") }, "n2 tells nobody")
	require.False(t, m.heard("n2", "n3"), "it lives")
}
