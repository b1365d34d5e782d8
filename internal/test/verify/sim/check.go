package sim

import (
	"bytes"
	"fmt"
	"slices"
	"sort"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Failure is a broken promise, with the seed, the moment and the trace.
type Failure struct {
	Check string // which promise
	Part  int    // -1: none in particular
	Text  string
	At    string // virtual time
	Step  int
	Trace string // readable, when the run kept it
}

// Error makes a Failure an error.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s: partition %d at %s, step %d: %s", f.Check, f.Part, f.At, f.Step, f.Text)
}

// ledger is the committed log of one partition, as the first broker shows it, and
// the consumed messages. It never shrinks.
type ledger struct {
	batches []queue.Batch
	times   []micros // when each batch was first seen committed
	placed  map[ident.RequestID]ident.Sequence
	consumed
	remains
}

func (l *ledger) end() ident.Position {
	if n := len(l.batches); n > 0 {
		return l.batches[n-1].End
	}
	return ident.Position{}
}

// before is the committed end at time t.
func (l *ledger) before(t micros) ident.Position {
	n := sort.Search(len(l.times), func(i int) bool { return l.times[i] >= t })
	if n == 0 {
		return ident.Position{}
	}
	return l.batches[n-1].End
}

// checker compares everything that happens with the ledgers.
type checker struct{ w *world }

// changed looks at a machine's view after a Step.
func (c *checker) changed(h *host, v *replica.View) {
	c.w.lively.stopped(h, v)
	old := &h.state
	if v.Committed.Offset < old.Committed.Offset {
		c.w.failf("committed end moved back", h.part, "%s: %d after %d", h.n.name, v.Committed.Offset, old.Committed.Offset)
	}
}

// committed compares what a machine now calls committed with the ledger.
func (c *checker) committed(h *host) {
	to := h.state.Committed
	if img := &h.store.volatile; to.Offset > img.end().Offset {
		c.w.failf("committed beyond end", h.part, "%s: committed %d, log ends at %d", h.n.name, to.Offset, img.end().Offset)
		return
	}
	img, l := &h.store.volatile, &c.w.ledgers[h.part]
	if l.lost && h.state.Role == replica.Leader && h.state.Epoch > l.old {
		c.begun(h)
	}
	if l.lost { // which history continues is decided when its first leader serves
		return
	}
	if to.Offset <= h.seen.Offset {
		return
	}
	grown := false
	for i := img.index(h.seen.Offset); i < len(img.batches) && img.batches[i].At.Offset < to.Offset; i++ {
		grown = c.observe(h, l, img.batches[i]) || grown
		h.seen = img.batches[i].End
	}
	h.seen = to
	if grown {
		c.everyMemberHolds(h.part, c.w.etcd.parts[h.part].ISR)
	}
}

// observe compares one committed batch with the ledger; true if it is new.
func (c *checker) observe(h *host, l *ledger, b queue.Batch) bool {
	i := sort.Search(len(l.batches), func(i int) bool { return l.batches[i].At.Offset >= b.At.Offset })
	if i < len(l.batches) {
		if known := l.batches[i]; (!bytes.Equal(known.Bytes, b.Bytes) || known.At != b.At) && !damaged(b) && !c.outlived(h, b.Epoch) {
			c.w.failf("committed log differs", h.part, "%s (%s, epoch %d) has batch %08x of epoch %d at %d where %08x of epoch %d was committed",
				h.n.name, h.state.Role, h.state.Epoch, b.CRC, b.Epoch, b.At.Offset, known.CRC, known.Epoch)
		}
		return false
	}
	if c.outlived(h, b.Epoch) {
		return false
	}
	if b.At != l.end() {
		c.w.failf("committed log differs", h.part, "%s has a committed batch at %d, the ledger ends at %d", h.n.name, b.At.Offset, l.end().Offset)
		return false
	}
	l.batches, l.times = append(l.batches, b), append(l.times, c.w.now)
	if b.Control == 0 {
		c.admit(h, l, b)
	}
	return true
}

// damaged: the bytes are no batch, so they are not served.
func damaged(b queue.Batch) bool {
	_, _, err := queue.Decode(b.Bytes)
	return err != nil
}

// admit checks a data batch that has just become part of history.
func (c *checker) admit(h *host, l *ledger, b queue.Batch) {
	p := c.w.byRequest[b.Request]
	if p == nil || !bytes.Equal(p.draft.Bytes[queue.HeaderSize:], b.Bytes[queue.HeaderSize:]) {
		c.w.failf("unexpected", h.part, "%s committed a batch nobody sent, request %v", h.n.name, b.Request)
		return
	}
	if first, twice := l.placed[p.draft.Request]; twice {
		c.w.failf("duplicate", h.part, "request %v is committed at sequence %d and at %d", b.Request, first, b.At.Sequence)
	}
	l.placed[p.draft.Request] = b.At.Sequence
	if p.definite() {
		c.w.failf("refused, then seen", h.part, "request %v is committed at sequence %d though its attempts ended %s",
			b.Request, b.At.Sequence, p.outcomes())
	}
}

