package store

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// readCacheBytes bounds the read cache of all partitions in bytes. The most recent run may exceed it by itself,
	// because a large batch is read in small consecutive parts.
	readCacheBytes = 4 << 20
	// minRunBytes is the minimum size that is charged for a run, because every lookup visits each run.
	minRunBytes = 16 << 10
)

// readCache holds the batches that were last read from segments. Channels that drain the same log are at about the same
// position. The first of them reads, checks and decodes the file. The others find the batches here, catch up with the
// first, and stay close to it. Batches never change; a cut of the log makes earlier runs invalid (cuts).
type readCache struct {
	mu struct {
		sync.Mutex
		runs  []run // oldest first
		bytes int
	}
}

type run struct {
	p       *Partition
	cuts    uint64 // Partition.mu.cuts before the read
	batches []queue.Batch
}

// bytes is the size charged for the run.
func (r *run) bytes() int {
	return max(int(r.batches[len(r.batches)-1].End.Offset-r.batches[0].At.Offset), minRunBytes)
}

// find returns about max bytes of cached batches, at least one, beginning with the batch at from; nil if there are
// none.
func (r *readCache) find(p *Partition, cuts uint64, from ident.Offset, max int) []queue.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.mu.runs {
		if x := &r.mu.runs[i]; x.p == p && x.cuts == cuts {
			if b := part(x.batches, from, max); b != nil {
				return b
			}
		}
	}
	return nil
}

// part returns about max bytes of a run, from the batch that begins at from.
func part(b []queue.Batch, from ident.Offset, max int) []queue.Batch {
	i := sort.Search(len(b), func(i int) bool { return b[i].At.Offset >= from })
	if i == len(b) || b[i].At.Offset != from {
		return nil
	}
	return upTo(max, b[i:])
}

// add adds a run and drops the oldest ones.
func (r *readCache) add(x run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.runs = append(r.mu.runs, x)
	for r.mu.bytes += x.bytes(); r.mu.bytes > readCacheBytes && len(r.mu.runs) > 1; {
		r.mu.bytes -= r.mu.runs[0].bytes()
		r.mu.runs = slices.Delete(r.mu.runs, 0, 1)
	}
}

// batchOverhead is the memory of a batch in bytes besides its content.
const batchOverhead = 160

// tails bounds the memory of the newest batches of all partitions. The batches are a cache of the
// journal and the segments. Above the bound, the least recently used partitions release theirs.
type tails struct {
	bytes atomic.Int64 // memory of all tails
	uses  atomic.Int64 // counts uses; serves as the logical clock of Partition.used
}

func cost(b *queue.Batch) int { return len(b.Bytes) + batchOverhead }

func (p *Partition) chargeLocked(bytes int) {
	p.mu.tailBytes += bytes
	p.store.tails.bytes.Add(int64(bytes))
}

func (p *Partition) use() { p.used.Store(p.store.tails.uses.Add(1)) }

// trimTails reduces the tails to an eighth below the bound when they exceed it. The writer calls it.
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

// releaseTail writes the durable part of the tail to the segments and drops that part from memory.
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
