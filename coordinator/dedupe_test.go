package coordinator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// publishID publishes a message with an id as its body, and waits for the answer. A producer that gets
// none tries again, at whatever broker.
func (c *cluster) publishID(on, topic, id string) edge.PutResult {
	c.t.Helper()
	p := c.nodes[on].Publisher()
	require.NoError(c.t, p.Admit(c.t.Context(), topic, len(id)))
	d := queue.NewDraft(len(id))
	require.NoError(c.t, d.AddMessage(queue.Message{Body: []byte(id), Identity: queue.IdentityOf([]byte(id))}))
	a := make(answers, 1)
	p.Publish(topic, nil, d.Draft(ident.RequestID{}), a)
	return <-a
}

// again publishes a message that is stored, at every broker, and requires the first answer.
func (c *cluster) again(topic, id string, first edge.PutResult, what string) {
	c.t.Helper()
	for on := range c.nodes {
		r := c.publishID(on, topic, id)
		require.NoError(c.t, r.Err, what)
		require.True(c.t, r.Duplicate, "%s: %s is stored twice", what, id)
		require.Equal(c.t, first.ID, r.ID, what)
		require.Equal(c.t, first.Sequence, r.Sequence, what)
	}
}

func newDedupeCluster(t *testing.T, size int) *cluster {
	c := newClusterOf(t, cluster{size: size, segmentBytes: smallSegment, level: meta.LevelDedupe})
	c.eventually(func() bool { return c.nodes["n1"].Cluster().Level == meta.LevelDedupe }, "the level does not rise")
	return c
}

// TestAMessageIsPublishedOnce: a message is published again at every broker, after its leader was
// killed, after all brokers were, after it was consumed and retention has looked, and by a replica that
// was moved here later. It is stored once, and each answer names its place.
func TestAMessageIsPublishedOnce(t *testing.T) {
	t.Parallel()
	c := newDedupeCluster(t, 3)
	c.do("n1", "topic.create", "orders", "", map[string]string{"dedupe_window": "10m"})
	c.do("n1", "channel.create", "orders", "billing", nil)
	first := c.publishID("n2", "orders", "order-1")
	require.NoError(t, first.Err)
	require.False(t, first.Duplicate)
	c.again("orders", "order-1", first, "at once")

	c.fill("orders", 500) // without ids
	s := c.subscribe("n2", "orders", "billing", 1000)
	s.finish(s.take(501)...)
	s.sub.Close(true)
	c.settled("orders", "billing")
	for name, disaster := range disasters() {
		disaster(c, "orders")
		c.again("orders", "order-1", first, name)
	}
	<-time.After(1200 * time.Millisecond) // retention has looked twice
	c.kill("n3")
	c.wipe("n3")
	c.restart("n3")
	c.whole("orders")
	for _, n := range []string{"n1", "n2"} { // the replica that has copied the log leads
		c.kill(n)
		c.restart(n)
		c.whole("orders")
		c.again("orders", "order-1", first, "after a new replica, without "+n)
	}
	require.Empty(t, c.drain("n1", "orders", 0))
}

// TestTheWindowOfATopicIsShown: the window in the views is the effective one.
func TestTheWindowOfATopicIsShown(t *testing.T) {
	c := newDedupeCluster(t, 1)
	c.do("n1", "topic.create", "orders", "", nil)
	v, _ := c.view("n1", "orders")
	require.EqualValues(t, meta.DefaultDedupeWindowMS, v.DedupeWindowMS)
	c.do("n1", "topic.create", "orders", "", map[string]string{"dedupe_window": "5m"})
	v, _ = c.view("n1", "orders")
	require.EqualValues(t, 300_000, v.DedupeWindowMS)
	for _, bad := range []string{"999ms", "61m", "x"} {
		require.ErrorIs(t, do(t.Context(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "orders", Args: map[string]string{"dedupe_window": bad}}), edge.ErrInvalid, bad)
	}
}

// TestIDsOfSeveralPartitions: without a key the id chooses the partition, the same one at every broker.
func TestIDsOfSeveralPartitions(t *testing.T) {
	t.Parallel()
	c := newDedupeCluster(t, 3)
	c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "4"})
	for i := range 20 {
		id := fmt.Sprint("order-", i)
		first := c.publishID("n1", "orders", id)
		require.NoError(t, first.Err)
		c.again("orders", id, first, "another broker")
	}
}

// TestIDsRequireTheLevel: brokers of older builds could not read the batches. Nothing is stored.
func TestIDsRequireTheLevel(t *testing.T) {
	c := newClusterOf(t, cluster{size: 1, level: meta.LevelDedupe - 1})
	c.eventually(func() bool { return c.nodes["n1"].Cluster().Level == meta.LevelDedupe-1 }, "the level does not rise")
	require.NoError(t, c.put("n1", "orders", "without an id"))
	r := c.publishID("n1", "orders", "order-1")
	require.ErrorIs(t, r.Err, edge.ErrUnavailable)
	require.ErrorContains(t, r.Err, "feature level 4")
	err := do(t.Context(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "orders", Args: map[string]string{"dedupe_window": "5m"}})
	require.ErrorContains(t, err, "feature level 4")
	require.Len(t, c.drain("n1", "orders", 1), 1)
}
