package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestAChannelMadeAnewDoesNotUseItsNamesakesPolicy: the metadata of the leader still has the deleted channel, whose filter
// rejects the messages of the new one. They were finished, unseen.
func TestAChannelMadeAnewDoesNotUseItsNamesakesPolicy(t *testing.T) {
	known := Policy{Channel: 1, Filter: "header:kind=a", MaxAttempts: 1, Revision: 1}
	r := newRig(Options{Policy: func(string) Policy { return known }})
	r.channel(t, "c", ChannelOptions{ID: 1})
	require.NoError(t, r.DeleteChannel(t.Context(), "c"))
	c := r.channel(t, "c", ChannelOptions{ID: 2})
	r.publish("x")
	s := subscribe(t, c)
	require.Empty(t, c.Pull(s, 1, nil), "its own policy is not known yet")
	c.SetPolicy(Policy{Channel: 1, Filter: "header:kind=b", Revision: 3})
	require.Empty(t, c.Pull(s, 1, nil))

	r = r.failover() // a leader whose metadata is behind
	c, _ = r.Channel("c")
	require.EqualValues(t, 2, c.ID())
	s = subscribe(t, c)
	require.Empty(t, c.Pull(s, 1, nil))
	require.Zero(t, c.Finished())
	c.SetPolicy(Policy{Channel: 2, Revision: 2})
	require.Equal(t, []string{"x"}, bodies(c.Pull(s, 1, nil)))

	f := NewPartition("orders", testID, r.log, &replicas{}, Options{Policy: func(string) Policy { return Policy{Channel: 2, MaxAttempts: 7} }})
	f.Replace(r.Snapshot())
	fc, _ := f.Channel("c")
	require.EqualValues(t, 7, fc.Policy().MaxAttempts)
}

// TestAChannelTakesThePlaceOfADeletedNamesake: a replica that was away, or that an operator chose, still has the deleted
// channel when the new one is made.
func TestAChannelTakesThePlaceOfADeletedNamesake(t *testing.T) {
	r := newRig(Options{})
	old := r.channel(t, "c", ChannelOptions{ID: 1, Origin: FromEarliest})
	s := subscribe(t, old)
	r.publish("0", "1")
	require.NoError(t, r.PauseChannel(t.Context(), "c", true))
	f := NewPartition("orders", testID, r.log, &replicas{}, Options{})
	c := r.channel(t, "c", ChannelOptions{ID: 2})
	require.Same(t, c, r.channel(t, "c", ChannelOptions{ID: 2}), "made again")
	require.ErrorIs(t, old.Err(s), ErrDeleted)
	r.log.publish(queue.Message{Body: []byte("2")})
	r.Advance(r.log.Committed())
	require.Equal(t, []string{"2"}, bodies(c.Pull(subscribe(t, c), 9, nil)))
	r.Flush()
	for _, d := range r.rep.deltas {
		f.Apply(d)
	}
	require.Equal(t, r.Snapshot(), f.Snapshot())
	fc, _ := f.Channel("c")
	require.EqualValues(t, 2, fc.ID())
}
