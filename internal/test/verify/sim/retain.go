package sim

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// relocationLimit is how many bytes of unfinished messages are relocated at once.
const relocationLimit = 4 << 10

// trim runs retention on the replica of a node, and first on the leader's, which
// relocates unfinished messages.
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

// retain removes a part of the batches that the channels have passed. The newest committed
// batch stays, as in the store (without it two logs that part there have no position in
// common), unless a later batch has begun a new file. Puts that a producer may still repeat
// stay, as in the coordinator (the recognition of repeats is derived from the log).
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
		h.relocate(head)
	}
	messages, relocated := h.queue.Removable()
	below := min(head, img.atSequence(messages), relocated)
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

// relocate copies the unfinished messages below an offset into a relocation batch.
func (h *host) relocate(below ident.Offset) {
	img := &h.store.volatile
	first := img.batches[min(img.index(below), len(img.batches)-1)].At.Sequence
	builder := queue.NewRelocation()
	seqs, _ := h.queue.DeferredBelow(first, below, relocationLimit)
	for _, seq := range seqs {
		read, err := h.queue.Read(seq, 1, nil)
		if err != nil || len(read) == 0 || read[0].Seq != seq || builder.Size() > relocationLimit || builder.Add(read[0]) != nil {
			return
		}
	}
	if builder.Count() == 0 {
		return
	}
	d := builder.Draft()
	crc, from := d.PayloadCRC, h.view.Committed.Offset
	h.propose(d, func(c outcome.Completion) {
		if c.Outcome == outcome.Committed {
			h.relocated(from, crc)
		}
	})
}

// relocated notifies the channels of the offset of a committed relocation batch.
func (h *host) relocated(from ident.Offset, crc uint32) {
	img := &h.store.volatile
	for _, b := range img.batches[img.index(from):] {
		if b.Control != queue.ControlRelocation || queue.Checksum(b.Bytes[queue.HeaderSize:]) != crc {
			continue
		}
		var seqs []ident.Sequence
		for _, m := range b.Relocated(nil) {
			seqs = append(seqs, m.Seq)
		}
		h.n.w.cover[StateRelocation]++
		ended, cancel := context.WithCancel(context.Background())
		cancel() // the caller does not wait: the change is replicated nonetheless
		h.next = func() { _ = h.queue.Relocate(ended, b.At.Offset, seqs, true) }
		_ = h.queue.Relocate(ended, b.At.Offset, seqs, false) // not the leader any more: no channel uses the batch
		h.next = nil
		return
	}
}
