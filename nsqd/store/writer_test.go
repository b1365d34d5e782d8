package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestCompact: a long history of deltas becomes one full version.
func TestCompact(t *testing.T) {
	o := testOptions(vfstest.NewMemory())
	folded := 0
	o.Compact = func(topic string, _ ident.Partition, versions []queue.StateVersion) ([]byte, bool) {
		folded++
		return []byte(topic), versions[0].Full
	}
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	w := &world{t: t, store: s}
	w.cond.L = &w.mu
	w.note()
	w.note()
	writes := make([]queue.Write, compactDeltas)
	for n := range writes {
		writes[n] = queue.Write{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 1, N: uint64(n + 1), Full: n == 0, Delta: []byte("x")}}
	}
	s.Submit([]Submission{{p, writes}}, w, 1)
	require.NoError(t, w.settle())
	require.NoError(t, s.Close())
	require.Equal(t, 1, folded)
	want := []queue.StateVersion{{Epoch: 1, N: compactDeltas, Full: true, Delta: []byte("t")}}
	require.Equal(t, want, reopen(t, o).Partitions()[0].States())
}
