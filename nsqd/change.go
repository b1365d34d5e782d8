package nsqd

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Change is a change of the channels on its way to the replicas. It is submitted and completed like a put.
type Change struct {
	Delta []byte            // package state
	Done  outcome.Completer // nil: nothing waits
}

// pendingChange is the Completer of a change for which a caller or an ordered channel waits.
type pendingChange struct {
	p    *Partition
	done chan struct{} // closed when err is final; nil: no caller waits
	err  error

	ungatesOrdered bool          // its completion means that all replicas have the state that ordered channels wait for
	finish         orderedFinish // zero unless the change is the finish of an ordered channel
}

// Complete reports whether the change is on all in-sync replicas. After Unlead it has no effect, because Unlead has
// already answered the change.
func (d *pendingChange) Complete(c outcome.Completion) {
	if !d.p.openChanges.remove(d) {
		return
	}
	ok := c.Outcome == outcome.Committed
	if d.finish.channel != nil {
		d.finish.completed(ok)
	}
	if d.ungatesOrdered && ok { // after a failure this broker will no longer lead
		for _, c := range d.p.list() {
			c.update(func(int64) { c.order.gated = false })
		}
	}
	if ok {
		d.end(nil)
	} else {
		d.end(ErrNotReplicated)
	}
}

func (d *pendingChange) end(err error) {
	d.err = err
	if d.done != nil {
		close(d.done)
	}
}

// wait returns when the change is on all in-sync replicas. If ctx ends first, the change continues.
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

// openChanges are the changes that are not completed. Without leadership the set is nil, and a change fails at once.
type openChanges struct {
	mu  sync.Mutex
	set map[*pendingChange]struct{}
}

func (w *openChanges) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		w.set = make(map[*pendingChange]struct{})
	}
}

func (w *openChanges) close() {
	w.mu.Lock()
	set := w.set
	w.set = nil
	w.mu.Unlock()
	for d := range set {
		d.end(ErrNotLeader)
	}
}

func (w *openChanges) add(d *pendingChange) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		return false
	}
	w.set[d] = struct{}{}
	return true
}

func (w *openChanges) remove(d *pendingChange) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.set[d]
	delete(w.set, d)
	return ok
}

// post submits a change. The caller holds emit.
func (p *Partition) post(d *pendingChange, records ...state.Record) {
	if !p.openChanges.add(d) {
		d.end(ErrNotLeader)
		return
	}
	p.rep.Submit(Change{Delta: state.EncodeDelta(records), Done: d})
}

// Flush collects the changes of all channels since the last Flush into one delta, at most every 10 ms (the clock).
func (p *Partition) Flush() {
	if !p.Dirty() {
		return
	}
	p.emit.Lock()
	defer p.emit.Unlock()
	if !p.timers.dirty.Swap(false) { // cleared before the channels are examined, so that a change in the meantime sets it again
		return
	}
	var records []state.Record
	for _, c := range p.durable() {
		c.mu.Lock()
		made, ok := c.cursor.TakeDelta()
		ok = ok && c.serving.leads
		c.mu.Unlock()
		if ok {
			records = append(records, state.Record{Kind: state.KindProgress, Channel: c.name, Progress: made})
		}
	}
	if len(records) > 0 {
		p.rep.Submit(Change{Delta: state.EncodeDelta(records)})
	}
}
