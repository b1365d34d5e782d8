package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// An ordered channel has one message in flight, also of those that clients hold from
// an earlier leader.
func TestOrderedChannelReclaimsOneMessage(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	s, late := subscribe(t, c), subscribe(t, c)
	r.publishN(3)
	require.Empty(t, c.Reclaim(s, []Held{{Sequence: 0, Attempts: 1}}))
	require.Equal(t, []ident.Sequence{1}, c.Reclaim(late, []Held{{Sequence: 1, Attempts: 1}}))
	r.rep.hold = true
	require.NoError(t, c.Finish(s, 0, 1))
	require.Equal(t, []ident.Sequence{1}, c.Reclaim(late, []Held{{Sequence: 1, Attempts: 1}}), "not all replicas have the finish")
	r.rep.answer(r.Partition, true)
	require.Empty(t, c.Reclaim(late, []Held{{Sequence: 1, Attempts: 1}}))
}

// A finish that is not on all replicas comes again, unless the channel was moved.
func TestFinishThatFailsAfterASeek(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(3)
	r.rep.hold = true
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Finish(s, 0, 1))
	c.seek(2)
	r.rep.answer(r.Partition, false)
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(2), d[0].Message.Seq)
}

// A leader that has lost its office, and has it again, waits for no finish of that time.
func TestOrderedChannelOfTheSameLeader(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(2)
	require.Len(t, c.Pull(s, 1, nil), 1)
	r.rep.hold = true
	require.NoError(t, c.Finish(s, 0, 1))
	r.Unlead()
	r.rep.held, r.rep.hold = nil, false
	r.Lead(2)
	d := c.Pull(subscribe(t, c), 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(1), d[0].Message.Seq)
}