// everyMemberHolds: every replica that may be elected has the whole committed log on disk.
func (c *checker) everyMemberHolds(part int, isr []ident.Member) {
	l := &c.w.ledgers[part]
	if len(l.batches) == 0 || l.lost {
		return
	}
	last := l.batches[len(l.batches)-1]
	for _, m := range isr {
		n := c.w.nodes[c.w.nodeIndex(m.Node)]
		s := n.disk.stores[part]
		if s == nil || s.id != m.Store {
			continue // lost with its disk
		}
		i := s.durable.index(last.At.Offset)
		if s.durable.start.Offset >= last.End.Offset {
			continue // trimmed
		}
		if i == len(s.durable.batches) || s.durable.batches[i].CRC != last.CRC {
			c.w.failf("member lacks committed", part, "%s is in the ISR; committed up to %d, it holds durably up to %d",
				m.Node, last.End.Offset, s.durable.end().Offset)
		}
	}
}

// cutting sees each record become durable: committed batches stay. A disk that stalled during an operator's
// recovery may still cut a batch whose place in the committed log is another one's.
func (c *checker) cutting(n *node, part int, s *store, w queue.Write) {
	cuts := w.Kind == queue.WriteTruncate || w.Kind == queue.WriteReset || w.Kind == queue.WriteRestart
	if !cuts || w.At.Offset >= s.durable.end().Offset {
		return
	}
	l := &c.w.ledgers[part]
	if w.At.Offset >= l.end().Offset || !slices.Contains(c.w.etcd.parts[part].ISR, ident.Member{Node: n.name, Store: s.id}) {
		return
	}
	i := slices.IndexFunc(l.batches, func(b queue.Batch) bool { return b.At.Offset >= w.At.Offset })
	j := s.durable.index(w.At.Offset)
	if i < 0 || j == len(s.durable.batches) || s.durable.batches[j].At != l.batches[i].At || s.durable.batches[j].CRC != l.batches[i].CRC {
		return
	}
	c.w.failf("committed cut", part, "%s, in the ISR, cuts its log to %d; committed is up to %d", n.name, w.At.Offset, l.end().Offset)
}

// answered checks a completed put against the ledger at that very moment.
func (c *checker) answered(h *host, p *put, done outcome.Completion) {
	c.w.cover.answer(done.Outcome)
	if done.Outcome != outcome.Committed && done.Outcome != outcome.Duplicate && done.Outcome != outcome.Repeated {
		return
	}
	p.acked, p.first = true, done.First
	l := &c.w.ledgers[p.part]
	if first, ok := l.placed[p.draft.Request]; !ok || first != done.First {
		c.w.failf("acknowledged, not committed", p.part, "%s answered request %v with sequence %d; the committed log has it at %d (%v)",
			h.n.name, p.draft.Request, done.First, first, ok)
	}
}

// proposed: a node whose disk is gone must not join, once the proposer was notified of
// the process that came back without it. A proposal behind another one cannot land: a
// member may have left by the first one, and its disk been emptied.
func (c *checker) proposed(h *host, s metadata.PartitionState) {
	if s.Revision != c.w.etcd.parts[h.part].Revision {
		return
	}
	for _, m := range s.ISR {
		x := c.w.nodes[c.w.nodeIndex(m.Node)]
		held := x.disk.stores[h.part]
		heard := x.up && x.incarnation != 0 && h.n.live[x.index].incarnation == x.incarnation
		if heard && (held == nil || held.id != m.Store) && !slices.Contains(h.state.ISR, m) {
			c.w.failf("member without its disk", h.part, "%s proposes store %x of %s", h.n.name, uint64(m.Store)&0xffff, m.Node)
		}
	}
}

// metadata checks each transition of a partition's key.
func (c *checker) metadata(part int, old, s metadata.PartitionState) {
	if len(s.ISR) < s.MinInSync {
		c.w.failf("ISR below minimum", part, "%d of %d", len(s.ISR), s.MinInSync)
	}
	for i, m := range s.ISR {
		if !slices.Contains(s.Replicas, m.Node) || slices.ContainsFunc(s.ISR[:i], func(o ident.Member) bool { return o.Node == m.Node }) {
			c.w.failf("malformed ISR", part, "%v of %v", s.ISR, s.Replicas)
		}
	}
	if old.Revision == 0 {
		return
	}
	moved := old.Leader != s.Leader || old.LeaderIncarnation != s.LeaderIncarnation
	if s.Epoch != old.Epoch && s.Epoch != old.Epoch+1 || moved && s.Epoch == old.Epoch {
		c.w.failf("epoch", part, "%s after %s", stateText{s}, stateText{old})
	}
	if moved && c.w.config.Check && !slices.ContainsFunc(s.ISR, func(m ident.Member) bool { return m.Node == s.Leader }) {
		c.w.failf("leader outside the ISR", part, "%s after %s", stateText{s}, stateText{old})
	}
	c.w.cover.transition(c.w, old, s)
	c.everyMemberHolds(part, s.ISR)
}

// outcomes lists how the attempts of a put ended.
func (p *put) outcomes() string {
	var b bytes.Buffer
	for i, a := range p.attempts {
		if i > 0 {
			b.WriteString(", ")
		}
		switch {
		case a.refused:
			b.WriteString("refused")
		case a.outcome == 0:
			b.WriteString("unanswered")
		default:
			b.WriteString(outcomeText[a.outcome])
		}
	}
	return b.String()
}
