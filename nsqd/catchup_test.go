package nsqd

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// large gives the snapshot of a channel with so many delayed messages.
func large(t *testing.T, n int) []byte {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	for i := range n {
		c.cursor.putAside(newEntry(ident.Sequence(i), int64(i+1)<<40, 1))
	}
	full := r.Snapshot()
	require.Greater(t, len(full), atOnce)
	return full
}

func finished(seq ident.Sequence) []byte {
	return encodeDelta([]record{{kind: kindProgress, channel: "c", progress: progress{finished: []ident.Sequence{seq}}}})
}

// TestALargeSnapshotIsTakenOverLater: not on the core loop that brings it, and
// what comes behind it is not lost.
func TestALargeSnapshotIsTakenOverLater(t *testing.T) {
	const n = 10_000
	full := large(t, n)
	r := newRig(Options{})
	r.publishN(n)
	r.Unlead()
	p := r.Partition
	p.Replace(full)
	p.Apply(finished(7))
	require.Empty(t, p.channels)
	require.Len(t, p.told, 2)
	require.EqualValues(t, 0, p.LowWater(), "asking takes it over")
	require.Nil(t, p.told)
	require.Equal(t, n-1, p.AsideCount())
	p.Apply(finished(8))
	require.Equal(t, n-2, p.AsideCount())

	p.Replace(full)
	p.Apply([]byte{0})                                     // malformed
	p.Replace(append([]byte{99}, make([]byte, atOnce)...)) // malformed
	p.Apply(finished(9))
	p.Replace(full)
	p.Apply(finished(1))
	p.Apply(finished(2))
	p.Lead(1)
	require.Equal(t, n-2, p.AsideCount())
	require.Empty(t, p.told)

	small := newRig(Options{})
	small.channel(t, "other", ChannelOptions{})
	p.Unlead()
	p.Replace(small.Snapshot())
	require.Len(t, p.channels, 1, "a small one at once")
	require.Equal(t, []string{"other"}, p.Channels())
}

// TestTakingOverBesideTheLoop: the loop goes on telling while somebody takes over.
func TestTakingOverBesideTheLoop(t *testing.T) {
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
					p.AsideCount()
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
	require.Equal(t, n-100, p.AsideCount())
	close(stop)
	readers.Wait()
	require.Equal(t, n-100, p.AsideCount())
}
