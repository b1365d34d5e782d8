package store

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// batchOverhead is the memory of a batch in bytes besides its content.
const batchOverhead = 160

// tails bounds the memory of the newest batches of all partitions. The batches are a cache of the
// journal and the segments. Above the bound, the least recently used partitions release theirs.
type tails struct {
	bytes atomic.Int64 // memory of all tails
	uses  atomic.Int64 // counts uses: the logical clock of Partition.used
}

func cost(b *queue.Batch) int { return len(b.Bytes) + batchOverhead }

func (p *Partition) chargeLocked(bytes int) {
	p.mu.tailBytes += bytes
	p.store.tails.bytes.Add(int64(bytes))
}

func (p *Partition) use() { p.used.Store(p.store.tails.uses.Add(1)) }

// trimTails brings the tails an eighth below the bound when they exceed it. The writer calls it.
func (s *Store) trimTails() error {
	if s.tails.bytes.Load() <= s.o.TailsBytes {
		return nil
	}
	partitions := s.Partitions()
	used := make(map[*Partition]int64, len(partitions)) // a copy, because uses change concurrently
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

// releaseTail writes the durable part of the tail to the segments and drops it from memory.
func (p *Partition) releaseTail() error {
	return p.afterFlush(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dropTailLocked(p.mu.written)
		return nil
	})
}

// dropTailLocked drops the batches that end at or below an offset.
func (p *Partition) dropTailLocked(end ident.Offset) {
	n := 0
	for n < len(p.mu.tail) && p.mu.tail[n].End.Offset <= end {
		p.chargeLocked(-cost(&p.mu.tail[n]))
		n++
	}
	p.mu.tail = append([]queue.Batch(nil), p.mu.tail[n:]...) // readers may use the old array
}
