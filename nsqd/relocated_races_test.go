package nsqd

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// postponed makes a rig with three messages: the channel has deferred the first two and holds the last one.
func postponed(t *testing.T) (*rig, *Channel, *Subscriber) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	r.publishN(3)
	require.Len(t, c.Pull(s, 9, nil), 3)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 60_000))
	require.NoError(t, c.Requeue(s, c.of(1, 0), 60_000))
	return r, c, s
}

// TestRelocationThatArrivesDuringTheDecision: a follower has a large snapshot with a new relocation in its queue when
// retention decides there. The decision forgot the new relocation: this follower, as the next leader, would give the
// message up, and so would every replica that copies its state.
func TestRelocationThatArrivesDuringTheDecision(t *testing.T) {
	r, _, _ := postponed(t)
	require.NoError(t, r.Relocate(t.Context(), 700, []ident.Sequence{0}, false))
	require.NoError(t, r.Relocate(t.Context(), 700, []ident.Sequence{0}, true))
	f := NewPartition("orders", testID, r.log, &replicas{}, Options{})
	f.Replace(r.Snapshot())
	require.NoError(t, r.Relocate(t.Context(), 800, []ident.Sequence{1}, false))
	for i := range 2000 { // the snapshot is not applied at once
		r.channel(t, fmt.Sprintf("%060d", i), ChannelOptions{})
	}
	f.Replace(r.Snapshot())
	require.True(t, f.updates.any.Load())
	f.Removable()
	require.Equal(t, r.relocations.list(), f.relocations.list())
}

// TestDecisionDuringTheNextRelocation: the batch of a relocated message has become old, and the message is relocated
// again. Wherever the next leader stands between the two records, it finds the message in the log that retention has
// left there.
func TestDecisionDuringTheNextRelocation(t *testing.T) {
	r, c, s := postponed(t)
	require.NoError(t, c.Finish(s, c.of(2, 1)))
	r.Flush()
	require.Equal(t, []ident.Sequence{0, 1}, r.relocate(t, 700, 3))
	first := len(r.rep.deltas)
	require.Equal(t, []ident.Sequence{0, 1}, r.relocate(t, 900, 3))
	for applied := first; applied <= len(r.rep.deltas); applied++ {
		f := NewPartition("orders", testID, r.log, &replicas{}, Options{})
		for _, d := range r.rep.deltas[:applied] {
			f.Apply(d)
		}
		below, from := f.Removable()
		at, ok := f.relocations.find(0)
		require.True(t, ok)
		require.LessOrEqual(t, from, at, "after %d deltas", applied)
		require.EqualValues(t, 3, below, "the original is not needed: a settled batch has it")
		if applied < len(r.rep.deltas) {
			require.EqualValues(t, 700, from, "a leader without the newer batch may be next")
		}
	}
}

// hookedLog calls a function once before it reads, as if the caller had been interrupted.
type hookedLog struct {
	*memoryLog
	beforeRead func()
}

func (l *hookedLog) interrupt() {
	if f := l.beforeRead; f != nil {
		l.beforeRead = nil
		f()
	}
}

func (l *hookedLog) Read(from ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	l.interrupt()
	return l.memoryLog.Read(from, most, dst)
}

func (l *hookedLog) ReadRelocated(at ident.Offset, seq ident.Sequence) (queue.Message, bool, error) {
	l.interrupt()
	return l.memoryLog.ReadRelocated(at, seq)
}

// TestReadDuringRelocation: retention relocates a message, or removes its former place, between the look at its place
// and the read. The channel gave the message up as lost.
func TestReadDuringRelocation(t *testing.T) {
	for name, interrupt := range map[string]struct{ before, during func(*rig) }{
		"relocated": {during: func(r *rig) { r.relocate(t, 900, 2) }},
		"relocated again": {
			before: func(r *rig) { r.relocate(t, 700, 2) },
			during: func(r *rig) { r.relocate(t, 900, 2); delete(r.log.relocated, 700) },
		},
		"removed": {
			before: func(r *rig) { r.relocate(t, 700, 2); r.log.start = 0 },
			during: func(r *rig) { r.log.start = 2 },
		},
	} {
		r := newRig(Options{})
		log := &hookedLog{memoryLog: r.log}
		r.source = log
		c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
		s := subscribe(t, c)
		r.publishN(3)
		require.Len(t, c.Pull(s, 9, nil), 3)
		require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
		require.NoError(t, c.Finish(s, c.of(1, 1)))
		require.NoError(t, c.Finish(s, c.of(2, 1)))
		if interrupt.before != nil {
			interrupt.before(r)
		}
		log.beforeRead = func() { interrupt.during(r) }
		require.Len(t, c.Pull(s, 1, nil), 1, name)
	}
}
