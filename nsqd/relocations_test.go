package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

func seqs(s ...ident.Sequence) []ident.Sequence { return s }

// TestDeltasAreIdempotent: an older delta on a newer state changes nothing, and a settled batch stays settled.
func TestDeltasAreIdempotent(t *testing.T) {
	var m relocations
	deltas := func() {
		m.add(100, seqs(1, 2), false)
		m.add(100, seqs(1, 2), true)
		m.add(200, seqs(2), false)
	}
	deltas()
	want := []state.Relocated{{Seq: 1, Settled: 100, Latest: 100}, {Seq: 2, Settled: 100, Latest: 200}}
	require.Equal(t, want, m.list())
	deltas()
	require.Equal(t, want, m.list())

	var again relocations
	again.replace(want)
	require.Equal(t, want, again.list())
}

// TestTheOriginalMayGoOnceSettled: and only for a batch at or above the offset that stays.
func TestTheOriginalMayGoOnceSettled(t *testing.T) {
	var m relocations
	m.add(100, seqs(1), false)
	require.False(t, m.holds(1, 0))
	m.add(100, seqs(1), true)
	require.True(t, m.holds(1, 100))
	require.False(t, m.holds(1, 101), "retention takes the batch, too")
	require.False(t, m.holds(2, 0))
	at, ok := m.find(1)
	require.True(t, ok)
	require.EqualValues(t, 100, at)
}

// TestASettledBatchStaysUntilTheNextOneIsSettled: the next leader may not have the next batch, or an operator may choose
// one whose log ends before it.
func TestASettledBatchStaysUntilTheNextOneIsSettled(t *testing.T) {
	all := func(ident.Sequence) bool { return true }
	var m relocations
	m.add(100, seqs(1), true)
	m.add(200, seqs(1), false)
	at, _ := m.find(1)
	require.EqualValues(t, 100, at)
	require.True(t, m.holds(1, 100))
	require.False(t, m.holds(1, 200))
	low, _ := m.retain(all)
	require.EqualValues(t, 100, low)
	m.forgetFrom(150, m.beyond(150))
	require.Equal(t, []state.Relocated{{Seq: 1, Settled: 100, Latest: 100}}, m.list())
	m.add(200, seqs(1), true)
	low, _ = m.retain(all)
	require.EqualValues(t, 200, low)
	at, _ = m.find(1)
	require.EqualValues(t, 200, at)
}

// TestEntriesLeave: those beyond the end of the log by ForgetFrom, those that no channel needs by Retain.
func TestEntriesLeave(t *testing.T) {
	var m relocations
	m.add(100, seqs(1, 2), true)
	m.add(300, seqs(3), false)
	require.Equal(t, seqs(3), m.beyond(200))
	m.forgetFrom(200, m.beyond(200))
	_, ok := m.find(3)
	require.False(t, ok)
	low, any := m.retain(func(seq ident.Sequence) bool { return seq == 2 })
	require.True(t, any)
	require.EqualValues(t, 100, low)
	require.Equal(t, []state.Relocated{{Seq: 2, Settled: 100, Latest: 100}}, m.list())
	_, any = m.retain(func(ident.Sequence) bool { return false })
	require.False(t, any)
}
