package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Many partitions together keep as little in memory as a few do. Released batches are read from the
// segments.
func TestTailsOfAllPartitionsAreBounded(t *testing.T) {
	const partitions, bound = 40, 64 << 10
	w := newTailsWorld(t, partitions, bound)
	for range 50 {
		for i := range w.partitions {
			w.put(i, 200)
		}
	}
	w.until(func() bool { return w.s.tails.bytes.Load() <= bound })
	sum := 0
	for i, p := range w.partitions {
		sum += p.mu.tailBytes
		batches, err := p.ReadAt(0, 1<<20)
		require.NoError(t, err)
		for len(batches) > 0 && batches[len(batches)-1].End.Offset < w.ends[i].Offset {
			more, err := p.ReadAt(batches[len(batches)-1].End.Offset, 1<<20)
			require.NoError(t, err)
			batches = append(batches, more...)
		}
		require.Len(t, batches, 50)
	}
	require.EqualValues(t, sum, w.s.tails.bytes.Load(), "the sum equals the memory in use")
}

// A partition in use keeps its tail; one that is not releases its own first.
func TestLeastUsedTailGoesFirst(t *testing.T) {
	w := newTailsWorld(t, 2, 64<<10)
	w.put(0, 20<<10)
	w.put(1, 20<<10)
	_, err := w.partitions[0].ReadAt(0, 1)
	require.NoError(t, err)
	for range 6 { // until one must go
		w.put(0, 5<<10)
	}
	w.until(func() bool { return w.s.tails.bytes.Load() <= 64<<10 })
	require.Empty(t, w.partitions[1].mu.tail)
	require.NotEmpty(t, w.partitions[0].mu.tail)
	require.NoError(t, w.s.Trash(w.partitions[0].ID()))
	require.Zero(t, w.s.tails.bytes.Load())
}

// tailsWorld is a store with several partitions and a bound on their tails.
type tailsWorld struct {
	t          *testing.T
	s          *Store
	partitions []*Partition
	ends       []ident.Position
	crcs       []uint32
}

func newTailsWorld(t *testing.T, partitions int, bound int64) *tailsWorld {
	o := testOptions(vfstest.NewMemory())
	o.TailBytes, o.TailsBytes = 1<<20, bound
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w := &tailsWorld{t: t, s: s, ends: make([]ident.Position, partitions), crcs: make([]uint32, partitions)}
	for n := range partitions {
		p, err := s.Create("t", ident.Partition{Topic: 1, Number: uint16(n)})
		require.NoError(t, err)
		w.partitions = append(w.partitions, p)
	}
	return w
}

// put submits one batch and waits until it is durable.
func (w *tailsWorld) put(i, size int) {
	d := queue.NewDraft(size)
	_ = d.AddMessage(queue.Message{Body: make([]byte, size)})
	draft := d.Draft(ident.RequestID{})
	batch := draft.Seal(w.ends[i], 1, w.crcs[i], 1)
	w.ends[i], w.crcs[i] = batch.End, batch.CRC
	w.partitions[i].Index().Append(batch.Record())
	durable := &waiter{slots: make(chan uint64, 1)}
	w.s.Submit([]Submission{{Partition: w.partitions[i], Writes: []queue.Write{
		{Kind: queue.WriteAppend, Epoch: 1, Batches: []queue.Batch{batch}},
	}}}, durable, 1)
	<-durable.slots
}

// until waits for a condition: acknowledged submissions reach the writer a moment later.
func (w *tailsWorld) until(ok func() bool) {
	wait.Until(w.t, func() bool { return w.s.Checkpoint() == nil && ok() }, "the tails are bounded")
}
