package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// proposal is one compare-and-swap on the partition's key (ID-1, AC-5), outstanding (Machine.cas) until its answer
// comes. If the answer is lost it is unresolved, because it may still land, until the key's revision has moved past the
// revision that it compares.
type proposal struct {
	token    uint64
	kind     casKind
	state    metadata.PartitionState // the new value; Revision is the revision that it compares
	replaces []ident.Member          // the ISR at the time of the proposal
}

type casKind uint8

const (
	casISR casKind = iota + 1
	casRollback
	casTransfer
	casElection
)

// reconfigure proposes the next state of the partition's key, if one is due and no proposal is outstanding: a transfer
// of the leadership, a better ISR, or the current state again, in order to resolve a proposal whose answer was lost.
func (m *Machine) reconfigure() {
	l := m.lead
	if m.cas != nil || !l.open || !l.review || m.nowMS < l.retryMS {
		return
	}
	l.review = false
	if m.proposeTransfer() {
		return
	}
	isr, changed := m.nextISR()
	if !changed && len(l.unresolved) == 0 {
		return
	}
	s := m.state.Clone()
	s.ISR = isr
	m.proposeCAS(casISR, s, nil, nil)
}

// proposeCAS requests one transaction from the loop. From now on the proposed ISR is part of the maximal ISR.
func (m *Machine) proposeCAS(kind casKind, s metadata.PartitionState, gone, target *Peer) {
	m.requestToken++
	m.cas = &proposal{token: m.requestToken, kind: kind, state: s, replaces: m.state.ISR}
	m.out.CAS = &CAS{Token: m.requestToken, State: s.Clone(), LeaderGone: gone, TransferTarget: target}
}

// handleCAS processes the answer. A proposal counts until the key's revision has moved past the revision that it
// compared.
func (m *Machine) handleCAS(ev CASDone) {
	p := m.cas
	if p == nil || p.token != ev.Token {
		return
	}
	m.cas = nil
	if l := m.lead; l != nil {
		l.retryMS = m.nowMS + m.o.RetryMS
		switch {
		case ev.OK:
			l.retryMS, l.review = m.nowMS, true
			m.countISR(p)
		case ev.Unknown && p.state.Revision == m.state.Revision:
			l.addUnresolved(p)
		}
	}
	if ev.State.Revision != 0 {
		m.observe(ev.State)
	}
}

func (m *Machine) countISR(p *proposal) {
	if p.kind != casISR {
		return
	}
	was, is := p.replaces, p.state.ISR
	switch {
	case len(is) < len(was):
		m.counters.Shrinks++
	case len(is) > len(was):
		m.counters.Grows++
	case !slices.Equal(is, was):
		m.counters.Swaps++
	}
}

// addUnresolved keeps a proposal that may still land. Equal proposals are kept once: the leader repeats a proposal for
// as long as the metadata store does not answer, and a repetition adds no members.
func (l *leadership) addUnresolved(p *proposal) {
	if !slices.ContainsFunc(l.unresolved, p.equal) {
		l.unresolved = append(l.unresolved, *p)
	}
}

// equal reports whether another proposal replaces the same revision with the same value.
func (p *proposal) equal(q proposal) bool {
	a, b := &p.state, &q.state
	return p.kind == q.kind && a.Revision == b.Revision && a.Epoch == b.Epoch && a.Leader == b.Leader &&
		a.LeaderIncarnation == b.LeaderIncarnation && slices.Equal(a.ISR, b.ISR)
}

// resolve drops the proposals that can no longer land.
func (l *leadership) resolve(revision int64) {
	l.unresolved = slices.DeleteFunc(l.unresolved, func(p proposal) bool { return p.state.Revision < revision })
}

// requireMaximalISR requires the members of the key's ISR, and the members of every proposal that may still land.
func (m *Machine) requireMaximalISR(c *commitment) {
	m.requireISR(c, m.state.ISR)
	if m.cas != nil && m.cas.state.Revision == m.state.Revision {
		m.requireISR(c, m.cas.state.ISR)
	}
	for i := range m.lead.unresolved {
		m.requireISR(c, m.lead.unresolved[i].state.ISR)
	}
}

// requireISR requires the members of one ISR except this machine, whose ack the commitment begins with.
func (m *Machine) requireISR(c *commitment, isr []ident.Member) {
	for _, x := range isr {
		if c.blocked {
			return
		}
		if x.Node != m.self.Node {
			c.require(x, m.lead.ackOf(x.Node))
		}
	}
}

// rollbackMayLand reports whether a proposed rollback is outstanding or unresolved.
func (m *Machine) rollbackMayLand() bool {
	return m.cas != nil && m.cas.kind == casRollback ||
		slices.ContainsFunc(m.lead.unresolved, func(p proposal) bool { return p.kind == casRollback })
}
