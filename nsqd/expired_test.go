package nsqd

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// failures end a delivery without a finish. The message comes again at the latest after ms.
var failures = map[string]struct {
	ms     int64
	policy Policy
	fail   func(t *testing.T, r *rig, c *Channel, s *Subscriber)
}{
	"requeue": {0, Policy{}, func(t *testing.T, _ *rig, c *Channel, s *Subscriber) { require.NoError(t, c.Requeue(s, c.of(0, 0), 0)) }},
	"delay": {500, Policy{}, func(t *testing.T, _ *rig, c *Channel, s *Subscriber) {
		require.NoError(t, c.Requeue(s, c.of(0, 0), 500))
	}},
	"timeout":    {0, Policy{}, func(_ *testing.T, r *rig, _ *Channel, _ *Subscriber) { r.tick(60_000) }},
	"disconnect": {0, Policy{}, func(_ *testing.T, _ *rig, c *Channel, s *Subscriber) { c.Detach(s, true) }},
	"left, then timeout": {0, Policy{}, func(_ *testing.T, r *rig, c *Channel, s *Subscriber) {
		c.Detach(s, false)
		r.tick(60_000)
	}},
	"returned": {0, Policy{}, func(t *testing.T, _ *rig, c *Channel, s *Subscriber) { require.NoError(t, c.Return(s, c.of(0, 0))) }},
	"back-off": {400, Policy{Backoff: option.Backoff{BaseMS: 400}}, func(t *testing.T, _ *rig, c *Channel, s *Subscriber) {
		require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	}},
}

// expiredAfter delivers a message, lets the delivery fail, and lets its time to live pass.
func expiredAfter(t *testing.T, failure string, ordered, letters bool) (*rig, *Channel) {
	f := failures[failure]
	policy := f.policy
	policy.MaxAttempts, policy.DeadLetters = 5, letters
	r := newRig(Options{Policy: func(string) Policy { return policy }})
	c := r.channel(t, "c", ChannelOptions{Ordered: ordered})
	r.log.publish(queue.Message{Time: r.clock.now(), Header: []byte(`{"##ttl_ms":300}`), Body: []byte("m")})
	r.Advance(r.log.Committed())
	s := subscribe(t, c)
	require.Len(t, c.Pull(s, 1, nil), 1)
	f.fail(t, r, c, s)
	r.tick(max(f.ms, 300))
	return r, c
}

func expiredOf(p *Partition, c *Channel) int {
	return int(p.Stats(c.name, false).Channels[0].ExpiredCount)
}

// TestExpiredAfterAFailure: a message that failed and has outlived its limit since is counted, and goes
// to the dead letters if the policy has a topic for them, however it failed and whatever finds it.
func TestExpiredAfterAFailure(t *testing.T) {
	finders := map[string]func(t *testing.T, r *rig, c *Channel) (*rig, *Channel){
		"pull": func(t *testing.T, r *rig, c *Channel) (*rig, *Channel) {
			require.Empty(t, c.Pull(subscribe(t, c), 5, nil))
			return r, c
		},
		"reap": func(_ *testing.T, r *rig, c *Channel) (*rig, *Channel) {
			r.Reap()
			return r, c
		},
		"the next leader": func(t *testing.T, r *rig, _ *Channel) (*rig, *Channel) {
			r.Flush()
			r = r.failover()
			c, _ := r.Channel("c")
			require.Empty(t, c.Pull(subscribe(t, c), 5, nil))
			return r, c
		},
		"statistics, then pull": func(t *testing.T, r *rig, c *Channel) (*rig, *Channel) {
			r.Stats("", false)
			require.Empty(t, c.Pull(subscribe(t, c), 5, nil))
			return r, c
		},
	}
	for failure := range failures {
		for finder, find := range finders {
			for _, ordered := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, ordered=%v", failure, finder, ordered), func(t *testing.T) {
					r, c := expiredAfter(t, failure, ordered, true)
					r, c = find(t, r, c)
					require.True(t, r.DeadPending())
					dead := c.DeadLetters()
					require.Len(t, dead, 1)
					require.EqualValues(t, 1, dead[0].Message.Attempts)
					require.Equal(t, "m", string(dead[0].Message.Body))
					requireExact(t, r.Partition, c)

					c.ReleaseDead(c.of(0, 0)) // the move failed
					r.tick(1000)
					r.Reap()
					dead = c.DeadLetters()
					require.Len(t, dead, 1, "it is offered again")
					require.Zero(t, expiredOf(r.Partition, c), "it is not finished yet")
					require.NoError(t, c.DeadMoved(c.of(0, dead[0].Epoch)))
					require.Equal(t, 1, expiredOf(r.Partition, c))
					require.EqualValues(t, 1, c.Finished())
					requireExact(t, r.Partition, c)

					r, c = expiredAfter(t, failure, ordered, false)
					r, c = find(t, r, c)
					require.False(t, r.DeadPending(), "there is no topic")
					require.Equal(t, 1, expiredOf(r.Partition, c))
					require.EqualValues(t, 1, r.Work().Channels["c"].Expired)
					require.EqualValues(t, 1, c.Finished())
				})
			}
		}
	}
}

