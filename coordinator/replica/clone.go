package replica

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Clone copies the machine, for tools that try several continuations of one
// state. The index and the register are the copy's own: the caller clones them.
// Batches are immutable and shared; drafts that wait without an offset are not.
func (m *Machine) Clone(ix Index, reg Register) *Machine {
	c := *m
	c.index, c.register, c.out = ix, reg, nil
	c.log.epochs = slices.Clone(m.log.epochs)
	c.log.pending = slices.Clone(m.log.pending)
	c.log.tail, c.log.head = slices.Clone(m.log.tail[m.log.head:]), 0
	c.recent = m.recent.clone()
	c.nodes = slices.Clone(m.nodes)
	if m.lead != nil {
		c.lead = m.lead.clone()
	}
	if m.campaign != nil {
		k := *m.campaign
		k.asked, k.answers = slices.Clone(k.asked), slices.Clone(k.answers)
		c.campaign = &k
	}
	if m.cas != nil {
		o := *m.cas
		c.cas = &o
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
	c.waiters = slices.Clone(l.waiters)
	c.changes = slices.Clone(l.changes)
	return &c
}

// Canonical appends everything that the machine's behaviour depends on, apart
// from its options, index and register: two machines with the same bytes there
// do the same for ever. What only names something inside (tokens), counts
// for an operator, or is for the view alone, is left out; times become ages, and ages beyond the deadline
// that is asked of them are one.
func (m *Machine) Canonical(b []byte) []byte {
	c := canon{b: b, now: m.now, o: &m.o}
	c.num(uint64(m.role), uint64(m.self.Incarnation), uint64(m.self.Store), uint64(m.promised), uint64(m.noted), uint64(m.log.timeNS))
	c.pos(m.log.end, m.committed, m.follow.verified)
	c.node(m.follow.leader)
	c.num(uint64(m.log.lastCRC))
	c.num(uint64(m.confirm.version.epoch), m.confirm.version.n, uint64(m.confirm.deltas), uint64(m.confirm.full))
	c.log(&m.log)
	c.recent(&m.recent)
	c.state(&m.state)
	c.num(uint64(len(m.nodes)))
	for i := range m.nodes {
		n := &m.nodes[i]
		c.node(n.name)
		c.flags(n.known, n.up, n.dead)
		c.num(uint64(n.incarnation))
		c.age(n.changedMS, m.o.ISRMS)
	}
	c.outstanding(m.cas)
	c.campaign(m.campaign)
	c.leadership(m.lead, m.log.token)
	return c.b
}

// maxElectionTurns bounds what headStart counts: better members, missing
// answers, and the place in the in-sync set.
const maxElectionTurns = 32

// canon writes the canonical form.
type canon struct {
	b   []byte
	now int64
	o   *Options
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

// age writes how long ago a moment was, if that is not beyond the deadline that
// alone is asked of it; one in the future is negative.
func (c *canon) age(ms, deadlineMS int64) {
	c.b = binary.AppendVarint(c.b, min(c.now-ms, deadlineMS+1))
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
	c.num(uint64(len(l.tail)-l.head), uint64(l.tailBytes)) // the tail ends where the log does
}

func (c *canon) submission(s *submission, token uint64) {
	c.num(token-s.token, uint64(s.epoch), uint64(s.confirm.epoch), s.confirm.n)
	c.pos(s.end)
}

func (c *canon) recent(r *recent) {
	c.num(uint64(len(r.producers)))
	for _, id := range slices.Sorted(maps.Keys(r.producers)) {
		of := r.producers[id]
		kept := of.order[of.gone:]
		c.num(id, uint64(len(kept)), of.maxN)
		for i := range kept {
			p := &kept[i]
			c.num(p.n, uint64(p.first), uint64(p.count), uint64(p.end), uint64(p.timeNS))
		}
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

func (c *canon) outstanding(o *outstanding) {
	c.flags(o != nil)
	if o != nil {
		c.num(uint64(o.kind))
		c.state(&o.state)
		c.members(o.was)
	}
}

func (c *canon) campaign(k *campaign) {
	c.flags(k != nil, k != nil && k.stoodMS != 0)
	if k == nil {
		return
	}
	c.age(k.startMS, c.o.ElectionMS*maxElectionTurns)
	if k.stoodMS != 0 {
		c.age(k.stoodMS, c.o.RetryMS)
	}
	c.num(uint64(len(k.asked)), uint64(len(k.answers)))
	for i := range k.answers {
		a := &k.answers[i]
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
		c.num(token - l.opening)
	}
	c.num(uint64(l.epoch), l.confirmN, l.confirmed, uint64(l.heldBytes))
	c.pos(l.start, l.markerEnd, l.asked)
	c.age(l.sinceMS, c.o.ISRMS)
	c.age(l.retryMS, 0)
	c.node(l.heir)
	if l.heir != "" {
		c.age(l.heirMS, c.o.GraceMS)
	}
	c.num(uint64(len(l.followers)))
	for i := range l.followers {
		c.follower(&l.followers[i])
	}
	c.waiting(l)
	c.num(uint64(len(l.unresolved)))
	for i := range l.unresolved {
		c.outstanding(&l.unresolved[i])
	}
}

func (c *canon) follower(f *follower) {
	c.node(f.node)
	c.num(uint64(f.store), uint64(f.incarnation), f.confirmSent, f.confirmAcked, uint64(f.announced), uint64(f.knows))
	c.flags(f.probing, f.matched, f.readToken != 0, f.keepsUp, f.confirmAcked >= f.snapshotN)
	if f.probing {
		c.num(uint64(f.probe))
		c.flags(f.asked())
		c.age(f.askedMS, c.o.RetryMS)
	}
	c.pos(f.next, f.match)
	wait := max(f.confirmWaitMS, c.o.RetryMS)
	c.num(uint64(wait))
	if wait > c.o.RetryMS {
		c.num(f.snapshotN)
	}
	c.age(f.confirmAtMS, wait)
	c.age(f.sentAtMS, c.o.RetryMS)
	c.num(uint64(f.owes))
	c.age(f.owesSinceMS, c.o.ISRMS)
}

// waiting writes what clients wait for.
func (c *canon) waiting(l *leadership) {
	c.num(uint64(len(l.pending)), uint64(len(l.held)), uint64(len(l.waiters)), uint64(len(l.changes)))
	for i := range l.pending {
		p := &l.pending[i]
		c.num(p.ticket, uint64(p.first), uint64(p.end))
		c.age(p.sentMS, c.o.WriteMS+c.o.GraceMS)
	}
	for i := range l.held {
		h := &l.held[i]
		c.num(h.put.Ticket, h.put.Draft.Request.Producer, h.put.Draft.Request.N)
		c.age(h.sinceMS, c.o.HoldMS)
	}
	for i := range l.waiters {
		c.num(l.waiters[i].ticket)
		c.age(l.waiters[i].sinceMS, c.o.GraceMS)
	}
	for i := range l.changes {
		c.num(l.changes[i].ticket, l.changes[i].n)
	}
}
