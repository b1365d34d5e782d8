package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica/dedupe"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Canonical appends everything that the machine's behaviour depends on, apart from its options, index and register: two
// machines with equal bytes behave alike from then on. Tokens, counters and values that only the view shows are left
// out. Moments become ages, and all ages beyond the deadline that is compared with them are equal.
func (m *Machine) Canonical(b []byte) []byte {
	c := form{CanonicalWriter: dedupe.CanonicalWriter{B: b, NowMS: m.nowMS}, o: &m.o}
	c.Num(uint64(m.role), uint64(m.self.Incarnation), uint64(m.self.Store), uint64(m.promised), uint64(m.committedWritten), uint64(m.log.timeNS))
	c.Age(m.committedMS, committedEveryMS)
	c.Pos(m.log.end, m.committed, m.follow.verified)
	c.Node(m.follow.leader)
	c.Num(uint64(m.log.lastCRC))
	c.Num(uint64(m.channels.version.epoch), m.channels.version.n, uint64(m.channels.deltas), uint64(m.channels.full))
	c.log(&m.log)
	m.recent.Canonical(&c.CanonicalWriter)
	m.dedupe.Canonical(&c.CanonicalWriter)
	c.marks(&m.marks, m.log.token)
	c.state(&m.state)
	c.Num(uint64(len(m.nodes)))
	for i := range m.nodes {
		n := &m.nodes[i]
		c.Node(n.name)
		c.Flags(n.known, n.up, n.dead)
		c.Num(uint64(n.incarnation))
		c.Num(uint64(n.losses))
		c.Age(n.changedMS, m.o.ISRMS)
		c.Age(n.lostMS, m.o.ISRMS)
		c.Flags(n.low)
	}
	c.proposal(m.cas)
	c.campaign(m.campaign)
	c.leadership(m.lead, m.log.token)
	return c.B
}

// maxElectionSlots bounds the sum in headStartMS: members with precedence, missing replies, and the position in the
// ISR.
const maxElectionSlots = 32

type form struct {
	dedupe.CanonicalWriter
	o *Options
}

func (c *form) log(l *log) {
	c.Num(uint64(len(l.epochs)))
	for _, e := range l.epochs {
		c.Num(uint64(e.Epoch))
		c.Pos(e.Start, e.End)
	}
	c.submission(&l.durable, l.token)
	c.Num(uint64(len(l.pending)))
	for i := range l.pending {
		c.submission(&l.pending[i], l.token)
	}
	c.Num(uint64(len(l.tail.all())), uint64(l.tail.bytes)) // the tail ends where the log does
}

func (c *form) submission(s *submission, token uint64) {
	c.Num(token-s.token, uint64(s.epoch), uint64(s.state.epoch), s.state.n)
	c.Pos(s.end)
}

func (c *form) marks(k *marks, token uint64) {
	w := &k.written
	c.Flags(k.token != 0, k.keep.some, k.next.some)
	c.Num(uint64(w.From), uint64(w.End), uint64(w.ClockMS), uint64(w.Forgotten), uint64(k.keep.from), uint64(k.next.from))
	if k.token != 0 {
		c.Num(token - k.token)
	}
	if w.End > 0 {
		c.Age(k.writtenMS, c.o.DedupeMS)
	}
}

func (c *form) state(s *metadata.PartitionState) {
	c.Num(uint64(s.Revision), uint64(s.Epoch), uint64(s.LeaderIncarnation), uint64(s.MinInSync))
	c.Node(s.Leader)
	c.members(s.ISR)
	c.Num(uint64(len(s.Replicas)))
	for _, n := range s.Replicas {
		c.Node(n)
	}
}

func (c *form) members(ms []ident.Member) {
	c.Num(uint64(len(ms)))
	for _, x := range ms {
		c.Node(x.Node)
		c.Num(uint64(x.Store))
	}
}

func (c *form) proposal(o *proposal) {
	c.Flags(o != nil)
	if o != nil {
		c.Num(uint64(o.kind))
		c.state(&o.state)
		c.members(o.replaces)
	}
}

func (c *form) campaign(k *campaign) {
	c.Flags(k != nil, k != nil && k.proposedMS != 0)
	if k == nil {
		return
	}
	c.Age(k.startMS, c.o.ElectionMS*maxElectionSlots)
	if k.proposedMS != 0 {
		c.Age(k.proposedMS, c.o.RetryMS)
	}
	c.Num(uint64(len(k.asked)), uint64(len(k.replies)))
	for i := range k.replies {
		a := &k.replies[i]
		c.Node(a.node)
		c.Num(uint64(a.epoch), uint64(a.end))
	}
}