// TestExpiredWithoutAFailure: a message that no consumer has received is counted, and is no dead letter.
// So is one whose delivery was withdrawn: no client has seen it.
func TestExpiredWithoutAFailure(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		r := newRig(Options{Policy: func(string) Policy { return Policy{MaxAttempts: 5, DeadLetters: true} }})
		c := r.channel(t, "c", ChannelOptions{})
		r.SetTTL(100)
		r.publish("m")
		if withdrawn {
			s := subscribe(t, c)
			require.Len(t, c.Pull(s, 1, nil), 1)
			c.Withdraw(s)
		}
		r.tick(100)
		r.Reap()
		require.False(t, r.DeadPending())
		require.Equal(t, 1, expiredOf(r.Partition, c))
		require.EqualValues(t, 1, c.Finished())
		requireExact(t, r.Partition, c)
	}
}

// TestExpiredAndDead: a message that has used up its attempts is a dead letter when it has expired too,
// and one that is not for the channel any more is finished.
func TestExpiredAndDead(t *testing.T) {
	policy := Policy{MaxAttempts: 5}
	r, c, s := delivered(t, Options{Policy: func(string) Policy { return policy }}, "c", ChannelOptions{Ordered: true}, 1, 1)
	r.SetTTL(100)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	policy = Policy{MaxAttempts: 1, DeadLetters: true, Revision: 1}
	c.SetPolicy(policy)
	r.tick(100)
	r.Reap()
	require.True(t, r.DeadPending())
	require.Len(t, c.DeadLetters(), 1)
	require.NoError(t, c.DeadMoved(c.of(0, 1)))
	require.Zero(t, expiredOf(r.Partition, c))

	r.publishKinds("a")
	require.Len(t, c.Pull(s, 1, nil), 1)
	policy = Policy{MaxAttempts: 5, DeadLetters: true, Filter: "header:kind=b", Revision: 2}
	c.SetPolicy(policy)
	require.NoError(t, c.Requeue(s, c.of(ident.Sequence(1), 0), 0))
	r.tick(100)
	r.Reap()
	require.False(t, r.DeadPending())
	require.Equal(t, []int{1, 0}, []int{filtered(r.Partition, c), expiredOf(r.Partition, c)})
}

// TestEscapedTimeToLive: the name of a header may have escapes.
func TestEscapedTimeToLive(t *testing.T) {
	require.EqualValues(t, 7, (&queue.Message{Header: []byte(`{"\u0023#ttl_ms":7}`)}).TTLMS())
	require.EqualValues(t, 7, (&queue.Message{Header: []byte(`{"##ttl_ms":7,"a":"\\"}`)}).TTLMS())
	require.Zero(t, (&queue.Message{Header: []byte(`{"a":"\u0023#ttl_ms"}`)}).TTLMS())
}

// TestAnExpiredMessageWaitsForThePolicy: a leader that does not have the policy of the channel yet does not know whether there is
// a topic for dead letters. It was finished, and lost.
func TestAnExpiredMessageWaitsForThePolicy(t *testing.T) {
	policy := Policy{Channel: 2, DeadLetters: true, Revision: 2}
	known := policy
	r := newRig(Options{Policy: func(string) Policy { return known }})
	c := r.channel(t, "c", ChannelOptions{ID: 2})
	r.log.publish(queue.Message{Time: r.clock.now(), Header: []byte(`{"##ttl_ms":300}`), Body: []byte("m")})
	r.Advance(r.log.Committed())
	s := subscribe(t, c)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	r.Flush()
	known = Policy{Channel: 1} // the metadata of the next leader is behind
	r = r.failover()
	c, _ = r.Channel("c")
	r.tick(301)
	r.Reap()
	require.Zero(t, c.Finished())
	c.SetPolicy(policy)
	r.Reap()
	require.Equal(t, []string{"m"}, bodies(c.DeadLetters()))
}
