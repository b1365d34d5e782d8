package sim

import (
	"errors"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// channel is the one that every partition has.
const channel = "c"

// msgTimeout is that of a delivery which the consumer does not answer.
func (t times) msgTimeout() micros { return 2 * t.isr }

// newQueue makes the real channels of a partition. Without a node it only folds
// versions of their state.
func newQueue(h *host, log nsqd.Log, rep nsqd.Replicator) *nsqd.Partition {
	o, id := nsqd.Options{}, ident.Partition{}
	if h != nil {
		o.Now, o.MsgTimeoutMS = h.n.wallNS, int64(h.n.w.times.msgTimeout()/millisecond)
		id = h.n.w.partition(h.part)
	}
	return nsqd.NewPartition("t", id, log, rep, o)
}

// publish shows the machine's view, and notifies the channels of the change.
func (h *host) publish() {
	old := h.view
	h.view = h.state
	v := &h.view
	if h.leads != 0 && (v.Role != replica.Leader || v.Epoch != h.leads) {
		h.leads, h.finishes = 0, nil
		h.queue.Unlead()
	}
	if v.Committed != old.Committed {
		h.queue.Advance(v.Committed)
	}
	if v.Stopping != 0 && v.Stopping != old.Stopping {
		if h.leads != 0 {
			h.leads, h.changing = 0, true
			h.queue.Retire()
			h.changing, h.finishes = false, nil
		}
		h.step(replica.ChannelsStopped{Number: v.Stopping})
	}
	if v.Role == replica.Leader && h.leads == 0 && v.Stopping == 0 {
		h.leads = v.Epoch
		h.queue.Lead(v.Epoch)
	}
}

// drive is the broker's timer for the channels: it fires their timers, and proposes
// the delta of their changes.
func (h *host) drive() {
	if h.leads == 0 {
		return
	}
	if now := h.n.wallNS(); h.queue.Due() <= now {
		h.queue.Expire(now)
	}
	if h.queue.Dirty() {
		h.changing = true
		h.queue.Flush()
		h.changing = false
	}
}

// Submit implements nsqd.Replicator: the delta is posted, and what it finishes
// is known to all in-sync replicas when it is confirmed.
func (h *host) Submit(change nsqd.Change) {
	complete := func(c outcome.Completion) {
		if change.Done != nil {
			change.Done.Complete(c)
		}
	}
	var finishes []ident.Sequence
	epoch := h.view.Epoch
	if h.changing {
		finishes, h.finishes = h.finishes, nil
	}
	if h.gone {
		complete(outcome.Completion{Outcome: outcome.NotLeader})
		return
	}
	h.ticket++
	t, next := h.ticket, h.next
	h.next = nil
	h.tickets[t] = func(c outcome.Completion) {
		if c.Outcome == outcome.Committed && next != nil {
			defer next()
		}
		if c.Outcome == outcome.Committed {
			h.n.w.check.finished(h, epoch, finishes)
		}
		complete(c)
	}
	h.step(replica.Change{Delta: change.Delta, Ticket: t})
}

// Committed implements nsqd.Log.
func (h *host) Committed() ident.Position { return h.view.Committed }

// Start implements nsqd.Log.
func (h *host) Start() ident.Position { return h.index.Start() }

// Read implements nsqd.Log.
func (h *host) Read(from ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	end := h.Committed()
	if from >= end.Sequence || most <= 0 {
		return dst, nil
	}
	img, want := &h.store.volatile, len(dst)+most
	batches, err := img.read(img.atSequence(from), 1<<12)
	for i := range batches {
		if batches[i].End.Offset > end.Offset || len(dst) >= want {
			break
		}
		dst = batches[i].Messages(from, want-len(dst), dst)
	}
	if len(dst) > want-most {
		return dst, nil
	}
	h.noteDamage(err)
	return dst, err
}

// ReadRelocated implements nsqd.Log.
func (h *host) ReadRelocated(at ident.Offset, seq ident.Sequence) (queue.Message, bool, error) {
	batches, err := h.store.volatile.read(at, 1)
	if errors.Is(err, errTrimmed) { // finished before a crash that forgot it: the message is given up
		return queue.Message{}, false, nil
	}
	h.noteDamage(err)
	if len(batches) == 0 || batches[0].At.Offset != at || batches[0].End.Offset > h.Committed().Offset {
		return queue.Message{}, false, err
	}
	for _, m := range batches[0].Relocated(nil) {
		if m.Seq == seq {
			return m, true, nil
		}
	}
	return queue.Message{}, false, nil
}
