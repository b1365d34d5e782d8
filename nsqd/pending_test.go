package nsqd

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// large returns the snapshot of a channel with n delayed messages.
func large(t *testing.T, n int) []byte {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	for i := range n {
		c.cursor.DeferUntil(cursor.NewEntry(ident.Sequence(i), int64(i+1)<<40, 1))
	}
	full := r.Snapshot()
	require.Greater(t, len(full), applyAtOnceBytes)
	return full
}

func finished(seq ident.Sequence) []byte {
	return state.EncodeDelta([]state.Record{{Kind: state.KindProgress, Channel: "c", Progress: cursor.Progress{Finished: []ident.Sequence{seq}}}})
}

// TestLargeSnapshotIsAppliedLater: not on the core loop that receives it; later deltas are not
// lost.
func TestLargeSnapshotIsAppliedLater(t *testing.T) {
	const n = 10_000
	full := large(t, n)
	r := newRig(Options{})
	r.publishN(n)
	r.Unlead()
	p := r.Partition
	p.Replace(full)
	p.Apply(finished(7))
	require.Empty(t, p.channels)
	require.Len(t, p.updates.queue, 2)
	require.EqualValues(t, 0, p.lowWater(), "the call applies it")
	require.Nil(t, p.updates.queue)
	require.Equal(t, n-1, p.DeferredCount())
	p.Apply(finished(8))
	require.Equal(t, n-2, p.DeferredCount())

	p.Replace(full)
	p.Apply([]byte{0})                                               // malformed
	p.Replace(append([]byte{99}, make([]byte, applyAtOnceBytes)...)) // malformed
	p.Apply(finished(9))
	p.Replace(full)
	p.Apply(finished(1))
	p.Apply(finished(2))
	p.Lead(1)
	require.Equal(t, n-2, p.DeferredCount())
	require.Empty(t, p.updates.queue)

	small := newRig(Options{})
	small.channel(t, "other", ChannelOptions{})
	p.Unlead()
	p.Replace(small.Snapshot())
	require.Len(t, p.channels, 1, "a small one at once")
	require.Equal(t, []string{"other"}, p.Channels())

	p.Replace(full)
	_, ok := p.Channel("c")
	require.True(t, ok)
	p.Replace(small.Snapshot())
	p.Replace(full)
	require.Equal(t, []string{"c"}, p.Channels())
}

// TestApplyPendingBesideTheLoop: the loop passes on further deltas during ApplyPending.
func TestApplyPendingBesideTheLoop(t *testing.T) {
	const n, rounds = 10_000, 20
	full := large(t, n)
	p := NewPartition("orders", testID, &memoryLog{}, nil, Options{})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					p.DeferredCount()
				}
			}
		})
	}
	for range rounds {
		p.Replace(full)
		for seq := range ident.Sequence(100) {
			p.Apply(finished(seq))
		}
	}
	require.Equal(t, n-100, p.DeferredCount())
	close(stop)
	readers.Wait()
	require.Equal(t, n-100, p.DeferredCount())
}
