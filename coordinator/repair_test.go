package coordinator_test

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// numbered is message i of a log of some segments.
func numbered(i int) string { return fmt.Sprintf("m-%03d-%s", i, strings.Repeat("x", 1000)) }

// publishNumbered makes a topic with a channel and n messages, and stops all
// brokers: their messages are in segments then.
func (c *cluster) publishNumbered(n int) {
	c.t.Helper()
	c.do("n1", "topic.create", "orders", "", nil)
	c.do("n1", "channel.create", "orders", "drain", nil)
	for i := range n {
		require.NoError(c.t, c.put("n1", "orders", numbered(i)))
	}
	c.whole("orders")
	for name := range c.disks {
		c.kill(name)
	}
}

// decay flips a bit of a stored message on a broker's disk.
func (c *cluster) decay(name string, i int) {
	c.t.Helper()
	disk := c.disks[name]
	topics, err := disk.List("/data/topics")
	require.NoError(c.t, err)
	dir := path.Join("/data/topics", topics[0], "0")
	files, err := disk.List(dir)
	require.NoError(c.t, err)
	for _, file := range files {
		file = path.Join(dir, file)
		f, err := disk.Open(file)
		require.NoError(c.t, err)
		size, err := f.Size()
		require.NoError(c.t, err)
		content := make([]byte, size)
		_, err = f.ReadAt(content, 0)
		require.NoError(c.t, err)
		if at := bytes.Index(content, []byte(numbered(i))); at >= 0 && path.Ext(file) == ".seg" {
			require.NoError(c.t, disk.Flip(file, int64(at)+10, 2))
			return
		}
	}
	require.FailNow(c.t, "no segment holds the message")
}

// TestDamageIsRepairedFromAnotherReplica: each replica has lost another message. The leader
// serves all of them, and in the end all replicas are whole.
func TestDamageIsRepairedFromAnotherReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, segmentBytes: smallSegment})
		const n = 200
		c.publishNumbered(n)
		for i, name := range []string{"n1", "n2", "n3"} {
			c.decay(name, 30+40*i)
			c.decay(name, 31+40*i)
		}
		for name := range c.disks {
			c.restart(name)
		}
		c.eventually(func() bool { // a leadership that goes back repeats deliveries
			v, ok := c.view("n1", "orders")
			return ok && v.Partitions[0].Leader == v.Partitions[0].Replicas[0]
		}, "another than the preferred broker leads")
		got := c.drain("n1", "orders", n)
		for i := range n {
			require.Equal(t, 1, got[numbered(i)], "message %d", i)
		}
		c.whole("orders") // reads all of every replica
		for name := range c.nodes {
			v, ok := c.view(name, "orders")
			require.True(t, ok)
			require.Empty(t, v.Partitions[0].Damaged)
		}
	})
}

// TestDamageOfTheSourceOfACatchUp: a broker that was away catches up although the leader's
// copy of the missing messages is damaged, because a third broker has a whole copy.
func TestDamageOfTheSourceOfACatchUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, segmentBytes: smallSegment})
		const n = 100
		c.publishNumbered(n)
		c.decay("n1", 50)
		c.decay("n2", 60)
		c.wipe("n3")
		for name := range c.disks {
			c.restart(name)
		}
		c.whole("orders")
	})
}

// TestDamageOnAllReplicas: no replica has a whole copy. The damage is reported with its
// sequences, and not served. A channel that is moved past it gets the later messages.
func TestDamageOnAllReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, segmentBytes: smallSegment})
		const n, lost = 100, 40
		c.publishNumbered(n)
		for name := range c.disks {
			c.decay(name, lost)
			c.restart(name)
		}
		before := c.drain("n2", "orders", lost)
		for i := range lost {
			require.Equal(t, 1, before[numbered(i)], "message %d", i)
		}
		leader := c.leader("orders")
		var d api.DamageView
		c.eventually(func() bool {
			v, _ := c.view("n3", "orders")
			for _, x := range v.Partitions[0].Damaged {
				if string(x.Node) == leader {
					d = x
					return true
				}
			}
			return false
		}, "the damage is not told")
		require.Equal(t, ident.Sequence(lost), d.FirstSequence)
		require.Equal(t, ident.Sequence(lost+1), d.EndSequence)
		_, err := c.nodes[leader].Digest(api.DigestRequest{Topic: "orders"})
		require.ErrorContains(t, err, "damaged")
		c.do("n1", "channel.seek", "orders", "drain", map[string]string{"to": fmt.Sprint(d.EndSequence)})
		after := c.drain("n2", "orders", n-lost-1)
		for i := lost + 1; i < n; i++ {
			require.Equal(t, 1, after[numbered(i)], "message %d", i)
		}
	})
}
