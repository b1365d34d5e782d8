package nsqd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// relocate does the work of the broker's retention: a relocation batch, then the trim.
func (r *rig) relocate(t require.TestingT, at ident.Offset, below ident.Sequence) []ident.Sequence {
	seqs, all := r.DeferredBelow(below, at, 100)
	require.True(t, all)
	r.log.mu.Lock()
	if r.log.relocated == nil {
		r.log.relocated = map[ident.Offset][]ident.Sequence{}
	}
	r.log.relocated[at] = seqs
	r.log.mu.Unlock()
	require.NoError(t, r.Relocate(context.Background(), at, seqs, false))
	require.NoError(t, r.Relocate(context.Background(), at, seqs, true))
	r.log.mu.Lock()
	r.log.start = below
	r.log.mu.Unlock()
	return seqs
}

// A message from before the topic's pause is relocated, and the log begins behind it: the first
// message in the log may not be delivered.
func TestPausedTopicBehindRelocatedMessages(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	r.postpone(nsPerMS, "delayed")
	require.NoError(t, r.PauseTopic(t.Context(), true))
	r.publish("after the pause")
	requireExact(t, r.Partition, c) // the statistics defer the delayed message
	r.relocate(t, 1, r.Floor())
	require.EqualValues(t, 1, r.log.start)
	require.Empty(t, c.Pull(s, 9, nil))
	r.tick(1)
	require.Equal(t, []string{"delayed"}, bodies(c.Pull(s, 9, nil)))
	require.NoError(t, r.PauseTopic(t.Context(), false))
	require.Equal(t, []string{"after the pause"}, bodies(c.Pull(s, 9, nil)))
}

func TestRelocatedMessagesDoNotPinTheLog(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	r.postpone(3600_000*nsPerMS, "later")
	r.publishN(9)
	got := c.Pull(s, 10, nil)
	require.Len(t, got, 9)
	require.NoError(t, c.Requeue(s, c.of(got[3].Message.Seq, 0), 60_000))
	for i, d := range got {
		if i != 3 {
			require.NoError(t, c.Finish(s, c.of(d.Message.Seq, 1)))
		}
	}
	require.EqualValues(t, 0, r.lowWater())
	require.EqualValues(t, 10, r.Floor())
	require.Equal(t, []ident.Sequence{0, 4}, r.relocate(t, 500, 10))
	require.EqualValues(t, 10, r.lowWater())
	seqs, all := r.DeferredBelow(10, 500, 0)
	require.True(t, all)
	require.Empty(t, seqs)
	seqs, all = r.DeferredBelow(10, 501, 2)
	require.True(t, all)
	require.Equal(t, []ident.Sequence{0, 4}, seqs, "the batch itself lies in the range to remove")
	_, all = r.DeferredBelow(10, 501, 1)
	require.False(t, all)
	at, ok := r.relocatedFrom()
	require.True(t, ok)
	require.EqualValues(t, 500, at)
	requireExact(t, r.Partition, c)

	n := r.failover() // by a snapshot
	c, _ = n.Channel("c")
	s = subscribe(t, c)
	require.EqualValues(t, 10, n.lowWater())
	n.tick(60_001)
	again := c.Pull(s, 10, nil)
	require.Equal(t, []string{"body"}, bodies(again))
	require.EqualValues(t, 2, again[0].Message.Attempts)
	require.EqualValues(t, 4, again[0].Message.Seq)
	require.NoError(t, c.Finish(s, c.of(4, 2)))
	n.tick(3600_000)
	require.Equal(t, []string{"later"}, bodies(c.Pull(s, 10, nil)))
	require.NoError(t, c.Finish(s, c.of(0, 2)))
	_, ok = n.relocatedFrom()
	require.False(t, ok, "no channel needs it any more")
	require.Empty(t, n.relocations.list(), "snapshots would grow for ever")
	requireExact(t, n.Partition, c)
}

func TestRelocationReachesFollowersByDelta(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	r.publishN(3)
	got := c.Pull(s, 3, nil)
	require.NoError(t, c.Requeue(s, c.of(got[0].Message.Seq, 0), 1000))
	require.NoError(t, c.Finish(s, c.of(1, 1)))
	require.NoError(t, c.Finish(s, c.of(2, 1)))
	r.Flush()
	r.relocate(t, 700, 3)
	f := NewPartition("orders", testID, r.log, r.rep, r.o)
	for range 2 { // again on top of itself
		for _, d := range r.rep.deltas {
			f.Apply(d)
		}
	}
	require.EqualValues(t, 3, f.lowWater())
	at, ok := f.relocatedFrom()
	require.True(t, ok)
	require.EqualValues(t, 700, at)
	fc, _ := f.Channel("c")
	_, changed := fc.cursor.TakeDelta()
	require.False(t, changed, "a follower sends no deltas")
	f.relocations.add(600, []ident.Sequence{0}, true) // an earlier delta on a later snapshot
	at, _ = f.relocatedFrom()
	require.EqualValues(t, 700, at)
}

