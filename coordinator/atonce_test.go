package coordinator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/stretchr/testify/require"
)

// interruptedMeta does something right before, or right after, a transaction on a key that contains part; each once.
type interruptedMeta struct {
	metadata.Store
	part          string
	before, after atomic.Pointer[func()]
}

func (m *interruptedMeta) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	if !strings.Contains(puts[0].Key, m.part) {
		return m.Store.Txn(ctx, cmp, puts)
	}
	once(&m.before)
	defer once(&m.after)
	return m.Store.Txn(ctx, cmp, puts)
}

func once(f *atomic.Pointer[func()]) {
	if f := f.Swap(nil); f != nil {
		(*f)()
	}
}

// interrupted is a cluster of three in which n1 can be interrupted.
func interrupted(t *testing.T, part string) (*cluster, *interruptedMeta) {
	m := &interruptedMeta{part: part}
	return newClusterOf(t, cluster{size: 3, wrap: func(name string, s metadata.Store) metadata.Store {
		if name != "n1" {
			return s
		}
		m.Store = s
		return m
	}}), m
}

// TestReplicationAndMinimumAtOnce: one operator changes the replication factor
// while another changes the minimum: both get what they asked for.
func TestReplicationAndMinimumAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n1 := interrupted(t, "/topics/")
		c.do("n1", "topic.create", "orders", "", nil)
		other := func() { c.do("n2", "topic.replication", "orders", "", map[string]string{"replication_factor": "2"}) }
		n1.before.Store(&other)
		c.do("n1", "topic.replication", "orders", "", map[string]string{"min_in_sync": "1"})
		v, _ := c.view("n1", "orders")
		require.Equal(t, 1, v.MinInSync)
		require.Equal(t, 2, v.ReplicationFactor, "what the other operator was told is done is undone")
	})
}

// TestPoliciesAtOnce: a second operator changes the policy before the first one's broker has received the first change.
// Both operations succeed, and none waits for a state that is replaced already.
func TestPoliciesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n1 := interrupted(t, "/channels/")
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		set := func(on, backoff string) {
			c.do(on, "channel.policy", "orders", "billing", map[string]string{"retry_backoff": backoff})
		}
		other := func() {
			set("n2", "2s")
			c.eventually(func() bool {
				p, err := c.nodes["n1"].Policy("orders", "billing")
				return err == nil && p.BackoffMS == 2000
			}, "not heard of")
		}
		n1.after.Store(&other)
		set("n1", "1s")
		p, err := c.nodes["n1"].Policy("orders", "billing")
		require.NoError(t, err)
		require.EqualValues(t, 2000, p.BackoffMS)
	})
}

// TestPauseAndUnpauseAtOnce: an unpause is written after a pause, and the leaders apply
// it first. The last write holds, at the leaders too.
func TestPauseAndUnpauseAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n1 := interrupted(t, "/channels/")
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		other := func() { c.do("n2", "channel.unpause", "orders", "billing", nil) }
		n1.after.Store(&other)
		c.do("n1", "channel.pause", "orders", "billing", nil)
		s, found := c.stats("orders", "billing")
		require.True(t, found)
		require.False(t, s.Paused)
	})
}

// TestOrderAndUnorderAtOnce: the same for a channel that becomes ordered and unordered again.
func TestOrderAndUnorderAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n1 := interrupted(t, "/channels/")
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "drain", nil)
		order := func(on, how string) { c.do(on, "channel.order", "orders", "drain", map[string]string{"order": how}) }
		other := func() { order("n2", "false") }
		n1.after.Store(&other)
		order("n1", "true")
		for _, m := range []string{"m0", "m1"} {
			require.NoError(t, c.put("n1", "orders", m))
		}
		sub := c.subscribe("n1", "orders", "drain", 2)
		defer sub.sub.Close(true)
		require.Len(t, sub.take(2), 2, "more than one at a time")
	})
}

// TestTopicPauseAndUnpauseAtOnce: the same for a topic.
func TestTopicPauseAndUnpauseAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n1 := interrupted(t, "/topics/")
		c.do("n1", "topic.create", "orders", "", nil)
		other := func() { c.do("n2", "topic.unpause", "orders", "", nil) }
		n1.after.Store(&other)
		c.do("n1", "topic.pause", "orders", "", nil)
		require.NoError(t, c.put("n1", "orders", "m0"))
		require.Len(t, c.drain("n3", "orders", 1), 1)
	})
}
