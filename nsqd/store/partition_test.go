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
