package sim

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// carryLimit is how many bytes of unfinished messages are carried at once.
const carryLimit = 4 << 10

// trim lets retention go over the replica of a node, and first over the
// leader's, which carries what is unfinished.
func (w *world) trim(f fault, n *node) bool {
	if leader := w.hostOf(f.part, w.etcd.parts[f.part].Leader); leader != nil && leader.leads != 0 {
		leader.n.post(leader.n.boot, func() { leader.retain(f.draw) })
	}
	h := n.hosts[f.part]
	if !n.up || h == nil {
		return false
	}
	n.post(n.boot, func() { h.retain(f.draw) })
	return true
}

// wholly is the draw with which retention goes as far as it may.
const wholly = 3

// retain forgets a part of what the channels have passed. The newest committed batch
// stays, as in the store (without it two logs that part there have no place in common),
// unless something behind it has begun a new file; and so does what a producer may still
// repeat, as in the coordinator (the recognition of repeats is derived from the log).
func (h *host) retain(draw uint64) {
	if h.gone {
		return
	}
	w, img := h.n.w, &h.store.volatile
	old := w.ledgers[h.part].before(w.now - 2*w.times.putLimit)
	newest := h.view.Committed.Offset - 1
	if end := h.view.Committed.Offset; w.scenario.rolled && min(img.end().Offset, h.store.durable.end().Offset) > end {
		newest = end
	}
	may := min(img.atSequence(h.queue.Floor()), old.Offset, newest)
	start := h.index.Start().Offset
	head := start + (may-start)*ident.Offset(1+draw%4)/4
	if head <= start {
		return
	}
	if h.leads != 0 {
		h.carry(head)
	}
	below := min(head, img.atSequence(h.queue.LowWater()))
	if at, ok := h.queue.CarriedFrom(); ok {
		below = min(below, at)
	}
	if below <= start {
		return
	}
	img.trim(below)
	h.store.durable.trim(below)
	if img.start.Offset == start {
		return
	}
	w.cover[StateTrimmed]++
	if err := h.index.TrimHead(img.start); err != nil {
		w.failf("index", h.part, "%s: %v", h.n.name, err)
	}
}

// carry puts what is unfinished below an offset into a carry batch.
func (h *host) carry(below ident.Offset) {
	img := &h.store.volatile
	first := img.batches[min(img.index(below), len(img.batches)-1)].At.Sequence
	builder := queue.NewCarry()
	seqs, _ := h.queue.Aside(first, below, carryLimit)
	for _, seq := range seqs {
		read, err := h.queue.Read(seq, 1, nil)
		if err != nil || len(read) == 0 || read[0].Seq != seq || builder.Size() > carryLimit || builder.Add(read[0]) != nil {
			return
		}
	}
	if builder.Count() == 0 {
		return
	}
	d := builder.Draft()
	crc, from := d.PayloadCRC, h.view.Committed.Offset
	h.propose(d, func(c replica.Completion) {
		if c.Outcome == replica.Committed {
			h.carried(from, crc)
		}
	})
}

// carried tells the channels where a committed carry batch lies.
func (h *host) carried(from ident.Offset, crc uint32) {
	img := &h.store.volatile
	for _, b := range img.batches[img.index(from):] {
		if b.Control != queue.ControlCarry || queue.Checksum(b.Bytes[queue.HeaderSize:]) != crc {
			continue
		}
		var seqs []ident.Sequence
		for _, m := range b.Carried(nil) {
			seqs = append(seqs, m.Seq)
		}
		h.n.w.cover[StateCarry]++
		ended, cancel := context.WithCancel(context.Background())
		cancel() // nobody waits here: the change goes on by itself
		h.next = func() { _ = h.queue.Settle(ended, b.At.Offset, seqs) }
		_ = h.queue.Carry(ended, b.At.Offset, seqs) // not the leader any more: the batch is of no use
		h.next = nil
		return
	}
}
