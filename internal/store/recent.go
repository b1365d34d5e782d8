package store

import (
	"slices"
	"sort"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// sharedBytes bounds what recent keeps of all partitions, but for a larger batch
	// that was read last: it is read for one small part of it after the other.
	sharedBytes = 4 << 20
	// sharedLeast is what a run counts at least: every read looks at each of them.
	sharedLeast = 16 << 10
)

// recent is what was read from segments lately. Channels that drain the same log
// are at about the same place: the first of them reads the file, checks and
// decodes it, the others find it here, catch up with the first and stay with it.
// Batches never change; a cut of the log makes those read before it unknown.
type recent struct {
	mu struct {
		sync.Mutex
		runs  []run // oldest first
		bytes int
	}
}

// run is batches that follow each other.
type run struct {
	p       *Partition
	cuts    uint64 // of the log, before they were read
	batches []queue.Batch
}

// bytes is what the run counts.
func (r *run) bytes() int {
	return max(int(r.batches[len(r.batches)-1].End.Offset-r.batches[0].At.Offset), sharedLeast)
}

// find gives batches from the one that begins at from: about max bytes, at least
// one; nil if they are not here.
func (r *recent) find(p *Partition, cuts uint64, from ident.Offset, max int) []queue.Batch {
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

// part gives about max bytes of a run, from the batch that begins at from.
func part(b []queue.Batch, from ident.Offset, max int) []queue.Batch {
	i := sort.Search(len(b), func(i int) bool { return b[i].At.Offset >= from })
	if i == len(b) || b[i].At.Offset != from {
		return nil
	}
	return upTo(max, b[i:])
}

// keep notes what was read; the oldest goes.
func (r *recent) keep(x run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.runs = append(r.mu.runs, x)
	for r.mu.bytes += x.bytes(); r.mu.bytes > sharedBytes && len(r.mu.runs) > 1; {
		r.mu.bytes -= r.mu.runs[0].bytes()
		r.mu.runs = slices.Delete(r.mu.runs, 0, 1)
	}
}
