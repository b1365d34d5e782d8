package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestQuarantine: a range outside of the log is no damage any more, nor is one that another read
// finds whole.
func TestQuarantine(t *testing.T) {
	var q quarantine
	for i := range ident.Offset(maxQuarantine) {
		require.True(t, q.add(queue.Damage{From: 10 * i, To: 10*i + 10}))
	}
	require.False(t, q.add(queue.Damage{From: 5, To: 10}), "too many")
	q.retain(20, 50)
	require.Len(t, q, 3)
	require.False(t, q.add(queue.Damage{From: 30, To: 40}), "it is known")
	q.release(30, 31)
	require.Equal(t, quarantine{{From: 20, To: 30}, {From: 40, To: 50}}, q)

	_, p, sent := longLog(t)
	require.False(t, p.addToQuarantine(queue.Damage{From: p.Restored().End.Offset, To: p.Restored().End.Offset + 1}), "it was cut")
	require.True(t, p.addToQuarantine(queue.Damage{From: sent[3].At.Offset, To: sent[3].End.Offset}))
	_, err := p.Repair(sent[3:4])
	require.NoError(t, err)
	require.Empty(t, p.Damaged(), "it is whole")

	require.NoError(t, p.TrimHead(sent[len(sent)-1].At))
	require.NotZero(t, p.Start().Offset)
	require.False(t, p.addToQuarantine(queue.Damage{From: 0, To: 1}), "retention took it")
}
