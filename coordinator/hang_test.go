package coordinator_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/stretchr/testify/require"
)

// TestLeaderWhoseDiskHangsIsReplaced: syncs of its disk neither succeed nor fail. No
// put is committed without it, and it answers for itself, so nobody takes it for dead.
func TestLeaderWhoseDiskHangsIsReplaced(t *testing.T) {
	var hung atomic.Value
	hung.Store("nobody")
	back := make(chan struct{})
	returns := sync.OnceFunc(func() { hung.Store("nobody"); close(back) })
	c := newClusterOf(t, cluster{size: 3, hook: func(op vfs.Op) error {
		if op.Call == vfs.CallSync && strings.HasPrefix(op.Name, hung.Load().(string)+"/") {
			<-back
		}
		return nil
	}})
	t.Cleanup(returns) // or nothing here would end
	for _, topic := range []string{"orders", "idle"} {
		require.NoError(t, c.put("n1", topic, "m0"))
		c.whole(topic)
	}
	leader := c.leader("orders")
	other := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
	hung.Store(leader)
	began := time.Now()
	require.NoError(t, c.put(other, "orders", "m1"))
	t.Logf("put after %s", time.Since(began))
	require.NotEqual(t, leader, c.leader("orders"))
	returns()
	c.whole("orders")
	c.whole("idle")
	require.NoError(t, c.nodes[leader].Ready())
	require.NoError(t, c.put(leader, "orders", "m2"))
	require.Len(t, c.drain(leader, "orders", 3), 3)
}
