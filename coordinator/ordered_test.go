package coordinator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/stretchr/testify/require"
)

// On an ordered channel each message comes once the one before it is finished on
// all replicas, whoever leads; none comes again after its finish was taken.
func TestOrderedChannelNeverStepsBack(t *testing.T) {
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
			c.nodes[c.leader("orders")].HandOver(t.Context())
		}
		_ = s.sub.Finish(d.ID) // its leader may just have died
	}
	require.LessOrEqual(t, again, 2)
}

func TestOrderedTopicMakesAllChannelsOrdered(t *testing.T) {
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
}

// Who asks for order on a channel without gets it, for all its consumers, until
// somebody takes it back; new leaders know.
func TestChannelBecomesOrderedAndBack(t *testing.T) {
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

	c.nodes[c.leader("orders")].HandOver(t.Context())
	c.whole("orders")
	plain = c.subscribe("n2", "orders", "billing", 10)
	_ = plain.next()
	require.Empty(t, plain.sub.Pull(10, nil), "still one at a time")
	err := c.nodes["n1"].Do(t.Context(), edge.AdminOp{Verb: "channel.order", Topic: "orders", Channel: "billing", Args: map[string]string{"order": "perhaps"}})
	require.ErrorIs(t, err, edge.ErrInvalid)
	c.do("n1", "channel.order", "orders", "billing", map[string]string{"order": "false"})
	require.Len(t, plain.take(n-1), n-1)

	c.do("n1", "topic.create", "strict", "", map[string]string{"ordered": "true"})
	c.do("n1", "channel.create", "strict", "billing", nil)
	err = c.nodes["n1"].Do(t.Context(), edge.AdminOp{Verb: "channel.order", Topic: "strict", Channel: "billing", Args: map[string]string{"order": "false"}})
	require.ErrorIs(t, err, edge.ErrInvalid, "the topic is ordered")
}

// A leader that reaches neither the metadata nor its replicas may have a
// successor: it falls silent within a second.
func TestLeaderThatReachesNobodyFallsSilent(t *testing.T) {
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
}

// The metadata is not enough for an ordered channel: no finish would be
// committed, and a successor may be named any moment.
func TestOrderedChannelNeedsReplicas(t *testing.T) {
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
}

// requireSilence gives back what comes and wants the last of it within the fence.
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
}
