package sim

import (
	"errors"
	"math"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// loss is more than a partition survives: all disks of its in-sync set at once. Another
// replica keeps its log, and an operator recovers the partition from it.
type loss struct{ fault }

// forEver is far beyond the end of any run.
const forEver micros = 1 << 60

// remains is what came of losses in one partition.
type remains struct {
	lost bool           // the in-sync set's disks; there is no leader since
	old  ident.Epoch    // the last one of the history that is lost, 0 = none ever was
	from ident.Position // where the history went on from, at the last recovery
	n    int            // recoveries so far
}

// loseMembers cuts one replica off until it has left the in-sync set, and then takes
// all of that.
func (w *world) loseMembers(l loss, tries int) {
	key := w.etcd.parts[l.part]
	n := w.victim(l.fault)
	if w.healed || tries == 0 || w.ledgers[l.part].lost {
		return
	}
	if n.name == key.Leader || len(key.ISR) <= key.MinInSync {
		w.after(w.times.isr, func() { w.loseMembers(l, tries-1) })
		return
	}
	w.isolate(fault{lasts: w.times.isr * micros(4+l.draw%4)}, n)
	w.loseWithout(l, n, 6*int(w.times.isr/millisecond))
}

func (w *world) loseWithout(l loss, n *node, tries int) {
	key, s := w.etcd.parts[l.part], n.disk.stores[l.part]
	behind := !slices.ContainsFunc(key.ISR, func(m ident.Member) bool { return m.Node == n.name })
	switch {
	case w.healed || tries == 0 || s == nil || len(key.Target) > 0:
		return
	case !behind || w.spare.IntN(int(w.times.isr/millisecond)) != 0 || !s.whole() || len(w.etcd.proposed[l.part]) > 0:
		w.after(millisecond, func() { w.loseWithout(l, n, tries-1) })
		return
	}
	w.faults++
	w.note("world", l.part, "the in-sync set loses its disks, %s has the log up to %d", n.name, s.durable.end().Offset)
	w.ledgers[l.part].lost, w.ledgers[l.part].old = true, key.Epoch
	kept := w.spare.IntN(len(key.ISR) + 1) // the disk of this one comes back after all
	for i, m := range key.ISR {
		x := w.nodes[w.nodeIndex(m.Node)]
		if i == kept {
			x.awayUntil = forEver
			x.crash()
			continue
		}
		w.crashFor(x, w.times.isr+micros(w.spare.Int64N(int64(w.times.ttl))))
		x.disk.replace(nil)
	}
	w.recover(l.part, n)
}

// recover is the operator. It asks again and again until one replica may be made the
// whole in-sync set (admin.Admin.Recover), unless a member leads again.
func (w *world) recover(part int, n *node) {
	key := w.etcd.parts[part]
	if !w.ledgers[part].lost {
		return
	}
	n = w.survivor(part, n)
	h := n.hosts[part]
	if h == nil || !n.up || n.paused || w.etcd.down || w.refused(part) {
		w.after(w.times.lag, func() { w.recover(part, n) })
		return
	}
	s := key.Clone()
	s.ISR, s.MinInSync, s.Abandoned = []ident.Member{{Node: n.name, Store: h.store.id}}, 1, s.Epoch
	w.cover[StateRecovered]++
	w.etcd.put(part, s)
	w.after(w.times.isr*micros(1+w.spare.IntN(30)), func() {
		for _, x := range w.nodes {
			if x.awayUntil == forEver {
				x.awayUntil = 0
				x.start()
			}
		}
	})
}

// survivor is the replica that the operator recovers with: the one that was kept, unless it
// was moved away. Then it is one of those whose log is whole, as long as there is one: what is
// damaged in the only copy that is left cannot be repaired.
func (w *world) survivor(part int, kept *node) *node {
	names := w.etcd.parts[part].Replicas
	if slices.Contains(names, kept.name) {
		return kept
	}
	whole := slices.DeleteFunc(slices.Clone(names), func(name ident.Node) bool {
		s := w.nodes[w.nodeIndex(name)].disk.stores[part]
		return s == nil || !s.whole()
	})
	if len(whole) > 0 {
		names = whole
	}
	return w.nodes[w.nodeIndex(names[w.spare.IntN(len(names))])]
}

// refused: there is a leader, or a member is registered and does not answer, or a member
// runs with its disk.
func (w *world) refused(part int) bool {
	key := w.etcd.parts[part]
	if key.Leader != "" && w.etcd.is(key.Leader, key.LeaderIncarnation) {
		return true
	}
	return slices.ContainsFunc(key.ISR, func(m ident.Member) bool {
		x := w.nodes[w.nodeIndex(m.Node)]
		s := x.disk.stores[part]
		answers := x.up && !x.paused
		return !answers && w.etcd.live[x.index].incarnation != 0 || answers && s != nil && s.id == m.Store
	})
}

// begun: the first leader after a recovery serves. Its log is the whole history.
func (c *checker) begun(h *host) {
	l, img := &c.w.ledgers[h.part], &h.store.volatile
	same := func(b queue.Batch) bool {
		if b.End.Offset <= img.start.Offset {
			return b.End != img.start || b.CRC == img.startCRC
		}
		i := img.index(b.At.Offset)
		return i < len(img.batches) && img.batches[i].At == b.At && img.batches[i].CRC == b.CRC
	}
	n := 0
	for n < len(l.batches) && same(l.batches[n]) {
		n++
	}
	l.batches, l.times = l.batches[:n:n], l.times[:n:n]
	l.lost, l.from = false, l.end()
	c.w.note("world", h.part, "%s is all there is, and has the history up to %d", h.n.name, l.from.Offset)
	l.forget(img.start.Sequence, l.from.Sequence)
	if l.n++; l.n > 1 {
		l.remember(img, l.from.Sequence)
	}
	for _, p := range c.w.puts {
		if p.part == h.part {
			c.excuse(p, l.from.Sequence)
		}
	}
	for _, b := range img.batches[img.index(l.from.Offset):] {
		if p := c.w.byRequest[b.Request]; p != nil { // with any answer to its producer
			p.revived = true
		}
	}
	for _, n := range c.w.nodes {
		if x := n.hosts[h.part]; x != nil && x.seen.Offset > l.from.Offset {
			x.seen = l.from
		}
	}
}

// excuse revokes the promise to a put at a sequence that is lost.
func (c *checker) excuse(p *put, from ident.Sequence) {
	if p.acked && p.first >= from {
		p.acked, p.gone = false, true
	}
}

// forget removes from the ledger the lost events, which are those from a sequence on, and
// the knowledge of the channels, whose state may be older. A message that has left the log
// need not be delivered again, because its copy may be lost.
func (l *ledger) forget(start, from ident.Sequence) {
	for r, first := range l.placed {
		if first >= from {
			delete(l.placed, r)
		}
	}
	n := 0
	for i, d := range l.deliveries {
		if l.delivered[i] < from {
			l.deliveries[n], l.delivered[n] = d, l.delivered[i]
			n++
		} else {
			l.forgotten = append(l.forgotten, forgotten{l.delivered[i], d})
		}
	}
	l.deliveries, l.delivered = l.deliveries[:n], l.delivered[:n]
	clear(l.finished)
	for seq := range l.tried {
		if seq >= from {
			delete(l.tried, seq)
		}
	}
	for seq := range start {
		l.tried[seq] = true
	}
	l.front, l.last = min(l.front, from), 0
}

// forgotten is a delivery of a message that a recovery gave up.
type forgotten struct {
	seq ident.Sequence
	*judge.Delivery
}

// remember is for a second recovery, which may continue with a history that the first one gave
// up. A message of it that was delivered then need not come again: its finish may be in the log.
func (l *ledger) remember(img *image, from ident.Sequence) {
	for _, b := range img.batches[img.index(l.from.Offset):] {
		for _, m := range b.Messages(from, math.MaxInt, nil) {
			for _, f := range l.forgotten {
				if f.seq == m.Seq && f.Body == string(m.Body) {
					l.tried[f.seq] = true
					l.deliveries, l.delivered = append(l.deliveries, f.Delivery), append(l.delivered, f.seq)
				}
			}
		}
	}
}

// outlived: what a replica that is not in sync says in an epoch of before a recovery
// is of another history than the one that an operator went on with.
func (c *checker) outlived(h *host, in ident.Epoch) bool {
	member := func(m ident.Member) bool { return m.Node == h.n.name && m.Store == h.store.id }
	return in <= c.w.ledgers[h.part].old && !slices.ContainsFunc(c.w.etcd.parts[h.part].ISR, member)
}

// calls: at the alarm of a replica that holds more than the recovered history, the
// operator starts it with an empty disk.
func (w *world) calls(h *host, alarm error) bool {
	if !errors.Is(alarm, replica.ErrOtherHistory) && !errors.Is(alarm, replica.ErrAbandoned) || !w.check.outlived(h, 0) || w.ledgers[h.part].old == 0 {
		return false
	}
	w.note(string(h.n.name), h.part, "is emptied by an operator: %v", alarm)
	n, s := h.n, h.store
	w.after(w.times.lag, func() {
		if n.disk.stores[h.part] == s && w.check.outlived(h, 0) {
			n.crash()
			n.disk.replace(nil)
			w.after(w.times.lag, n.start)
		}
	})
	return true
}

// excused: gone and revived puts had an answer before a recovery that does not hold
// after it.
func (p *put) excused() bool { return p.gone || p.revived }