// TestRelocationBeforeTheProgress: a follower has the record of a relocation before it knows that the
// message is deferred, and retention looks in between. If it forgot the relocation, a leadership there
// and back would leave no broker that knows both where the message is and that it is unfinished.
func TestRelocationBeforeTheProgress(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	r.publishN(2)
	r.Flush()
	f := NewPartition("orders", testID, r.log, r.rep, r.o)
	catchUp := func(deltas [][]byte) {
		for _, d := range deltas {
			f.Apply(d)
		}
	}
	catchUp(r.rep.deltas)
	first := len(r.rep.deltas)
	require.NoError(t, c.Requeue(s, c.of(c.Pull(s, 2, nil)[0].Message.Seq, 0), 1000))
	require.NoError(t, c.Finish(s, c.of(1, 1)))
	r.Flush()
	progress := len(r.rep.deltas)
	r.relocate(t, 700, 2)
	catchUp(r.rep.deltas[progress:])
	at, ok := f.relocatedFrom()
	require.True(t, ok)
	require.EqualValues(t, 700, at)
	catchUp(r.rep.deltas[first:progress])
	at, ok = f.relocatedFrom()
	require.True(t, ok)
	require.EqualValues(t, 700, at)
	require.EqualValues(t, 2, f.lowWater())
}

func TestLostRelocatedMessageIsGivenUp(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	r.publishN(2)
	got := c.Pull(s, 2, nil)
	require.NoError(t, c.Requeue(s, c.of(got[0].Message.Seq, 0), 0))
	require.NoError(t, c.Finish(s, c.of(1, 1)))
	r.relocate(t, 700, 2)
	r.log.relocated = nil
	require.Empty(t, c.Pull(s, 1, nil))
	require.EqualValues(t, 2, c.Finished())
	requireExact(t, r.Partition, c)
}

// TestRelocationBeyondTheLogIsRepeated: an operator chose a leader that has a relocation to a place
// beyond the end of its log. The message still lies at its original place; retention relocates it
// again before it removes the original.
func TestRelocationBeyondTheLogIsRepeated(t *testing.T) {
	r := newRig(Options{})
	r.Unlead()
	follower := NewPartition("orders", testID, r.log, &replicas{}, Options{})
	for _, x := range []state.Record{
		{Kind: state.KindCreate, Channel: "c"},
		{Kind: state.KindProgress, Channel: "c", Progress: cursor.Progress{Settled: []cursor.Span{{From: 1, To: 3}}, Deferred: []cursor.Entry{cursor.NewEntry(0, 0, 0)}}},
		{Kind: state.KindRelocate, Offset: 900, Seqs: []ident.Sequence{0}},
	} {
		applyTo(r.Partition, x)
		applyTo(follower, x)
	}
	r.publishN(3)
	r.Lead(2)
	for _, d := range r.rep.deltas {
		follower.Apply(d)
	}
	r.publishN(20) // beyond the lost place
	follower.Lead(3)
	for _, p := range []*Partition{r.Partition, follower} {
		seqs, all := p.DeferredBelow(2, 200, 100)
		require.True(t, all)
		require.Equal(t, []ident.Sequence{0}, seqs)
	}
	r.relocate(t, 2300, 3)
	c, _ := r.Channel("c")
	require.Equal(t, []string{"body"}, bodies(c.Pull(subscribe(t, c), 1, nil)))
}

// TestOriginalStaysUntilRelocationIsSettled: a leader without the relocation may follow one that
// has it. Every replica with the relocation must then still have the original.
func TestOriginalStaysUntilRelocationIsSettled(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	r.publishN(4)
	got := c.Pull(s, 4, nil)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 60_000))
	for _, d := range got[1:] {
		require.NoError(t, c.Finish(s, c.of(d.Message.Seq, 1)))
	}
	follower := NewPartition("orders", testID, r.log, &replicas{}, Options{})
	follower.Replace(r.Snapshot())
	before := len(r.rep.deltas)
	require.NoError(t, r.Relocate(t.Context(), 200, []ident.Sequence{0}, false))
	for _, d := range r.rep.deltas[before:] {
		follower.Apply(d)
		follower.Apply(d) // a snapshot may contain it already
	}
	copied := NewPartition("orders", testID, r.log, &replicas{}, Options{})
	copied.Replace(follower.Snapshot())
	for _, p := range []*Partition{r.Partition, follower, copied} {
		require.EqualValues(t, 0, p.lowWater())
		seqs, _ := p.DeferredBelow(4, 0, 9)
		require.Equal(t, []ident.Sequence{0}, seqs, "the next leader relocates it again")
		at, ok := p.relocatedFrom()
		require.True(t, ok)
		require.EqualValues(t, 200, at)
	}
	before = len(r.rep.deltas)
	require.NoError(t, r.Relocate(t.Context(), 200, []ident.Sequence{0}, true))
	for _, d := range r.rep.deltas[before:] {
		follower.Apply(d)
	}
	copied.Replace(follower.Snapshot())
	for _, p := range []*Partition{r.Partition, follower, copied} {
		require.EqualValues(t, 4, p.lowWater())
	}
}
