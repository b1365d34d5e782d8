package coordinator_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/stretchr/testify/require"
)

// TestOrderedChannelNeverStepsBack: an ordered channel delivers each message when the one before it is finished on all
// replicas, under each leader. No message comes again after its finish was accepted.
func TestOrderedChannelNeverStepsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"ordered": "true"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		const n = 60
		for i := range n {
			require.NoError(t, c.put("n2", "orders", fmt.Sprintf("m%03d", i)))
		}
		old := c.leader("orders")
		s := c.subscribe(map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[old], "orders", "billing", 10)
		again := 0
		for want := 0; want < n; {
			d := s.next()
			require.Empty(t, s.sub.Pull(10, nil), "one at a time")
			if body := string(d.Message.Body); body == fmt.Sprintf("m%03d", want) {
				want++
			} else {
				require.Equal(t, fmt.Sprintf("m%03d", want-1), body, "only the finish that was under way may be lost")
				again++
			}
			switch {
			case want == 20 && c.nodes[old] != nil:
				c.kill(old)
				c.leader("orders")
			case want == 40 && c.nodes[old] == nil:
				c.restart(old)
				c.whole("orders")
				c.nodes[c.leader("orders")].TransferLeadership(t.Context())
			}
			_ = s.sub.Finish(d.ID) // its leader may just have died
		}
		require.LessOrEqual(t, again, 2)
	})
}

func TestOrderedTopicMakesAllChannelsOrdered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.do("n1", "topic.create", "orders", "", map[string]string{"ordered": "true"})
		c.do("n1", "channel.create", "orders", "by-http", nil)
		c.do("n1", "topic.create", "plain", "", nil)
		c.do("n1", "channel.create", "plain", "unordered", nil)
		for range 3 {
			require.NoError(t, c.put("n1", "orders", "m"))
			require.NoError(t, c.put("n1", "plain", "m"))
		}
		s := c.subscribe("n1", "orders", "by-http", 10)
		_ = s.next()
		require.Empty(t, s.sub.Pull(10, nil))
		c.do("n1", "channel.create", "plain", "ordered", map[string]string{"ordered": "true", "from": "earliest"})
		ordered := c.subscribeOrdered("n1", "plain", "ordered")
		_ = ordered.next()
		require.Empty(t, ordered.sub.Pull(10, nil))
	})
}

// TestChannelBecomesOrderedAndBack: an existing channel becomes ordered for all its
// consumers, until an operator reverts it. New leaders keep the order.
func TestChannelBecomesOrderedAndBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		const n = 6
		for i := range n {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		plain := c.subscribe("n2", "orders", "billing", 10)
		before := plain.take(n)
		ordered := c.subscribeOrdered("n3", "orders", "billing")
		require.Empty(t, ordered.sub.Pull(10, nil), "what is in flight comes first")
		for _, d := range before {
			require.NoError(t, plain.sub.Requeue(d.ID, 0))
		}
		plain.sub.Close(true)
		d := ordered.next()
		require.Empty(t, ordered.sub.Pull(10, nil), "one at a time")
		require.NoError(t, ordered.sub.Requeue(d.ID, 0))
		ordered.sub.Close(true)

		c.nodes[c.leader("orders")].TransferLeadership(t.Context())
		c.whole("orders")
		plain = c.subscribe("n2", "orders", "billing", 10)
		_ = plain.next()
		require.Empty(t, plain.sub.Pull(10, nil), "still one at a time")
		err := do(t.Context(), c.nodes["n1"], operation{Verb: "channel.order", Topic: "orders", Channel: "billing", Args: map[string]string{"order": "perhaps"}})
		require.ErrorIs(t, err, outcome.ErrInvalid)
		c.do("n1", "channel.order", "orders", "billing", map[string]string{"order": "false"})
		require.Len(t, plain.take(n-1), n-1)

		c.do("n1", "topic.create", "strict", "", map[string]string{"ordered": "true"})
		c.do("n1", "channel.create", "strict", "billing", nil)
		err = do(t.Context(), c.nodes["n1"], operation{Verb: "channel.order", Topic: "strict", Channel: "billing", Args: map[string]string{"order": "false"}})
		require.ErrorIs(t, err, outcome.ErrInvalid, "the topic is ordered")
	})
}

// A leader that reaches neither the metadata nor its replicas may have a successor: it falls silent within a second.
func TestLeaderThatReachesNobodyFallsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.fill("orders", 20)
		leader := c.leader("orders")
		s := c.subscribe(leader, "orders", "billing", 1)
		s.finish(s.next())
		for _, n := range all {
			if n != leader {
				c.kill(n)
			}
		}
		s.finish(s.next()) // the metadata answers: nobody else can lead
		cut := time.Now()
		c.sessions[leader].Cut()
		defer c.sessions[leader].Heal()
		s.requireSilence(cut)
	})
}

