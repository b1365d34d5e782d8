package sim

import (
	"bytes"
	"encoding/binary"
	"slices"

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
		case key.UnderReplicated():
			return "not every replica is in the ISR", p
		case len(key.Replicas) != c.w.rf || len(key.Target) > 0 || key.MinInSync != c.w.minISR:
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
		c.nothingSkipped(p)
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
		if leader == nil || leader.leads == 0 || leader.queue.Dirty() || leader.view.StateIssued != leader.view.StateCommitted {
			return p, true
		}
		for _, m := range key.ISR {
			h := c.w.hostOf(p, m.Node)
			if h == nil || h.queue.Floor() != leader.view.Committed.Sequence || h.queue.DeferredCount() > 0 {
				return p, true
			}
		}
	}
	return -1, false
}

// sameChannels: every replica's channel state is the leader's. Each replica decides by
// itself which relocated messages it needs no more.
func (c *checker) sameChannels(p int) {
	key := c.w.etcd.parts[p]
	for _, m := range key.ISR {
		c.sameChannel(p, c.w.hostOf(p, key.Leader), c.w.hostOf(p, m.Node))
	}
}

func (c *checker) sameChannel(p int, leader, h *host) {
	leader.queue.Removable()
	h.queue.Removable()
	if !bytes.Equal(settledOf(h.queue.Snapshot()), settledOf(leader.queue.Snapshot())) {
		c.w.failf("channel state differs", p, "%s holds %x, leader %s %x",
			h.n.name, h.queue.Snapshot(), leader.n.name, leader.queue.Snapshot())
	}
}

// sameWhileQuiet: when all that the leader has said of its channels is held by all of
// the in-sync set, and nothing has happened since, they hold the same.
func (c *checker) sameWhileQuiet(p int) {
	key := c.w.etcd.parts[p]
	leader := c.w.hostOf(p, key.Leader)
	if leader == nil || leader.n.passing || leader.leads == 0 || leader.leads != key.Epoch || leader.queue.Dirty() || leader.state.StateIssued != leader.state.StateCommitted {
		return
	}
	for _, m := range key.ISR {
		if h := c.w.hostOf(p, m.Node); h != nil && h != leader && h.store.id == m.Store && h.state.Epoch == key.Epoch {
			c.sameChannel(p, leader, h)
		}
	}
}

// settledOf leaves out of a snapshot of one channel what only its leader has to
// know: in which order the messages that were put aside are due, and when.
func settledOf(full []byte) []byte {
	le := binary.LittleEndian
	const name = 2 + 8 + 8 + 4 + 1
	if len(full) < name {
		return full
	}
	full = bytes.Clone(full)
	b := full[name+1+int(full[name])+8+8+8:]
	b = b[4+16*le.Uint32(b):]
	n := int(le.Uint32(b))
	seqs := make([]uint64, n)
	for i := range seqs {
		seqs[i] = le.Uint64(b[4+16*i:]) & (1<<48 - 1)
	}
	slices.Sort(seqs)
	for i, seq := range seqs {
		le.PutUint64(b[4+16*i:], seq)
		le.PutUint64(b[12+16*i:], 0)
	}
	return full
}

// nothingSkipped: the channel is done with everything, so its consumer has tried to finish
// every message.
func (c *checker) nothingSkipped(p int) {
	l := &c.w.ledgers[p]
	for seq := range l.end().Sequence {
		if !l.tried[seq] {
			c.w.failf("skipped", p, "the channel is done with sequence %d, which nobody has finished", seq)
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
