package store

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// batchOverhead is what a batch in memory takes besides its bytes.
const batchOverhead = 160

// tails bounds the memory that the newest batches of all partitions take. They are
// a cache of what the journal and the segments hold: when there is too much of
// it, the partitions that were used least recently give theirs back.
type tails struct {
	bytes atomic.Int64 // of all tails
	uses  atomic.Int64 // counts uses: the clock of Partition.used
}

func cost(b *queue.Batch) int { return len(b.Bytes) + batchOverhead }

func (p *Partition) chargeLocked(bytes int) {
	p.mu.tailBytes += bytes
	p.store.tails.bytes.Add(int64(bytes))
}

// use notes that the tail was written or read.
func (p *Partition) use() { p.used.Store(p.store.tails.uses.Add(1)) }

// trimTails brings the tails down when they are over the bound: an eighth below
// it, so that it is not done for every few batches. The writer's goroutine.
func (s *Store) trimTails() error {
	if s.tails.bytes.Load() <= s.o.TailsBytes {
		return nil
	}
	partitions := s.Partitions()
	used := make(map[*Partition]int64, len(partitions)) // as it is now: others go on
	for _, p := range partitions {
		used[p] = p.used.Load()
	}
	slices.SortFunc(partitions, func(a, b *Partition) int { return cmp.Compare(used[a], used[b]) })
	for _, p := range partitions {
		if s.tails.bytes.Load() <= s.o.TailsBytes/8*7 {
			return nil
		}
		if err := p.releaseTail(); err != nil {
			return err
		}
	}
	return nil
}

// releaseTail gives back what is durable of the tail, after it was brought into
// the segments.
func (p *Partition) releaseTail() error {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed {
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropTailLocked(p.mu.written)
	return nil
}

// dropTailLocked lets go of the batches that end at or below an offset.
func (p *Partition) dropTailLocked(end ident.Offset) {
	n := 0
	for n < len(p.mu.tail) && p.mu.tail[n].End.Offset <= end {
		p.chargeLocked(-cost(&p.mu.tail[n]))
		n++
	}
	p.mu.tail = append([]queue.Batch(nil), p.mu.tail[n:]...) // readers may hold the old array
}
