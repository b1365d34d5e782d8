package model

import (
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	maxPuts   = 4
	maxEpochs = 12
	// changeTicket is the first ticket of changes; those of puts are below.
	changeTicket = 64
)

// history is the memory of the checks: the committed log as brokers have shown it, and
// the answers to clients. It is never changed in place.
type history struct {
	ledger    []queue.Batch
	puts      [maxPuts]put
	confirmed byte        // changes that were ever confirmed
	epoch     ident.Epoch // the newest that confirmed one
	commits   [maxEpochs]uint8
}

// put is what a client knows of one request.
type put struct {
	open    uint8 // attempts without an answer
	doubt   bool  // an attempt ended in doubt
	acked   bool
	refused bool // an attempt was refused or rolled back
}

// definite: the client knows that it is not stored.
func (p put) definite() bool { return p.refused && p.open == 0 && !p.doubt && !p.acked }

func (x *Explorer) historyID(h *history) uint32 {
	var c canon
	c.batches(h.ledger)
	for _, p := range h.puts {
		bits := uint64(p.open) << 3
		for i, b := range []bool{p.doubt, p.acked, p.refused} {
			if b {
				bits |= 1 << i
			}
		}
		c.num(bits)
	}
	c.num(uint64(h.confirmed), uint64(h.epoch))
	c = append(c, h.commits[:]...)
	return x.histories.id(string(c), h)
}

// judged memoises judge.
type judged struct {
	history uint32
	failure string
}

type judgeKey struct{ outcome, history uint32 }

// judge compares what a broker did with history, and adds to it.
func (x *Explorer) judge(outcomeID uint32, o *stepResult, id uint32) judged {
	if o.quiet && !o.advanced {
		return judged{history: id}
	}
	key := judgeKey{outcomeID, id}
	if j, ok := x.judgements[key]; ok {
		return j
	}
	h := *x.histories.at(id)
	h.ledger = h.ledger[:len(h.ledger):len(h.ledger)]
	n := x.nodes.at(o.node)
	failure := h.observe(n)
	if failure == "" && o.advanced {
		failure = h.committer(n)
	}
	for _, d := range o.done {
		if failure == "" {
			failure = h.answered(n, d)
		}
	}
	if failure == "" {
		failure = h.consistent(n)
	}
	j := judged{history: x.historyID(&h), failure: failure}
	x.judgements[key] = j
	return j
}

// observe compares the committed log of a broker with the one that brokers showed before.
func (h *history) observe(n *node) string {
	if !n.running {
		return ""
	}
	for i := range n.log {
		b := &n.log[i]
		if b.End.Offset > n.view.Committed.Offset {
			break
		}
		if i < len(h.ledger) {
			if k := &h.ledger[i]; k.CRC != b.CRC || k.Epoch != b.Epoch || k.At != b.At {
				return fmt.Sprintf("P2: %s has another batch at %d (epoch %d) than the committed one (epoch %d)",
					names[n.place], b.At.Offset, b.Epoch, k.Epoch)
			}
			continue
		}
		for j := range h.ledger {
			if !b.Request.IsZero() && h.ledger[j].Request == b.Request {
				return fmt.Sprintf("P5: request %d is committed at sequence %d and at %d", b.Request.N, h.ledger[j].At.Sequence, b.At.Sequence)
			}
		}
		h.ledger = append(h.ledger, *b)
	}
	if c := n.view.Committed; endOf(cut(n.log, c.Offset)) != c {
		return fmt.Sprintf("P2: %s calls %d committed, where no batch of its log ends", names[n.place], c.Offset)
	}
	return ""
}

func (h *history) committer(n *node) string {
	e := n.view.Epoch
	who := uint8(n.place+1)<<5 | n.boots&31
	if int(e) >= maxEpochs {
		return ""
	}
	if h.commits[e] != 0 && h.commits[e] != who {
		return fmt.Sprintf("P7: another process than before commits in epoch %d: %s", e, names[n.place])
	}
	h.commits[e] = who
	return ""
}

func (h *history) answered(n *node, d outcome.Completion) string {
	if d.Ticket >= changeTicket {
		if d.Outcome == outcome.Committed {
			h.confirmed |= 1 << (d.Ticket - changeTicket)
			h.epoch = max(h.epoch, n.view.Epoch)
		}
		return ""
	}
	p := &h.puts[d.Ticket-1]
	if p.open == 0 {
		return fmt.Sprintf("P10: request %d was answered more often than it was asked", d.Ticket)
	}
	p.open--
	switch d.Outcome {
	case outcome.Committed, outcome.Duplicate, outcome.Repeated:
		p.acked, p.refused, p.doubt = true, false, false
		for i := range h.ledger {
			if b := &h.ledger[i]; b.Request.N == d.Ticket && b.At.Sequence == d.First {
				return ""
			}
		}
		return fmt.Sprintf("P3: request %d was answered with sequence %d, which nobody has committed", d.Ticket, d.First)
	case outcome.InDoubt:
		p.doubt, p.refused = !p.acked, false
	case outcome.RolledBack, outcome.NotEnoughReplicas, outcome.NotLeader:
		p.refused = !p.acked && !p.doubt
	}
	return ""
}

// consistent compares the answers to clients with the committed log.
func (h *history) consistent(n *node) string {
	for i := range h.ledger {
		if r := h.ledger[i].Request; !r.IsZero() && h.puts[r.N-1].definite() {
			return fmt.Sprintf("P4: request %d was refused for good, and is committed", r.N)
		}
	}
	if n.running && n.view.Role == replica.Leader && n.view.Epoch >= h.epoch && h.confirmed&^n.register.bits != 0 {
		return fmt.Sprintf("P6: %s serves epoch %d without confirmed changes %b", names[n.place], n.view.Epoch, h.confirmed&^n.register.bits)
	}
	return ""
}

// members is P1 and P8.
func (x *Explorer) members(w *world) string {
	s := x.states.at(x.etcds.at(w.etcd).state)
	if len(s.ISR) < s.MinInSync {
		return fmt.Sprintf("P8: the in-sync set has %d members, the minimum is %d", len(s.ISR), s.MinInSync)
	}
	for _, m := range s.ISR {
		i := placeOf(m.Node)
		if n := x.nodes.at(w.nodes[i]); n.disk.store == m.Store && !x.holds(w.nodes[i], w.history) {
			h := x.histories.at(w.history)
			return fmt.Sprintf("P1: %s is in the in-sync set with %d durable bytes of %d committed ones and changes %b of %b confirmed",
				m.Node, endOf(n.disk.batches).Offset, endOf(h.ledger).Offset, n.disk.register.bits, h.confirmed)
		}
	}
	return ""
}

func (x *Explorer) holds(nodeID, historyID uint32) bool {
	key := judgeKey{nodeID, historyID}
	if ok, known := x.holdings[key]; known {
		return ok
	}
	d, h := &x.nodes.at(nodeID).disk, x.histories.at(historyID)
	ok := len(d.batches) >= len(h.ledger) && h.confirmed&^d.register.bits == 0
	for i := 0; ok && i < len(h.ledger); i++ {
		ok = d.batches[i].CRC == h.ledger[i].CRC && d.batches[i].Epoch == h.ledger[i].Epoch
	}
	x.holdings[key] = ok
	return ok
}
