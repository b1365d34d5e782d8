package replica

import (
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// reconfigure proposes the next state of the partition's key, if one is due and
// none is under way: a hand-over, a better in-sync set, or, to resolve a
// proposal whose answer was lost, the present state again.
func (m *Machine) reconfigure() {
	l := m.lead
	if m.cas != nil || !l.open || !l.review || m.now < l.retryMS {
		return
	}
	l.review = false
	if m.giveAway() {
		return
	}
	isr, changed := m.wantedISR()
	if !changed && len(l.unresolved) == 0 {
		return
	}
	s := m.state.Clone()
	s.ISR = isr
	m.proposeCAS(casISR, s, nil, nil)
}

// proposeCAS asks the loop for one transaction. From now on the proposed ISR
// counts in the maximal ISR.
func (m *Machine) proposeCAS(kind casKind, s meta.PartitionState, gone, heir *Peer) {
	m.asked++
	m.cas = &outstanding{token: m.asked, state: s, kind: kind, was: m.state.ISR}
	m.out.CAS = &CAS{Token: m.asked, State: s.Clone(), LeaderGone: gone, Heir: heir}
}

// casDone takes the answer. Whatever it says of the past, a proposal counts
// until the key's revision has moved past the one it compared.
func (m *Machine) casDone(ev CASDone) {
	c := m.cas
	if c == nil || c.token != ev.Token {
		return
	}
	m.cas = nil
	if l := m.lead; l != nil {
		l.retryMS = m.now + m.o.RetryMS
		switch {
		case ev.OK:
			l.retryMS, l.review = m.now, true
			m.countISR(c)
		case ev.Unknown && c.state.Revision == m.state.Revision && !m.broken(BreakLateCAS):
			l.doubt(c)
		}
	}
	if ev.State.Revision != 0 {
		m.learn(ev.State)
	}
}

func (m *Machine) countISR(c *outstanding) {
	if c.kind != casISR {
		return
	}
	was, is := c.was, c.state.ISR
	switch {
	case len(is) < len(was):
		m.counters.Shrinks++
	case len(is) > len(was):
		m.counters.Grows++
	case !slices.Equal(is, was):
		m.counters.Swaps++
	}
}

// doubt keeps a proposal that may still land. The same one is kept once: it is made
// again for as long as the metadata store is away, and covers no more members.
func (l *leadership) doubt(c *outstanding) {
	if !slices.ContainsFunc(l.unresolved, c.same) {
		l.unresolved = append(l.unresolved, *c)
	}
}

// same reports whether another proposal puts the same in the place of the same.
func (o *outstanding) same(p outstanding) bool {
	a, b := &o.state, &p.state
	return o.kind == p.kind && a.Revision == b.Revision && a.Epoch == b.Epoch && a.Leader == b.Leader &&
		a.LeaderIncarnation == b.LeaderIncarnation && slices.Equal(a.ISR, b.ISR)
}

// resolve drops the proposals that can no longer land.
func (l *leadership) resolve(revision int64) {
	l.unresolved = slices.DeleteFunc(l.unresolved, func(o outstanding) bool { return o.state.Revision < revision })
}

// wantedISR works out the in-sync set: without the members that do not answer,
// with the replicas that caught up, never below the minimum. Where that cannot be
// had nobody is let go: no put could be taken anyway, and those who do not answer
// may well reach each other; they can replace this leader only as members.
func (m *Machine) wantedISR() ([]ident.Member, bool) {
	var kept, lagging, joining []ident.Member
	for _, x := range m.state.ISR {
		switch {
		case x.Node == m.self.Node || !m.lagging(x):
			kept = append(kept, x)
		default:
			lagging = append(lagging, x)
		}
	}
	for i := range m.lead.followers {
		f := &m.lead.followers[i]
		member := ident.Member{Node: f.node, Store: f.store}
		taken := slices.ContainsFunc(kept, func(x ident.Member) bool { return x.Node == f.node })
		if !taken && !slices.Contains(m.state.ISR, member) && m.mayJoin(f) {
			joining = append(joining, member)
		}
	}
	isr := append(kept, joining...)
	if len(isr) >= m.state.MinInSync || m.broken(BreakMinISR) {
		lagging = nil
	}
	for _, x := range lagging {
		if !slices.ContainsFunc(isr, func(y ident.Member) bool { return y.Node == x.Node }) {
			isr = append(isr, x)
		}
	}
	byNode := func(a, b ident.Member) int { return strings.Compare(string(a.Node), string(b.Node)) }
	slices.SortFunc(isr, byNode)
	return isr, !slices.Equal(isr, slices.SortedFunc(slices.Values(m.state.ISR), byNode))
}

// lagging: a member whose process is dead, that was silent for T_isr, that has
// owed an acknowledgement for T_isr, or that came back as another store.
func (m *Machine) lagging(x ident.Member) bool {
	n, f := m.node(x.Node), m.lead.follower(x.Node)
	if f == nil {
		return true // not a replica any more
	}
	since := func(ms int64) bool { return m.now-max(ms, m.lead.sinceMS) >= m.o.ISRMS }
	switch {
	case f.store != 0 && f.store != x.Store:
		return true
	case n.dead || n.known && n.incarnation == 0 && !n.up:
		return true
	case !n.up:
		return since(n.changedMS)
	case f.matched && f.match.Offset == m.log.end.Offset && f.confirmAcked == m.lead.confirmN:
		return false
	default:
		return since(f.owesSinceMS)
	}
}

// answers: it does so as the process that is there now, and would not be let go again
// at once.
func (m *Machine) answers(f *follower) bool {
	return f.up(m) && f.present(m) && f.matched && f.store != 0 && !m.lagging(ident.Member{Node: f.node, Store: f.store})
}

// mayJoin: it answers, and everything that may have been committed is durable there: up to
// max(committed end, epoch start), and this epoch's channel state.
func (m *Machine) mayJoin(f *follower) bool {
	if !m.answers(f) {
		return false
	}
	if m.broken(BreakJoinBar) {
		return true
	}
	bar := greatest(m.committed, m.lead.start)
	if m.broken(BreakJoinEpochStart) {
		bar = m.committed
	}
	return f.match.Offset >= bar.Offset && (f.confirmAcked >= max(m.lead.confirmed, 1) || m.broken(BreakJoinConfirm))
}
