package store

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Partition is one partition on this disk.
type Partition struct {
	store    *Store
	id       ident.Partition
	topic    string
	dir      string
	slot     uint64        // names the folder in the journal and the checkpoint
	storeID  ident.StoreID // never changes after Open or Create
	index    *commitlog.Log
	segments *queue.Segments
	tailMax  int
	used     atomic.Int64 // when the tail was last; see tails

	// files serializes what changes the files: the writer, TrimHead, Trash.
	files   sync.Mutex
	trashed bool // under files
	durable durableState

	mu struct {
		sync.RWMutex
		tail      []queue.Batch  // the newest batches, without gaps up to end
		tailBytes int            // what tail takes
		written   ident.Offset   // batches that end here or below are in the segments
		first     ident.Position // start of the log
		end       ident.Position // of what was submitted
		cuts      uint64         // counts cuts, so that work done meanwhile is recognised
		restored  queue.Restored
		confirms  []queue.Confirm

		quarantine quarantine
	}
}

// durableState is the partition as the journal has it durable, in the order of
// the journal: the writer's, under Partition.files.
type durableState struct {
	entry
	pending      []queue.Batch // not in the segments yet
	pendingBytes int
	cuts         uint64 // Partition.mu.cuts after the newest write that is durable
	history      []queue.Confirm
	dirty        bool // changed since the last checkpoint
	historyDirty bool
}

// ID names the partition.
func (p *Partition) ID() ident.Partition { return p.id }

// Topic is the topic's name.
func (p *Partition) Topic() string { return p.topic }

// StoreID names the acknowledged bytes of this folder.
func (p *Partition) StoreID() ident.StoreID { return p.storeID }

// Restored is what Open found, or nothing after Create.
func (p *Partition) Restored() queue.Restored {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mu.restored
}

// Confirms is the channel state that Open found: a full version and the deltas
// after it, to be replayed in this order.
func (p *Partition) Confirms() []queue.Confirm {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mu.confirms
}

// Adopted lets go of the recent puts and the channel state that Open found: a
// replica has its own copy of them now, for as long as this process lives.
func (p *Partition) Adopted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.confirms, p.mu.restored.Recent = nil, nil
}

// Index is the commit log. The replica's machine keeps it in step with its own
// end; the store reads it and writes it to disk.
func (p *Partition) Index() *commitlog.Log { return p.index }

// DiskBytes is the size of the segments.
func (p *Partition) DiskBytes() int64 { return p.segments.Bytes() }

// Start is the first position still held.
func (p *Partition) Start() ident.Position {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mu.first
}

// tailStartLocked is where the memory tail begins.
func (p *Partition) tailStartLocked() ident.Offset {
	if len(p.mu.tail) == 0 {
		return p.mu.end.Offset
	}
	return p.mu.tail[0].At.Offset
}

// submitted brings the memory in step with a write, before it is durable:
// readers see the newest batches at once.
func (p *Partition) submitted(w *queue.Write) (cuts uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch w.Kind {
	case queue.WriteTruncate, queue.WriteReset:
		p.cutLocked(w.At)
	case queue.WriteRestart:
		p.mu.cuts++
		p.dropTailLocked(p.mu.end.Offset)
		p.mu.first, p.mu.end, p.mu.written = w.At, w.At, w.At.Offset
		p.mu.quarantine = nil
	}
	if len(w.Batches) > 0 {
		p.use()
	}
	for _, b := range w.Batches {
		if b.At != p.mu.end {
			panic(fmt.Sprintf("store: %s: batch for %+v submitted at %+v", p.id, b.At, p.mu.end))
		}
		p.mu.tail = append(p.mu.tail, b)
		p.chargeLocked(cost(&b))
		p.mu.end = b.End
	}
	return p.mu.cuts
}

// cutLocked drops what lies at or above the position.
func (p *Partition) cutLocked(at ident.Position) {
	if at.Offset >= p.mu.end.Offset {
		return
	}
	p.mu.cuts++
	i := sort.Search(len(p.mu.tail), func(i int) bool { return p.mu.tail[i].At.Offset >= at.Offset })
	for _, b := range p.mu.tail[i:] {
		p.chargeLocked(-cost(&b))
	}
	p.mu.tail = slices.Clone(p.mu.tail[:i]) // readers may hold the old array
	p.mu.end, p.mu.written = at, min(p.mu.written, at.Offset)
	p.mu.quarantine.keep(0, at.Offset)
}

// wroteUpTo notes that the segments hold everything below end, unless the log
// was cut since, and lets go of what the tail need not keep.
func (p *Partition) wroteUpTo(end ident.Offset, cuts uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.cuts != cuts {
		return
	}
	p.mu.written = max(p.mu.written, end)
	n := 0
	for n < len(p.mu.tail) && p.mu.tailBytes > p.tailMax && p.mu.tail[n].End.Offset <= p.mu.written {
		p.chargeLocked(-cost(&p.mu.tail[n]))
		n++
	}
	// Readers may hold the array, so the entries before n stay as they are until
	// append takes a new one: at most a quarter of what is kept. Copying here, at
	// each flush, cost 7 % of all CPU.
	p.mu.tail = p.mu.tail[n:]
}
