package coordinator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const smallSegment = 64 << 10

// fill publishes n messages of 1 KiB.
func (c *cluster) fill(topic string, n int) {
	c.t.Helper()
	body := []byte(strings.Repeat("x", 1<<10))
	p := c.nodes["n1"].Gateway
	require.NoError(c.t, p.Admit(c.t.Context(), topic, len(body)))
	a := make(answers, n)
	for range n {
		d := queue.NewDraft(len(body))
		_ = d.AddMessage(queue.Message{Body: body})
		p.Publish(topic, api.AnyPartition, nil, d.Draft(ident.RequestID{}), a)
	}
	for range n {
		require.NoError(c.t, (<-a).Err)
	}
}

// logStart is the least first offset that any replica of a topic holds. It waits for the
// answers of all replicas: a broker that has just started does not know its topics yet.
func (c *cluster) logStart(topic string) (low ident.Offset) {
	c.t.Helper()
	c.eventually(func() bool {
		low = ident.Offset(1 << 62)
		for _, b := range c.nodes {
			d, err := b.Digest(api.DigestRequest{Topic: topic})
			if err != nil {
				return false
			}
			low = min(low, ident.Offset(d.Start))
		}
		return true
	}, "no digest of %s", topic)
	return low
}

// deferredBodies are the delayed messages of a channel, by deadline.
func (c *cluster) deferredBodies(topic, channel string) (out []string) {
	c.t.Helper()
	b := c.nodes[c.leader(topic)]
	t, _ := b.Topic(topic)
	q, _ := b.Queue(t.Partition(0))
	ch, ok := q.Channel(channel)
	require.True(c.t, ok)
	for _, d := range ch.Deferred(100) {
		read, err := q.Read(d.Seq(), 1, nil)
		require.NoError(c.t, err)
		require.Len(c.t, read, 1)
		require.Equal(c.t, d.Seq(), read[0].Seq)
		out = append(out, string(read[0].Body))
	}
	return out
}

func TestOneUnfinishedMessageDoesNotPinTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, segmentBytes: smallSegment})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.putMessage("n2", "orders", nil, queue.Message{Body: []byte("later"), DeliverAt: time.Now().Add(time.Hour).UnixNano()})
		require.NoError(t, c.put("n2", "orders", "poison"))
		c.fill("orders", 500)
		s := c.subscribe("n2", "orders", "billing", 1000)
		for _, d := range s.take(501) {
			if string(d.Message.Body) == "poison" {
				require.NoError(t, s.sub.Requeue(d.ID, 3_600_000))
			} else {
				s.finish(d)
			}
		}
		s.sub.Close(true)
		c.counts("orders", "billing", 0, 0, 2)
		c.eventually(func() bool { return c.logStart("orders") > 4*smallSegment }, "the log is pinned")
		c.settled("orders", "billing")

		for name, disaster := range disasters() {
			disaster(c, "orders")
			c.counts("orders", "billing", 0, 0, 2)
			t.Log(name)
		}
		// They are relocated again when their relocation batch has become old itself, and stay unchanged.
		before := c.logStart("orders")
		c.fill("orders", 500)
		s = c.subscribe("n3", "orders", "billing", 1000)
		s.finish(s.take(500)...)
		c.eventually(func() bool {
			// The first leader came back and leads again: finishes of its predecessor's last 10 ms may be forgotten.
			s.finish(s.sub.Pull(1000, nil)...)
			return c.logStart("orders") > before+4*smallSegment
		}, "the relocated messages pin the log")
		c.whole("orders")
		require.Equal(t, []string{"later", "poison"}, c.deferredBodies("orders", "billing"))
	})
}

// TestEphemeralTopicKeepsWhatItsChannelsNeed: all channels of an endless feed are
// ephemeral. No other channel will ever need the messages that they have finished.
func TestEphemeralTopicKeepsWhatItsChannelsNeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, segmentBytes: smallSegment})
		fast := c.subscribe("n2", "feed#ephemeral", "fast#ephemeral", 1000)
		slow := c.subscribe("n3", "feed#ephemeral", "slow#ephemeral", 1000)
		c.fill("feed#ephemeral", 500)
		fast.finish(fast.take(500)...)
		half := slow.take(500)
		slow.finish(half[:250]...)
		c.eventually(func() bool { return c.logStart("feed#ephemeral") > 2*smallSegment }, "finished messages stay on the disks")
		slow.finish(half[250:]...)
		c.eventually(func() bool { return c.logStart("feed#ephemeral") > 6*smallSegment }, "finished messages stay on the disks")
	})
}

func TestRetentionKeepsFinishedMessagesForReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 1, segmentBytes: smallSegment})
		kept := map[string]map[string]string{
			"none":  nil,
			"time":  {"retention_time": "1h"},
			"bytes": {"retention_bytes": fmt.Sprint(5 * smallSegment)},
			"both":  {"retention_bytes": fmt.Sprint(5 * smallSegment), "retention_time": "1h"},
		}
		for topic, args := range kept {
			c.do("n1", "topic.create", topic, "", args)
			c.do("n1", "channel.create", topic, "billing", nil)
			c.fill(topic, 1000)
			c.do("n1", "channel.empty", topic, "billing", nil)
		}
		c.eventually(func() bool {
			return c.logStart("none") > 900<<10 && c.logStart("bytes") > 600<<10 && c.logStart("both") > 600<<10
		}, "nothing goes")
		require.Zero(t, c.logStart("time"))
		require.Less(t, c.logStart("bytes"), ident.Offset(750<<10))
		require.Less(t, c.logStart("both"), ident.Offset(750<<10))
		c.do("n1", "topic.set", "time", "", map[string]string{"retention_time": "1ms"})
		c.eventually(func() bool { return c.logStart("time") > 900<<10 }, "a shorter retention has no effect")
	})
}

func TestOldMessagesAreNotDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		require.NoError(t, c.put("n1", "orders", "old"))
		c.counts("orders", "billing", 1, 0, 0)
		put := time.Now()
		c.eventually(func() bool { return time.Since(put) > 50*time.Millisecond }, "time passes")
		c.do("n1", "topic.set", "orders", "", map[string]string{"message_ttl": "50ms"})
		c.kill(c.leader("orders")) // the next leader has it, too
		on := c.leader("orders")
		s := c.subscribe(on, "orders", "billing", 10)
		c.eventually(func() bool {
			require.Empty(t, s.sub.Pull(10, nil))
			sum, _ := c.stats("orders", "billing")
			return sum.Depth == 0
		}, "it stays")
		c.do(on, "topic.set", "orders", "", map[string]string{"message_ttl": "1h"})
		require.NoError(t, c.put(on, "orders", "new"))
		require.Equal(t, "new", string(s.next().Message.Body))
	})
}

func TestExpiredMessagesOfAChannelWithoutConsumersGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, segmentBytes: smallSegment})
		c.do("n1", "topic.create", "orders", "", map[string]string{"message_ttl": "1s"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.fill("orders", 500)
		c.counts("orders", "billing", 0, 0, 0)
		c.eventually(func() bool { return c.logStart("orders") > 4*smallSegment }, "they pin the log of a replica")
	})
}

func TestTopicWithoutChannelsKeepsEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 1, segmentBytes: smallSegment})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "topic.create", "others", "", nil)
		c.do("n1", "channel.create", "others", "billing", nil)
		c.fill("orders", 300)
		c.fill("others", 300)
		c.do("n1", "channel.empty", "others", "billing", nil)
		c.eventually(func() bool { return c.logStart("others") > 0 }, "retention does not run")
		require.Zero(t, c.logStart("orders"))
		require.Len(t, c.subscribe("n1", "orders", "late", 300).take(300), 300)
	})
}

func TestFullTopicRefusesPutsUntilItIsDrained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, segmentBytes: smallSegment})
		c.do("n1", "topic.create", "orders", "", map[string]string{"max_bytes": "100000"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		body, stored := strings.Repeat("x", 1<<10), 0
		var refused error
		for ; refused == nil && stored < 500; stored++ {
			refused = c.put(all[stored%3], "orders", body)
		}
		stored--
		require.ErrorIs(t, refused, outcome.ErrTopicFull)
		require.InDelta(t, 90, stored, 2)
		s := c.subscribe("n1", "orders", "billing", 200)
		s.finish(s.take(stored)...)
		c.eventually(func() bool { return c.put("n2", "orders", body) == nil }, "it stays full")
		require.ErrorIs(t, do(context.Background(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "x",
			Args: map[string]string{"max_bytes": "many"}}), outcome.ErrInvalid)
	})
}
