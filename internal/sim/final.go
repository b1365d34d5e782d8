package sim

import (
	"bytes"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// settled reports whether the healed cluster has recovered, and if not, what is
// missing: each partition led, each replica in sync, all ends equal.
func (c *checker) settled() (missing string, part int) {
	for p, key := range c.w.etcd.parts {
		leader := c.w.hostOf(p, key.Leader)
		switch {
		case leader == nil || leader.view.Role != replica.Leader || leader.view.Epoch != key.Epoch:
			return "no leader serves", p
		case key.Leader != key.Replicas[0]:
			return "the preferred replica does not lead", p
		case len(key.ISR) < len(key.Replicas):
			return "not every replica is in the ISR", p
		case len(key.Replicas) != c.w.scenario.rf || len(key.Target) > 0:
			return "its replicas are not where they are wanted", p
		}
		for _, m := range key.ISR {
			h := c.w.hostOf(p, m.Node)
			switch {
			case h == nil || h.store.id != m.Store:
				return "a member's store is gone", p
			case len(h.damaged) > 0:
				return "a damaged batch is not repaired", p
			case h.view.End != leader.view.End || h.view.Committed != leader.view.End:
				return "the ends differ", p
			}
		}
	}
	return "", -1
}

// final checks the whole history once the cluster is quiet.
func (c *checker) final() {
	for p := range c.w.ledgers {
		c.sameBytes(p)
		c.sameChannels(p)
	}
	for _, p := range c.w.puts {
		c.putFinal(p)
	}
	c.wholeBatches()
	c.clients()
}

// sameBytes: every replica holds the ledger, byte by byte.
func (c *checker) sameBytes(p int) {
	l := &c.w.ledgers[p]
	for _, m := range c.w.etcd.parts[p].ISR {
		n := c.w.nodes[c.w.nodeIndex(m.Node)]
		img := &n.disk.stores[p].volatile
		at := 0
		for at < len(l.batches) && l.batches[at].At.Offset < img.start.Offset {
			at++
		}
		if len(img.batches) != len(l.batches)-at {
			c.w.failf("replicas differ", p, "%s has %d batches from %d on, the ledger %d", m.Node, len(img.batches), img.start.Offset, len(l.batches)-at)
			return
		}
		for i, b := range img.batches {
			if !bytes.Equal(b.Bytes, l.batches[at+i].Bytes) {
				c.w.failf("replicas differ", p, "%s at offset %d", m.Node, b.At.Offset)
				return
			}
		}
	}
}

// undrained finds a partition whose channel is not empty on all replicas.
func (c *checker) undrained() (part int, left bool) {
	for p, key := range c.w.etcd.parts {
		leader := c.w.hostOf(p, key.Leader)
		if leader == nil || leader.leads == 0 || leader.queue.Dirty() || leader.view.Issued != leader.view.Confirmed {
			return p, true
		}
		for _, m := range key.ISR {
			h := c.w.hostOf(p, m.Node)
			if h == nil || h.queue.Floor() != leader.view.Committed.Sequence || h.queue.AsideCount() > 0 {
				return p, true
			}
		}
	}
	return -1, false
}

// sameChannels: every replica's channel state is the leader's. Which carried
// messages are needed no more each replica finds out by itself.
func (c *checker) sameChannels(p int) {
	key := c.w.etcd.parts[p]
	leader := c.w.hostOf(p, key.Leader)
	leader.queue.CarriedFrom()
	for _, m := range key.ISR {
		h := c.w.hostOf(p, m.Node)
		h.queue.CarriedFrom()
		if !bytes.Equal(h.queue.Snapshot(), leader.queue.Snapshot()) {
			c.w.failf("channel state differs", p, "%s holds %x, leader %s %x",
				m.Node, h.queue.Snapshot(), key.Leader, leader.queue.Snapshot())
		}
	}
}

func (c *checker) putFinal(p *put) {
	first, placed := c.w.ledgers[p.part].placed[p.draft.Request]
	if p.acked && (!placed || first != p.first) {
		c.w.failf("lost", p.part, "request %v was acknowledged at sequence %d", p.draft.Request, p.first)
	}
	if placed && p.definite() {
		c.w.failf("refused, then seen", p.part, "request %v is at sequence %d though its attempts ended %s",
			p.draft.Request, first, p.outcomes())
	}
	for _, a := range p.attempts {
		if a.h != nil && !a.h.gone && a.outcome == 0 {
			c.w.failf("unanswered", p.part, "request %v, put to %s at %.3f ms", p.draft.Request, a.h.n.name, float64(a.at)/1000)
		}
	}
}

// wholeBatches decodes the ledgers: sealed bytes were never touched again.
func (c *checker) wholeBatches() {
	for p := range c.w.ledgers {
		var end ident.Position
		var crc uint32
		for _, b := range c.w.ledgers[p].batches {
			got, _, err := queue.Decode(b.Bytes)
			if err != nil || got.At != end || got.PrevCRC != crc {
				c.w.failf("sealed bytes changed", p, "at %d: %v", b.At.Offset, err)
				return
			}
			end, crc = got.End, got.CRC
		}
	}
}
