package nsqd

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockstepmq/lockstep/nsqd/state"
)

// pendingChange is one delta with something that waits for it: a caller, or an ordered channel.
type pendingChange struct {
	done chan struct{} // closed when err is final; nil: no caller waits
	err  error

	ungatesOrdered bool          // once it is replicated, all replicas have the state from which ordered channels serve
	finish         orderedFinish // its channel is nil unless the delta is the finish of an ordered channel
}

// newPendingChange makes the change of a caller that waits.
func newPendingChange() *pendingChange { return &pendingChange{done: make(chan struct{})} }

// wait returns when the change is on all in-sync replicas. If ctx ends first, the change still goes
// on.
func (d *pendingChange) wait(ctx context.Context) error {
	if d == nil {
		return nil
	}
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return fmt.Errorf("nsqd: wait for replication: %w", ctx.Err())
	}
}

// end answers the caller, if any waits.
func (d *pendingChange) end(err error) {
	d.err = err
	if d.done != nil {
		close(d.done)
	}
}

// openChanges holds the changes on their way to the replicas, by ticket. It is closed while this
// broker does not lead; a change then fails at once.
type openChanges struct {
	mu      sync.Mutex
	changes map[uint64]*pendingChange // nil = closed
	last    uint64
}

func (w *openChanges) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes == nil {
		w.changes = make(map[uint64]*pendingChange)
	}
}

func (w *openChanges) close() {
	w.mu.Lock()
	changes := w.changes
	w.changes = nil
	w.mu.Unlock()
	for _, d := range changes {
		d.end(ErrNotLeader)
	}
}

// add assigns a ticket to the change. No ticket is used twice. False: closed.
func (w *openChanges) add(d *pendingChange) (uint64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes == nil {
		return 0, false
	}
	w.last++
	w.changes[w.last] = d
	return w.last, true
}

func (w *openChanges) remove(ticket uint64) *pendingChange {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.changes[ticket]
	delete(w.changes, ticket)
	return d
}

// Completed reports the fate of the Change with this ticket: it is on all in-sync replicas (ok), or
// that is not certain. Unknown tickets are ignored, because Unlead has answered them. It does not
// block.
func (p *Partition) Completed(ticket uint64, ok bool) {
	d := p.openChanges.remove(ticket)
	if d == nil {
		return
	}
	if d.finish.channel != nil {
		d.finish.completed(ok)
	}
	if d.ungatesOrdered && ok { // after a failure this broker no longer leads
		p.ungateOrdered()
	}
	if ok {
		d.end(nil)
	} else {
		d.end(ErrNotReplicated)
	}
}

// post passes a delta to the Replicator. The caller holds emit.
func (p *Partition) post(d *pendingChange, records ...state.Record) {
	ticket, ok := p.openChanges.add(d)
	if !ok {
		d.end(ErrNotLeader)
		return
	}
	p.rep.Change(p, state.EncodeDelta(records), ticket)
}

// Flush collects the changes of all channels since the last Flush into one delta. The broker's
// clock calls it at most every 10 ms, if Dirty.
func (p *Partition) Flush() {
	p.emit.Lock()
	defer p.emit.Unlock()
	if !p.timers.dirty.Swap(false) { // cleared before the look at the channels: a change during the look sets it again
		return
	}
	var records []state.Record
	for _, c := range p.list() {
		if c.ephemeral {
			continue
		}
		c.mu.Lock()
		made, ok := c.cursor.TakeDelta()
		ok = ok && c.serving.leads
		c.mu.Unlock()
		if ok {
			records = append(records, state.Record{Kind: state.KindProgress, Channel: c.name, Progress: made})
		}
	}
	if len(records) > 0 {
		p.rep.Change(p, state.EncodeDelta(records), 0)
	}
}
