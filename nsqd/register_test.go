package nsqd

import (
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

func sampleDelta() []byte {
	return state.EncodeDelta([]state.Record{
		{Kind: state.KindCreate, Channel: "a", Flags: state.FlagOrdered, At: 7},
		{Kind: state.KindProgress, Channel: "b", Progress: cursor.Progress{
			Confirmed: 100,
			Settled:   []cursor.Span{{From: 102, To: 105}, {From: 110, To: 111}},
			Deferred:  []cursor.Entry{cursor.NewEntry(90, 1_700_000_000_000_000_000, 3), cursor.NewEntry(104, 0, 0)},
			Finished:  []ident.Sequence{50, 103},
		}},
		{Kind: state.KindSeek, Channel: "b", At: 12},
		{Kind: state.KindPause, Channel: "b", Flags: state.FlagPaused},
		{Kind: state.KindDelete, Channel: "a", At: 9},
		{Kind: state.KindBarrier, Flags: state.FlagPaused, At: 120},
		{Kind: state.KindKeep, At: 121},
	})
}

func sampleSnapshot() []byte {
	return state.AppendSnapshot(nil, state.Snapshot{
		Flags: state.FlagPaused, Barrier: 120, Keep: 3,
		Channels: []state.Channel{
			{Name: "a", Flags: state.FlagOrdered | state.FlagPaused, Start: 7, Progress: cursor.Progress{Confirmed: 7}},
			{Name: "b", Start: 1, Progress: cursor.Progress{
				Confirmed: 100, Settled: []cursor.Span{{From: 102, To: 105}}, Deferred: []cursor.Entry{cursor.NewEntry(90, 1_700_000_000_000_000_000, 3)},
			}},
		},
		Relocated: []state.Relocated{{Seq: 90, Latest: 4096}, {Seq: 95, Settled: 4096, Latest: 4096}, {Seq: 97, Settled: 4096, Latest: 8192}},
	})
}

// TestMalformedStateChangesNothing: a partition logs a malformed delta or snapshot and keeps its
// state.
func TestMalformedStateChangesNothing(t *testing.T) {
	delta, full := sampleDelta(), sampleSnapshot()
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	p := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{Log: log})
	p.Replace(full)
	before := p.Snapshot()
	p.Apply(delta[:len(delta)-1])
	p.Apply([]byte{9})
	p.Replace(full[:40])
	require.Equal(t, before, p.Snapshot())
	require.Equal(t, 3, strings.Count(out.String(), "ignored a malformed"))

	q := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{})
	q.Replace(before)
	require.Equal(t, before, q.Snapshot())
}

func applyTo(p *Partition, r ...state.Record) { p.Apply(state.EncodeDelta(r)) }

func TestAFollowerOnlyMovesForward(t *testing.T) {
	p := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{})
	settledAt := func(at ident.Sequence) state.Record {
		return state.Record{Kind: state.KindProgress, Channel: "c", Progress: cursor.Progress{Confirmed: at}}
	}
	applyTo(p, settledAt(500)) // a new channel, far beyond the end of the log
	c, ok := p.Channel("c")
	require.True(t, ok)
	require.EqualValues(t, 500, c.cursor.Start())
	applyTo(p, settledAt(300))
	require.EqualValues(t, 500, c.cursor.Confirmed())
	applyTo(p, state.Record{Kind: state.KindCreate, Channel: "c", At: 3})
	require.EqualValues(t, 500, c.cursor.Confirmed())
	applyTo(p, settledAt(700))
	require.EqualValues(t, 700, c.cursor.Confirmed())
	applyTo(p, state.Record{Kind: state.KindSeek, Channel: "c", At: 20})
	require.EqualValues(t, 20, c.cursor.Confirmed())
	require.EqualValues(t, 20, p.lowWater())
	require.False(t, p.Dirty())
	_, changed := c.cursor.TakeDelta()
	require.False(t, changed)
}

