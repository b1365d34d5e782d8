package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A channel without consumers: deferred messages become depth when they are due.
func TestReapedDeferredMessagesComeDue(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	r.postpone(1000*nsPerMS, "later")
	r.Reap() // as the broker does every 500 ms
	require.LessOrEqual(t, r.Due(), r.clock.now()+1000*nsPerMS, "Expire must be due with the message")
	if now := r.clock.add(2000 * nsPerMS); r.Due() <= now { // as the broker's clock does
		r.Expire(now)
	}
	require.Equal(t, counts{depth: 1, published: 1}, countsOf(r.Partition, c))
}

// A consumer waits for messages of a channel that is paused for a moment.
func TestReapedDeferredMessagesAreDeliveredAfterPause(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	require.Empty(t, c.Pull(s, 1, nil))
	<-s.Wake
	require.NoError(t, r.PauseChannel(t.Context(), "c", true))
	r.postpone(1000*nsPerMS, "later")
	r.Reap()
	require.NoError(t, r.PauseChannel(t.Context(), "c", false))
	woken := false
	for range 100 { // ten seconds
		if now := r.clock.add(100 * nsPerMS); r.Due() <= now {
			r.Expire(now)
		}
		select {
		case <-s.Wake:
			woken = true
		default:
		}
	}
	require.True(t, woken, "no subscriber is woken for a message that has been due for nine seconds")
	require.Equal(t, []string{"later"}, bodies(c.Pull(s, 1, nil)))
}

// A topic without channels keeps its backlog when it is paused, and its depth shows it.
func TestDepthOfAPausedTopicWithoutChannels(t *testing.T) {
	r := newRig(Options{})
	r.publishN(10)
	require.EqualValues(t, 10, r.Stats("", false).Depth)
	require.NoError(t, r.PauseTopic(t.Context(), true))
	require.EqualValues(t, 10, r.Stats("", false).Depth)
	r.publishN(2)
	require.EqualValues(t, 12, r.Stats("", false).Depth)
}

// A finish for a message that is settled already, and that an earlier leader delivered, arrives
// while the last finish of an ordered channel is being replicated.
func TestALateFinishDoesNotOpenAnOrderedChannel(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Ordered: true})
	late := subscribe(t, c)
	r.publish("a", "b", "c")
	require.Equal(t, []string{"a"}, bodies(c.Pull(late, 1, nil)))
	r.seekChannel(t, "c", seekTo(1)) // an operator skips message a; the connection of its subscriber is cut
	n := r.failover()
	c, _ = n.Channel("c")
	holder, s := subscribe(t, c), subscribe(t, c)
	require.Equal(t, []string{"b"}, bodies(c.Pull(s, 1, nil)))
	n.rep.mu.Lock()
	n.rep.hold = true
	n.rep.mu.Unlock()
	require.NoError(t, c.Finish(s, c.of(1, 2)))
	require.Empty(t, c.Pull(s, 1, nil), "b's finish is not on the replicas")
	require.NoError(t, c.FinishLate(holder, c.of(0, 1))) // sent while there was no leader, received now
	require.Empty(t, c.Pull(s, 1, nil), "b's finish is not on the replicas")
}

// Messages that were deferred under the previous leader become due under this one, even without a
// consumer.
func TestInheritedDeadlinesAreKept(t *testing.T) {
	r := newRig(Options{})
	r.channel(t, "c", ChannelOptions{})
	r.postpone(1000*nsPerMS, "later")
	r.Reap()
	n := r.failover()
	require.Equal(t, r.clock.now()+1000*nsPerMS, n.Due())
}
