package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestReleaseRestored: the store does not keep data for the life of the process that the replica
// has copied.
func TestReleaseRestored(t *testing.T) {
	o := testOptions(vfstest.NewMemory())
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	d := queue.NewDraft(0)
	_ = d.AddMessage(queue.Message{Body: []byte("x")})
	draft := d.Draft(ident.RequestID{Producer: 1, N: 1})
	b := draft.Seal(ident.Position{}, 1, 0, 1)
	p.Index().Append(b.Record())
	submit(t, s, p, queue.Write{Kind: queue.WriteAppend, Batches: []queue.Batch{b}})
	submit(t, s, p, queue.Write{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 1, N: 1, Full: true, Delta: []byte("x")}})
	require.NoError(t, s.Close())

	p = reopen(t, o).Partitions()[0]
	require.Len(t, p.Restored().Recent, 1)
	require.Len(t, p.States(), 1)
	p.ReleaseRestored()
	require.Empty(t, p.Restored().Recent)
	require.Empty(t, p.States())
	require.Equal(t, b.End, p.Restored().End)
}

// TestTailMayBeFull: a tail keeps as much as it may have, and not more.
func TestTailMayBeFull(t *testing.T) {
	s := reopen(t, testOptions(vfstest.NewMemory()))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 3, 100)
	m.checkpoint(t, s)
	require.Len(t, p.mu.tail, 3)
	p.tailMax = p.mu.tailBytes
	p.wroteUpTo(p.mu.end.Offset, p.mu.cuts)
	require.Len(t, p.mu.tail, 3)
	p.tailMax--
	p.wroteUpTo(p.mu.end.Offset, p.mu.cuts)
	require.Len(t, p.mu.tail, 2)
}