// The metadata is not enough for an ordered channel: no finish would be
// committed, and a successor may be named any moment.
func TestOrderedChannelNeedsReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"ordered": "true"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.fill("orders", 1)
		leader := c.leader("orders")
		s := c.subscribe(leader, "orders", "billing", 1)
		require.NoError(t, s.sub.Requeue(s.next().ID, 0))
		cut := time.Now()
		for _, n := range all {
			if n != leader {
				c.kill(n)
			}
		}
		s.requireSilence(cut)
	})
}

// requireSilence requeues each delivery. The last one must come within the fence.
func (s *consumer) requireSilence(since time.Time) {
	s.c.t.Helper()
	last := since
	s.c.eventually(func() bool {
		for _, d := range s.sub.Pull(1, nil) {
			last = time.Now()
			require.NoError(s.c.t, s.sub.Requeue(d.ID, 0))
		}
		return time.Since(last) > 1500*time.Millisecond
	}, "it goes on and on")
	s.c.t.Logf("last delivery %s after the cut", last.Sub(since))
	require.Less(s.c.t, last.Sub(since), 1100*time.Millisecond)
}

func TestKeysAndDepthsOverPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "4"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		byKey := map[string]map[uint16]int{}
		s := c.subscribe("n3", "orders", "billing", 100)
		for i := range 40 {
			key := fmt.Sprintf("k%d", i%8)
			c.putMessage(all[i%3], "orders", []byte(key), queue.Message{Body: []byte(key)})
		}
		s.sub.SetReady(0)
		c.counts("orders", "billing", 40, 0, 0)
		s.sub.SetReady(100)
		used := map[uint16]bool{}
		for _, d := range s.take(40) {
			key := string(d.Message.Body)
			if byKey[key] == nil {
				byKey[key] = map[uint16]int{}
			}
			byKey[key][d.Partition.Number]++
			used[d.Partition.Number] = true
			s.finish(d)
		}
		for key, places := range byKey {
			require.Len(t, places, 1, "key %s", key)
		}
		require.Greater(t, len(used), 1)
		c.counts("orders", "billing", 0, 0, 0)
	})
}

// TestOrderedChannelHonoursDelays: a consumer that requeues a message with a delay, over
// and over, gets it once a delay, under each leader. The other partition continues.
func TestOrderedChannelHonoursDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"ordered": "true", "partitions": "2"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		const keys, each, repeats, delay = 6, 4, 4, 500 * time.Millisecond
		for i := range keys * each {
			key := fmt.Sprintf("k%d", i%keys)
			c.putMessage("n1", "orders", []byte(key), queue.Message{Body: fmt.Appendf(nil, "%s-%d", key, i/keys)})
		}
		s := c.subscribe("n2", "orders", "billing", 10)
		first := s.next()
		require.NoError(t, s.sub.Requeue(first.ID, delay.Milliseconds()))
		last, deliveries, others := time.Now(), 1, 0
		next := map[string]int{}
		for range keys*each + repeats - 1 {
			d := s.next()
			if d.Partition != first.Partition {
				require.Equal(t, 1, deliveries, "another partition waits")
				others++
			} else if deliveries < repeats {
				require.Equal(t, first.ID, d.ID, "it was overtaken")
				require.GreaterOrEqual(t, time.Since(last), delay-20*time.Millisecond)
				require.NoError(t, s.sub.Requeue(d.ID, delay.Milliseconds()))
				last, deliveries = time.Now(), deliveries+1
				if deliveries == 2 {
					c.counts("orders", "billing", keys*each-others-1, 0, 1)
					c.nodes[c.leaderOf(first.Partition)].TransferLeadership(t.Context())
				}
				continue
			}
			key := string(d.Message.Body[:2])
			require.Equal(t, fmt.Sprintf("%s-%d", key, next[key]), string(d.Message.Body))
			next[key]++
			s.finish(d)
		}
		require.NotZero(t, others, "all keys have one partition")
		c.counts("orders", "billing", 0, 0, 0)
	})
}

// leaderOf is the broker that leads a partition.
func (c *cluster) leaderOf(p ident.Partition) (leader string) {
	c.t.Helper()
	c.eventually(func() bool {
		for name, b := range c.nodes {
			if b.Leads(p) {
				leader = name
			}
		}
		return leader != ""
	}, "nobody leads it")
	return leader
}
