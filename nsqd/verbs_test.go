package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// One of several deliveries is left to its timeout. The others are finished, and it alone is
// delivered again.
func TestAwaitTimeout(t *testing.T) {
	r, c, s := delivered(t, Options{MsgTimeoutMS: 1000}, "ch", ChannelOptions{}, 3, 3)
	require.NoError(t, c.AwaitTimeout(s, c.of(1, 0)))
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	require.NoError(t, c.Finish(s, c.of(2, 1)))
	require.Zero(t, c.InFlight(s))
	require.Empty(t, c.Pull(s, 3, nil))
	r.tick(1001)
	d := c.Pull(s, 3, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(1), d[0].Message.Seq)
	require.EqualValues(t, 2, d[0].Message.Attempts)
	require.NoError(t, c.Finish(s, c.of(1, 1)))
	require.Zero(t, c.InFlight(s))
}

// The replicas do not get a late finish on an ordered channel: the message is delivered again with
// its attempts.
func TestLateOrderedFinishThatFails(t *testing.T) {
	r, _, _ := delivered(t, Options{}, "strict", ChannelOptions{Ordered: true}, 2, 1)
	n := r.failover()
	c, _ := n.Channel("strict")
	s := subscribe(t, c)
	n.rep.hold = true
	require.NoError(t, c.FinishLate(s, c.of(0, 1)))
	n.rep.answer(false)
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(0), d[0].Message.Seq)
	require.EqualValues(t, 1, d[0].Message.Attempts)
}

// The attempts of a delivery that a client still holds count, here and for the next leader.
func TestReclaimedDeliveriesKeepTheirAttempts(t *testing.T) {
	r := newRig(Options{})
	r.publishN(1)
	c := r.channel(t, "ch", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	require.Empty(t, c.Reclaim(s, []Receipt{{Sequence: 0, Attempts: 3}}))
	r.Flush()
	n := &rig{log: r.log, rep: &replicas{}, clock: r.clock}
	n.Partition = NewPartition("orders", testID, n.log, n.rep, r.o)
	for _, delta := range r.rep.deltas {
		n.Apply(delta)
	}
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	require.EqualValues(t, 4, c.Pull(s, 1, nil)[0].Message.Attempts)

	n.Lead(2)
	c, _ = n.Channel("ch")
	require.EqualValues(t, 3, c.Pull(subscribe(t, c), 1, nil)[0].Message.Attempts, "the third delivery is not over")
}

// A late finish of a finished message changes nothing, whatever becomes of the delta alongside it.
func TestLateFinishOfFinishedMessage(t *testing.T) {
	r, c, s := delivered(t, Options{}, "strict", ChannelOptions{Ordered: true}, 2, 1)
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	n := r.failover()
	c, _ = n.Channel("strict")
	s = subscribe(t, c)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, c.of(1, 0), 0))
	n.rep.hold = true
	require.NoError(t, c.FinishLate(s, c.of(0, 1)))
	n.rep.answer(false)
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(1), d[0].Message.Seq, "a step back")
	require.EqualValues(t, 2, d[0].Message.Attempts)
}
