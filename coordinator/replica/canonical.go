package replica

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Canonical appends everything that the machine's behaviour depends on, apart from its
// options, index and register: two machines with equal bytes there do the same for
// ever. Tokens, counters and what only the view shows are left out. Moments become
// ages, and all ages beyond the deadline that is compared with them are equal.
func (m *Machine) Canonical(b []byte) []byte {
	c := canon{b: b, nowMS: m.nowMS, o: &m.o}
	c.num(uint64(m.role), uint64(m.self.Incarnation), uint64(m.self.Store), uint64(m.promised), uint64(m.committedWritten), uint64(m.log.timeNS))
	c.age(m.committedMS, committedEveryMS)
	c.pos(m.log.end, m.committed, m.follow.verified)
	c.node(m.follow.leader)
	c.num(uint64(m.log.lastCRC))
	c.num(uint64(m.channels.version.epoch), m.channels.version.n, uint64(m.channels.deltas), uint64(m.channels.full))
	c.log(&m.log)
	c.recent(&m.recent)
	c.dedupe(&m.dedupe)
	c.state(&m.state)
	c.num(uint64(len(m.nodes)))
	for i := range m.nodes {
		n := &m.nodes[i]
		c.node(n.name)
		c.flags(n.known, n.up, n.dead)
		c.num(uint64(n.incarnation))
		c.num(uint64(n.losses))
		c.age(n.changedMS, m.o.ISRMS)
		c.age(n.lostMS, m.o.ISRMS)
	}
	c.proposal(m.cas)
	c.campaign(m.campaign)
	c.leadership(m.lead, m.log.token)
	return c.b
}

// maxElectionSlots bounds what headStartMS counts: members that go first, missing
// replies, and the place in the ISR.
const maxElectionSlots = 32

// canon writes the canonical form.
type canon struct {
	b     []byte
	nowMS int64
	o     *Options
}

func (c *canon) num(values ...uint64) {
	for _, v := range values {
		c.b = binary.AppendUvarint(c.b, v)
	}
}

func (c *canon) flags(values ...bool) {
	x := byte(0)
	for i, v := range values {
		if v {
			x |= 1 << i
		}
	}
	c.b = append(c.b, x)
}

func (c *canon) pos(values ...ident.Position) {
	for _, p := range values {
		c.num(uint64(p.Offset), uint64(p.Sequence))
	}
}

func (c *canon) node(n ident.Node) {
	c.num(uint64(len(n)))
	c.b = append(c.b, n...)
}

// age writes how long ago a moment was, up to the deadline that is compared with it; a
// moment in the future has a negative age.
func (c *canon) age(ms, deadlineMS int64) {
	c.b = binary.AppendVarint(c.b, min(c.nowMS-ms, deadlineMS+1))
}

func (c *canon) log(l *log) {
	c.num(uint64(len(l.epochs)))
	for _, e := range l.epochs {
		c.num(uint64(e.Epoch))
		c.pos(e.Start, e.End)
	}
	c.submission(&l.durable, l.token)
	c.num(uint64(len(l.pending)))
	for i := range l.pending {
		c.submission(&l.pending[i], l.token)
	}
	c.num(uint64(len(l.tail.kept())), uint64(l.tail.bytes)) // the tail ends where the log does
}

func (c *canon) submission(s *submission, token uint64) {
	c.num(token-s.token, uint64(s.epoch), uint64(s.state.epoch), s.state.n)
	c.pos(s.end)
}

func (c *canon) recent(r *recent) {
	c.flags(r.restored)
	c.num(uint64(len(r.producers)))
	for _, id := range slices.Sorted(maps.Keys(r.producers)) {
		of := r.producers[id]
		kept := of.order[of.gone:]
		c.num(id, uint64(len(kept)), of.maxN)
		for i := range kept {
			p := &kept[i]
			c.num(p.n, uint64(p.first), uint64(p.count), uint64(p.end))
			c.age(p.atMS, c.o.RepeatMS)
		}
	}
}

func (c *canon) dedupe(d *dedupe) {
	c.flags(d.restored, d.lost, d.base+uint64(d.gone) == 0)
	c.num(uint64(d.windowMS), uint64(d.len()))
	c.age(d.lostMS, 0)
	for i := range d.entries[d.gone:] {
		e := &d.entries[d.gone+i]
		c.b = append(c.b, e.identity[:]...)
		c.num(uint64(e.seq), uint64(e.at), uint64(e.end))
		c.age(e.atMS, d.windowMS)
	}
}

