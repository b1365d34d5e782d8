package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func FuzzDecodeRecord(f *testing.F) {
	d := queue.Marker()
	b := d.Seal(ident.Position{}, 1, 0, 1)
	f.Add(appendRecord(nil, 7, &queue.Write{Kind: queue.WriteReset, Epoch: 1, Batches: []queue.Batch{b}}))
	f.Add(appendRecord(nil, 7, &queue.Write{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 1, N: 1, Full: true, Delta: []byte("x")}}))
	f.Add(encodeSnapshot([]queue.StateVersion{{Epoch: 1, N: 1, Full: true, Delta: []byte("x")}}))
	f.Add((&checkpoint{bootID: "b", entries: map[uint64]entry{7: {epoch: 1}}}).encode([]uint64{7}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, n, err := DecodeRecord(b); err == nil {
			require.LessOrEqual(t, n, len(b))
			require.LessOrEqual(t, r.Kind, queue.WriteRestart)
		}
		_, _ = decodeSnapshot(b)
		_, _ = decodeCheckpoint(b)
	})
}
