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
	segments *segments
	tailMax  int
	used     atomic.Int64 // last use of the tail; see tails

	// files serializes changes of the files: the writer, TrimHead, Repair, Trash.
	files   sync.Mutex
	trashed bool // guarded by files
	durable durableState

	mu struct {
		sync.RWMutex
		tail      []queue.Batch  // the newest batches, without gaps up to end
		tailBytes int            // memory of tail
		written   ident.Offset   // batches that end here or below are in the segments
		first     ident.Position // start of the log
		end       ident.Position // end of the submitted batches
		cuts      uint64         // counts cuts, to recognise results from before a cut
		restored  queue.Restored
		states    []queue.StateVersion

		quarantine quarantine
	}
}

// durableState is the state of the partition that is durable in the journal. It belongs to the writer and is guarded by
// Partition.files.
type durableState struct {
	entry
	pending      []queue.Batch // not in the segments yet
	pendingBytes int
	cuts         uint64 // Partition.mu.cuts after the newest durable write
	history      []queue.StateVersion
	dirty        bool // changed since the last checkpoint
	historyDirty bool
}

// ID returns the partition's id.
func (p *Partition) ID() ident.Partition { return p.id }

// Topic returns the name of the topic.
func (p *Partition) Topic() string { return p.topic }

// StoreID names the acknowledged bytes of this folder.
func (p *Partition) StoreID() ident.StoreID { return p.storeID }

// Restored is the state that Open found; the zero value after Create.
func (p *Partition) Restored() queue.Restored {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mu.restored
}

// States are the versions of the channel state that Open found: a full one and the deltas after it, in order.
func (p *Partition) States() []queue.StateVersion {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mu.states
}

// ReleaseRestored releases the recent puts and the channel state, of which the replica has a copy.
func (p *Partition) ReleaseRestored() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.states, p.mu.restored.Recent = nil, nil
}

// Index is the commit log. The replica's machine appends to it and cuts it; the store writes it to disk.
func (p *Partition) Index() *commitlog.Log { return p.index }

// DiskBytes is the size of the segments in bytes.
func (p *Partition) DiskBytes() int64 { return p.segments.bytes() }

// Start is the first position that the log still has.
func (p *Partition) Start() ident.Position {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mu.first
}

// submitted applies a write to the state in memory before it is durable, so that readers see the newest batches at
// once.
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

// cutLocked drops the batches at or above the position.
func (p *Partition) cutLocked(at ident.Position) {
	if at.Offset >= p.mu.end.Offset {
		return
	}
	p.mu.cuts++
	i := sort.Search(len(p.mu.tail), func(i int) bool { return p.mu.tail[i].At.Offset >= at.Offset })
	for _, b := range p.mu.tail[i:] {
		p.chargeLocked(-cost(&b))
	}
	p.mu.tail = slices.Clone(p.mu.tail[:i]) // readers may use the old array
	p.mu.end, p.mu.written = at, min(p.mu.written, at.Offset)
	p.mu.quarantine.retain(0, at.Offset)
}

// wroteUpTo records that the segments reach end, unless the log has been cut in the meantime, and trims the tail.
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
	// Readers may use the array, so the entries before n stay until append allocates a new one: at
	// most a quarter of the tail. A copy here, at each flush, took 7 % of all processor time.
	p.mu.tail = p.mu.tail[n:]
}