func (c *form) leadership(l *leadership, token uint64) {
	c.Flags(l != nil)
	if l == nil {
		return
	}
	c.Flags(l.open, l.review, l.rollback, l.paused)
	if !l.open {
		c.Num(token - l.openToken)
	}
	c.Num(uint64(l.epoch), l.stateIssued, l.stateCommitted, uint64(l.heldBytes))
	c.Pos(l.start, l.markerEnd)
	c.Age(l.sinceMS, c.o.ISRMS)
	c.Age(l.retryMS, 0)
	c.Node(l.transfer.target)
	c.Flags(l.transfer.number != 0, l.transfer.stopped)
	if l.transfer.target != "" {
		c.Age(l.transfer.sinceMS, c.o.GraceMS)
		c.Age(l.transfer.stopMS, c.o.ISRMS/2)
	}
	c.Num(uint64(len(l.followers)))
	for i := range l.followers {
		c.follower(&l.followers[i])
	}
	c.waiting(l)
	c.Num(uint64(len(l.unresolved)))
	for i := range l.unresolved {
		c.proposal(&l.unresolved[i])
	}
}

func (c *form) follower(f *progress) {
	c.Node(f.node)
	c.Num(uint64(f.ack.store), uint64(f.incarnation), f.state.sent, f.ack.state, uint64(f.committedSent), uint64(f.committedAcked))
	c.Flags(f.probing(), f.searched, f.ack.valid, f.reading(), f.lag.keepsUp, f.ack.state >= f.state.snapshot)
	if f.probing() {
		c.Num(uint64(f.probedAt))
		c.Flags(f.asked())
		c.Age(f.askedMS, c.o.RetryMS)
	}
	c.Pos(f.next, f.ack.end)
	wait := max(f.state.waitMS, c.o.RetryMS)
	c.Num(uint64(wait))
	if wait > c.o.RetryMS {
		c.Num(f.state.snapshot)
	}
	c.Age(f.state.movedMS, wait)
	c.Age(f.sentMS, c.o.RetryMS)
	c.Num(uint64(f.lag.mark))
	c.Age(f.lag.sinceMS, c.o.ISRMS)
}

func (c *form) waiting(l *leadership) {
	c.Num(uint64(len(l.pending)), uint64(len(l.held)), uint64(len(l.rolledBack)), uint64(len(l.changes)))
	for i := range l.pending {
		p := &l.pending[i]
		c.Num(p.ticket, uint64(p.first), uint64(p.end), uint64(p.outcome))
		c.Age(p.sentMS, c.o.WriteMS+c.o.GraceMS)
	}
	for i := range l.held {
		h := &l.held[i]
		c.Num(h.put.Ticket, h.put.Draft.Request.Producer, h.put.Draft.Request.N)
		c.Age(h.sinceMS, c.o.HoldMS)
	}
	for i := range l.rolledBack {
		c.Num(l.rolledBack[i].ticket)
		c.Age(l.rolledBack[i].sinceMS, c.o.GraceMS)
	}
	for i := range l.changes {
		c.Num(l.changes[i].ticket, l.changes[i].n)
	}
}

// Clone copies the machine, for tools that try several continuations of one state. The caller gives the copy its own
// index and register. Batches are immutable and shared; drafts that wait without an offset are copied.
func (m *Machine) Clone(ix commitLog, reg register) *Machine {
	c := *m
	c.index, c.register, c.out = ix, reg, nil
	c.log.epochs = slices.Clone(m.log.epochs)
	c.log.pending = slices.Clone(m.log.pending)
	c.log.tail.batches, c.log.tail.head = slices.Clone(m.log.tail.all()), 0
	c.recent = m.recent.Clone()
	c.dedupe = m.dedupe.Clone()
	c.nodes = slices.Clone(m.nodes)
	if m.lead != nil {
		c.lead = m.lead.clone()
	}
	if m.campaign != nil {
		k := *m.campaign
		k.asked, k.replies = slices.Clone(k.asked), slices.Clone(k.replies)
		c.campaign = &k
	}
	if m.cas != nil {
		p := *m.cas
		c.cas = &p
	}
	return &c
}

func (l *leadership) clone() *leadership {
	c := *l
	c.followers = slices.Clone(l.followers)
	c.pending = slices.Clone(l.pending)
	c.held = slices.Clone(l.held)
	for i := range c.held {
		c.held[i].put.Draft = c.held[i].put.Draft.Clone()
	}
	c.unresolved = slices.Clone(l.unresolved)
	c.rolledBack = slices.Clone(l.rolledBack)
	c.changes = slices.Clone(l.changes)
	return &c
}
