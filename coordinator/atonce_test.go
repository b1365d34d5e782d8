package coordinator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/stretchr/testify/require"
)

// interrupted is a cluster of three in which something happens right before n1's
// next transaction on a key that contains part.
func interrupted(t *testing.T, part string) (c *cluster, before *atomic.Pointer[func()]) {
	before = &atomic.Pointer[func()]{}
	return newClusterOf(t, cluster{size: 3, wrap: func(name string, s meta.Store) meta.Store {
		if name != "n1" {
			return s
		}
		return hookedMeta{Store: s, txn: func(_ context.Context, puts []meta.Put) {
			if strings.Contains(puts[0].Key, part) {
				if f := before.Swap(nil); f != nil {
					(*f)()
				}
			}
		}}
	}}), before
}

// TestReplicationAndMinimumAtOnce: one operator changes the replication factor
// while another changes the minimum: both get what they asked for.
func TestReplicationAndMinimumAtOnce(t *testing.T) {
	c, before := interrupted(t, "/topics/")
	c.do("n1", "topic.create", "orders", "", nil)
	other := func() { c.do("n2", "topic.replication", "orders", "", map[string]string{"replication_factor": "2"}) }
	before.Store(&other)
	c.do("n1", "topic.replication", "orders", "", map[string]string{"min_in_sync": "1"})
	v, _ := c.view("n1", "orders")
	require.Equal(t, 1, v.MinInSync)
	require.Equal(t, 2, v.ReplicationFactor, "what the other operator was told is done is undone")
}