// TestALeaderWhoseChannelIsAheadOfTheLogMovesItBack: an operator made it the leader after the disks
// with the messages were lost. New messages take the sequences of the lost ones.
func TestALeaderWhoseChannelIsAheadOfTheLogMovesItBack(t *testing.T) {
	r := newRig(Options{})
	r.Unlead()
	ahead := []state.Record{
		{Kind: state.KindCreate, Channel: "c", At: 1},
		{Kind: state.KindProgress, Channel: "c", Progress: cursor.Progress{Settled: []cursor.Span{{From: 2, To: 5}}, Deferred: []cursor.Entry{cursor.NewEntry(2, 0, 0), cursor.NewEntry(6, 0, 0)}}},
		{Kind: state.KindCreate, Channel: "passed", At: 5},
	}
	follower := NewPartition("orders", testID, r.log, &replicas{}, Options{})
	for _, x := range ahead {
		applyTo(r.Partition, x)
		applyTo(follower, x)
	}
	r.publishN(3)
	r.Lead(2)
	c, _ := r.Channel("c")
	s := subscribe(t, c)
	require.Len(t, c.Pull(s, 9, nil), 2)
	r.publishN(4)
	require.Len(t, c.Pull(s, 9, nil), 4)
	requireExact(t, r.Partition, c)
	passed, _ := r.Channel("passed")
	require.Len(t, passed.Pull(subscribe(t, passed), 9, nil), 4)
	for _, d := range r.rep.deltas {
		follower.Apply(d)
	}
	require.Equal(t, r.lowWater(), follower.lowWater())
	followed, _ := follower.Channel("passed")
	require.EqualValues(t, 3, followed.cursor.Confirmed())
}

// TestALeaderWhoseTopicIsAheadOfTheLogMovesItBack: neither a pause nor the topic's cursor covers
// messages that are published later.
func TestALeaderWhoseTopicIsAheadOfTheLogMovesItBack(t *testing.T) {
	for name, ahead := range map[string]state.Record{
		"paused": {Kind: state.KindBarrier, Flags: state.FlagPaused, At: 5}, "emptied": {Kind: state.KindKeep, At: 5},
	} {
		r := newRig(Options{})
		r.Unlead()
		follower := NewPartition("orders", testID, r.log, &replicas{}, Options{})
		applyTo(r.Partition, ahead)
		applyTo(follower, ahead)
		r.publishN(3)
		r.Lead(2)
		r.publishN(4)
		c := r.channel(t, "c", ChannelOptions{Origin: FromBacklog})
		s := subscribe(t, c)
		if ahead.Kind == state.KindBarrier {
			require.Len(t, c.Pull(s, 9, nil), 3, name)
			for _, d := range r.rep.deltas {
				follower.Apply(d)
			}
			require.EqualValues(t, 3, follower.pause.barrier)
			require.NoError(t, r.PauseTopic(t.Context(), false))
		}
		require.Len(t, c.Pull(s, 9, nil), 4, name)
		requireExact(t, r.Partition, c)
	}
}

// TestKeepIsMovedBackOnAllReplicas: every later leader, and a restart from the stored state, gives
// the first channel the messages that were published since.
func TestKeepIsMovedBackOnAllReplicas(t *testing.T) {
	r := newRig(Options{})
	r.Unlead()
	next := NewPartition("orders", testID, r.log, &replicas{}, Options{})
	applyTo(r.Partition, state.Record{Kind: state.KindKeep, At: 5})
	next.Replace(r.Snapshot())
	r.publishN(3)
	r.Lead(2)
	r.publishN(4)
	for _, d := range r.rep.deltas {
		next.Apply(d)
	}
	require.EqualValues(t, 3, next.lowWater())
	next.Lead(3)
	c, err := next.CreateChannel(t.Context(), "c", ChannelOptions{Origin: FromBacklog})
	require.NoError(t, err)
	require.EqualValues(t, 3, c.confirmed())
}

// FuzzApply: no delta and no snapshot, malformed or strange, stops a partition, and its own snapshot
// restores its state.
func FuzzApply(f *testing.F) {
	f.Add(sampleDelta())
	f.Add(sampleSnapshot())
	f.Add(state.EncodeDelta(nil))
	f.Add(state.EncodeDelta([]state.Record{{Kind: state.KindKeep, At: 5}}))
	f.Add(state.EncodeDelta([]state.Record{{Kind: state.KindRelocate, Offset: 77, Seqs: []ident.Sequence{1, 5}}}))
	f.Add(state.AppendSnapshot(nil, state.Snapshot{Relocated: []state.Relocated{{Seq: 1, Latest: 77}, {Seq: 5, Settled: 77, Latest: 90}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{})
		p.Apply(b)
		p.Replace(b)
		p.Apply(b)
		q := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{})
		q.Replace(p.Snapshot())
		require.Equal(t, p.Snapshot(), q.Snapshot())
		require.Equal(t, p.lowWater(), q.lowWater())
		p.Lead(1)
		p.Expire(1)
		q.Replace(p.Snapshot())
		require.Equal(t, p.lowWater(), q.lowWater())
		p.Unlead()
	})
}
