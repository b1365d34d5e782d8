package store

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestSearchFails: the commit log does not have a message, and one of the reads that search the
// segments for it fails. The result still holds the message.
func TestSearchFails(t *testing.T) {
	mem, w := filled(t, 10)
	require.NoError(t, w.store.Close())
	for n := int64(1); n <= 4; n++ {
		var reads atomic.Int64
		var armed atomic.Bool
		s := reopen(t, testOptions(vfstest.Wrap(mem, func(op vfstest.Op) error {
			if armed.Load() && op.Call == vfstest.CallRead && reads.Add(1) == n {
				return syscall.EIO
			}
			return nil
		})))
		p := s.Partitions()[1]
		p.Index().Restart(p.Index().End())
		armed.Store(true)
		want := p.Restored().End.Sequence - 1
		b, err := p.ReadSequence(want, 1)
		armed.Store(false)
		if err == nil && len(b) > 0 {
			require.LessOrEqual(t, b[0].At.Sequence, want)
			require.Greater(t, b[0].End.Sequence, want, "read %d", n)
		}
		require.NoError(t, s.Close())
	}
}

// TestReadersBesideWriter: readers read the whole committed log repeatedly while it grows, is cut
// above the committed end, and moves to the segments. They see the chain without gaps.
func TestReadersBesideWriter(t *testing.T) {
	w, err := newWorld(t, 9, vfstest.NewMemory())
	require.NoError(t, err)
	m := w.models[0]
	var mu sync.Mutex
	var committed ident.Position
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for r := range 3 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(9, uint64(r)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				mu.Lock()
				end := committed
				mu.Unlock()
				walk(t, m.p, rng, end)
			}
		})
	}
	for range 300 {
		sub := Submission{Partition: m.p}
		if w.rng.IntN(4) == 0 {
			at := m.cut(w.rng)
			sub.Writes = append(sub.Writes, queue.Write{Kind: queue.WriteTruncate, At: at, PrevCRC: m.end().crc})
		}
		sub.Writes = append(sub.Writes, queue.Write{Kind: queue.WriteAppend, Batches: []queue.Batch{m.batch(w.rng, m.draft(w.rng)), m.batch(w.rng, m.draft(w.rng))}})
		w.note()
		w.store.Submit([]Submission{sub}, w, uint64(w.submitted()))
		if w.rng.IntN(5) == 0 {
			require.NoError(t, w.settle())
			mu.Lock()
			m.committed = m.end().at
			committed = m.committed
			mu.Unlock()
		}
	}
	require.NoError(t, w.settle())
	close(stop)
	readers.Wait()
	require.NoError(t, w.store.Close())
}

// walk reads from a random sequence to the committed end.
func walk(t *testing.T, p *Partition, rng *rand.Rand, end ident.Position) {
	if end.Sequence == 0 {
		return
	}
	from := ident.Sequence(rng.Uint64N(uint64(end.Sequence)))
	batches, err := p.ReadSequence(from, 5000)
	if !checkRead(t, err, len(batches)) {
		return
	}
	if b := batches[0]; b.At.Sequence > from || b.End.Sequence <= from {
		t.Errorf("sequence %d is not in %+v", from, b.At)
	}
	at := batches[0].At.Offset
	crc := batches[0].PrevCRC
	for at < end.Offset {
		batches, err := p.ReadAt(at, 5000)
		if !checkRead(t, err, len(batches)) {
			return
		}
		for _, b := range batches {
			if at < end.Offset && (b.At.Offset != at || b.PrevCRC != crc) {
				t.Errorf("the chain breaks at %d: %+v", at, b.At)
				return
			}
			at, crc = b.End.Offset, b.CRC
		}
	}
}

func checkRead(t *testing.T, err error, n int) bool {
	if err != nil || n == 0 {
		t.Errorf("read: %d batches, %v", n, err)
		return false
	}
	return true
}
