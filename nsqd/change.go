package nsqd

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// change is one delta that somebody waits for: a caller, or an ordered channel
// whose last finish it carries.
type change struct {
	done chan struct{} // closed when err is final
	err  error

	opens bool // ordered channels: it says that all replicas have what they inherit

	channel    *Channel // an ordered finish
	seq        ident.Sequence
	attempts   uint16
	generation uint64
}

// wait returns when the change is on all in-sync replicas. If ctx ends first, the
// change goes on nevertheless.
func (d *change) wait(ctx context.Context) error {
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

// waiting holds the changes that are under way, by ticket. It is closed while
// this broker does not lead: changes fail at once then.
type waiting struct {
	mu      sync.Mutex
	changes map[uint64]*change // nil = closed
	last    uint64
}

func (w *waiting) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes == nil {
		w.changes = make(map[uint64]*change)
	}
}

func (w *waiting) close() {
	w.mu.Lock()
	changes := w.changes
	w.changes = nil
	w.mu.Unlock()
	for _, d := range changes {
		d.err = ErrNotLeader
		close(d.done)
	}
}

// add gives the change a ticket; tickets are never used twice.
func (w *waiting) add(d *change) (uint64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes == nil {
		return 0, false
	}
	w.last++
	w.changes[w.last] = d
	return w.last, true
}

func (w *waiting) remove(ticket uint64) *change {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.changes[ticket]
	delete(w.changes, ticket)
	return d
}

// Completed says what became of the Change with this ticket: it is on all in-sync
// replicas, or it is not known to be. Unknown tickets are ignored: Unlead has
// answered them. It does not block.
func (p *Partition) Completed(ticket uint64, ok bool) {
	d := p.waiting.remove(ticket)
	if d == nil {
		return
	}
	if !ok {
		d.err = ErrNotReplicated
	}
	if d.channel != nil {
		d.channel.finishConfirmed(d, ok)
	}
	if d.opens && ok { // else this broker leads no more
		p.openOrdered()
	}
	close(d.done)
}

// post hands a delta to the replicas. The caller holds emit.
func (p *Partition) post(d *change, records ...record) {
	ticket, ok := p.waiting.add(d)
	if !ok {
		d.err = ErrNotLeader
		close(d.done)
		return
	}
	p.rep.Change(p, encodeDelta(records), ticket)
}

func encodeDelta(records []record) []byte {
	b := []byte{stateVersion}
	for _, r := range records {
		b = appendRecord(b, r)
	}
	return b
}

// Flush turns what changed in all channels since the last time into one delta.
// The broker's timer calls it every 10 ms at most, if Dirty.
func (p *Partition) Flush() {
	p.emit.Lock()
	defer p.emit.Unlock()
	if !p.dirty.Swap(false) { // before looking: what changes meanwhile sets it again
		return
	}
	var records []record
	for _, c := range p.list() {
		if c.ephemeral {
			continue
		}
		c.mu.Lock()
		made, ok := c.cursor.take()
		ok = ok && c.serving
		c.mu.Unlock()
		if ok {
			records = append(records, record{kind: kindProgress, channel: c.name, progress: made})
		}
	}
	if len(records) > 0 {
		p.rep.Change(p, encodeDelta(records), 0)
	}
}