func (c *canon) state(s *meta.PartitionState) {
	c.num(uint64(s.Revision), uint64(s.Epoch), uint64(s.LeaderIncarnation), uint64(s.MinInSync))
	c.node(s.Leader)
	c.members(s.ISR)
	c.num(uint64(len(s.Replicas)))
	for _, n := range s.Replicas {
		c.node(n)
	}
}

func (c *canon) members(ms []ident.Member) {
	c.num(uint64(len(ms)))
	for _, x := range ms {
		c.node(x.Node)
		c.num(uint64(x.Store))
	}
}

func (c *canon) proposal(o *proposal) {
	c.flags(o != nil)
	if o != nil {
		c.num(uint64(o.kind))
		c.state(&o.state)
		c.members(o.replaces)
	}
}

func (c *canon) campaign(k *campaign) {
	c.flags(k != nil, k != nil && k.proposedMS != 0)
	if k == nil {
		return
	}
	c.age(k.startMS, c.o.ElectionMS*maxElectionSlots)
	if k.proposedMS != 0 {
		c.age(k.proposedMS, c.o.RetryMS)
	}
	c.num(uint64(len(k.asked)), uint64(len(k.replies)))
	for i := range k.replies {
		a := &k.replies[i]
		c.node(a.node)
		c.num(uint64(a.epoch), uint64(a.end))
	}
}

func (c *canon) leadership(l *leadership, token uint64) {
	c.flags(l != nil)
	if l == nil {
		return
	}
	c.flags(l.open, l.review, l.rollback, l.paused)
	if !l.open {
		c.num(token - l.openToken)
	}
	c.num(uint64(l.epoch), l.stateIssued, l.stateCommitted, uint64(l.heldBytes))
	c.pos(l.start, l.markerEnd)
	c.age(l.sinceMS, c.o.ISRMS)
	c.age(l.retryMS, 0)
	c.node(l.transfer.target)
	if l.transfer.target != "" {
		c.age(l.transfer.sinceMS, c.o.GraceMS)
	}
	c.num(uint64(len(l.followers)))
	for i := range l.followers {
		c.follower(&l.followers[i])
	}
	c.waiting(l)
	c.num(uint64(len(l.unresolved)))
	for i := range l.unresolved {
		c.proposal(&l.unresolved[i])
	}
}

func (c *canon) follower(f *progress) {
	c.node(f.node)
	c.num(uint64(f.ack.store), uint64(f.incarnation), f.state.sent, f.ack.state, uint64(f.committedSent), uint64(f.committedAcked))
	c.flags(f.probing(), f.ack.valid, f.reading(), f.lag.keepsUp, f.ack.state >= f.state.snapshot)
	if f.probing() {
		c.num(uint64(f.probedAt))
		c.flags(f.asked())
		c.age(f.askedMS, c.o.RetryMS)
	}
	c.pos(f.next, f.ack.end)
	wait := max(f.state.waitMS, c.o.RetryMS)
	c.num(uint64(wait))
	if wait > c.o.RetryMS {
		c.num(f.state.snapshot)
	}
	c.age(f.state.movedMS, wait)
	c.age(f.sentMS, c.o.RetryMS)
	c.num(uint64(f.lag.mark))
	c.age(f.lag.sinceMS, c.o.ISRMS)
}

// waiting writes the puts and changes that clients wait for.
func (c *canon) waiting(l *leadership) {
	c.num(uint64(len(l.pending)), uint64(len(l.held)), uint64(len(l.rolledBack)), uint64(len(l.changes)))
	for i := range l.pending {
		p := &l.pending[i]
		c.num(p.ticket, uint64(p.first), uint64(p.end), uint64(p.outcome))
		c.age(p.sentMS, c.o.WriteMS+c.o.GraceMS)
	}
	for i := range l.held {
		h := &l.held[i]
		c.num(h.put.Ticket, h.put.Draft.Request.Producer, h.put.Draft.Request.N)
		c.age(h.sinceMS, c.o.HoldMS)
	}
	for i := range l.rolledBack {
		c.num(l.rolledBack[i].ticket)
		c.age(l.rolledBack[i].sinceMS, c.o.GraceMS)
	}
	for i := range l.changes {
		c.num(l.changes[i].ticket, l.changes[i].n)
	}
}
