package sim

import (
	"errors"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// flip inverts one bit of a committed batch on a disk. The next reader detects it.
// Some in-sync member that stays keeps the batch whole; while the in-sync set is lost there is
// no such member.
func (w *world) flip(f fault, n *node) bool {
	s, l := n.disk.stores[f.part], &w.ledgers[f.part]
	if s == nil || l.lost {
		return false
	}
	kept := s.durable.batches
	n0 := s.durable.index(l.end().Offset)
	if n0 == 0 {
		return false
	}
	b := kept[f.draw%uint64(n0)]
	if !w.wholeElsewhere(f.part, n, b) {
		return false
	}
	bytes := slices.Clone(b.Bytes)
	bit := f.draw / 7 % uint64(8*len(bytes))
	bytes[bit/8] ^= 1 << (bit % 8)
	w.note(string(n.name), f.part, "bit %d of the batch at %d is flipped", bit, b.At.Offset)
	s.overwrite(b, bytes)
	s.durable.flipped = true
	return true
}

// whole reports whether nothing on the disk is damaged.
func (s *store) whole() bool {
	return !s.durable.flipped || !slices.ContainsFunc(s.durable.batches, damaged)
}

// stays reports whether the move in progress, if any, leaves a replica where it is:
// the others' copies are as good as gone, because they are dropped before they are read.
func stays(key metadata.PartitionState, n ident.Node) bool {
	return len(key.Target) == 0 || slices.Contains(key.Target, n)
}

func (w *world) wholeElsewhere(part int, n *node, b queue.Batch) bool {
	key := w.etcd.parts[part]
	for _, m := range key.ISR {
		s := w.nodes[w.nodeIndex(m.Node)].disk.stores[part]
		if m.Node == n.name || s == nil || s.id != m.Store || !stays(key, m.Node) {
			continue
		}
		if got, err := s.durable.read(b.At.Offset, 1); err == nil && len(got) > 0 && got[0].CRC == b.CRC {
			return true
		}
	}
	return false
}

// overwrite replaces the bytes of a batch, where it still is.
func (s *store) overwrite(b queue.Batch, bytes []byte) {
	for _, img := range []*image{&s.durable, &s.volatile} {
		i := img.index(b.At.Offset)
		if i == len(img.batches) || img.batches[i].CRC != b.CRC {
			continue
		}
		img.batches = slices.Clone(img.batches)
		img.batches[i].Bytes = bytes
	}
}

// noteDamage puts a range that cannot be read into quarantine: it is not served
// until a peer has given it again.
func (h *host) noteDamage(err error) {
	var d *queue.Damage
	if !errors.As(err, &d) || h.gone || slices.Contains(h.damaged, d.From) {
		return
	}
	w := h.n.w
	w.cover[StateQuarantine]++
	w.note(string(h.n.name), h.part, "quarantine: %v", err)
	h.damaged = append(h.damaged, d.From)
	h.repairSoon(d.From)
}

func (h *host) repairSoon(at ident.Offset) {
	w, boot := h.n.w, h.n.boot
	w.after(millisecond+micros(w.rand.Int64N(int64(w.times.lag))), func() {
		h.n.post(boot, func() { h.repair(at) })
	})
}

// repair asks an in-sync peer for a batch, and takes it if it is the one that
// the commit log knows.
func (h *host) repair(at ident.Offset) {
	if h.gone {
		return
	}
	w, img := h.n.w, &h.store.volatile
	i := img.index(at)
	if i == len(img.batches) || img.batches[i].At.Offset != at {
		h.release(at) // cut or trimmed in the meantime
		return
	}
	if peer := h.peer(); peer != nil {
		got, err := peer.store.volatile.read(at, 1)
		peer.noteDamage(err)
		if r, ok := h.index.AtOffset(at); ok && len(got) > 0 && got[0].At.Offset == at && got[0].CRC == r.CRC {
			w.cover[StateRepaired]++
			w.note(string(h.n.name), h.part, "the batch at %d is repaired from %s", at, peer.n.name)
			h.store.overwrite(img.batches[i], got[0].Bytes)
			h.release(at)
			return
		}
		if errors.Is(err, errTrimmed) { // all channels have passed it: it goes here, too
			h.retain(wholly)
		}
	}
	h.repairSoon(at)
}

func (h *host) release(at ident.Offset) {
	h.damaged = slices.DeleteFunc(h.damaged, func(o ident.Offset) bool { return o == at })
}

// peer is some other in-sync replica that answers, nil if the one asked does not.
func (h *host) peer() *host {
	w := h.n.w
	isr := h.n.keys[h.part].ISR
	if len(isr) == 0 {
		return nil
	}
	x := w.nodes[w.nodeIndex(isr[w.rand.IntN(len(isr))].Node)]
	if x == h.n || !x.up || x.paused || !w.net.both(x.index, h.n.index) {
		return nil
	}
	return x.hosts[h.part]
}

func (w *world) scrub() {
	for _, n := range w.nodes {
		for _, h := range n.hosts {
			if h != nil {
				h.scrub()
			}
		}
	}
}

// scrub reads a whole replica, as an operator may have it done.
func (h *host) scrub() {
	img := &h.store.volatile
	for i := range img.batches {
		_, err := img.read(img.batches[i].At.Offset, 1)
		h.noteDamage(err)
	}
}
