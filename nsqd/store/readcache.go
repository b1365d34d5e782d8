package store

import (
	"slices"
	"sort"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// readCacheBytes bounds the read cache of all partitions in bytes. The run that was read last
	// may exceed it alone, because a large batch is read in small parts one after the other.
	readCacheBytes = 4 << 20
	// minRunBytes is the least size that a run counts, because every lookup visits each run.
	minRunBytes = 16 << 10
)

// readCache has the batches that were last read from segments. Channels that drain the same log are at about the same
// place. The first of them reads the file, checks and decodes it. The others find the batches here, catch up with the
// first, and stay with it. Batches never change; a cut of the log makes earlier runs invalid (cuts).
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

// bytes is the size that the run counts.
func (r *run) bytes() int {
	return max(int(r.batches[len(r.batches)-1].End.Offset-r.batches[0].At.Offset), minRunBytes)
}

// find returns about max bytes of cached batches, at least one, beginning with the batch at from; nil: none.
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
