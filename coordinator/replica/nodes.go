package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// node is what the loop has reported about one broker.
type node struct {
	name        ident.Node
	incarnation ident.Incarnation // live
	known       bool              // live: reported at least once
	up, dead    bool              // peerState
	changedMS   int64             // peerState: when up last changed
	lostMS      int64             // silence: when the current silence began, or the first one of a flapping node
	losses      int               // silence: silences since lostMS, at most flappingLosses
	low         bool              // space: below its disk reserve
}

// flappingLosses is how many silences, each less than T_isr after the previous one, make a node count as flapping.
const flappingLosses = 2

// silence notes that the node has stopped answering. If it had answered for less than T_isr, the earlier silence
// continues (AC-8): otherwise a node that answers occasionally would never leave the ISR.
func (n *node) silence(nowMS, isrMS int64) {
	if n.losses == 0 || nowMS-n.changedMS >= isrMS {
		n.lostMS, n.losses = nowMS, 0
	}
	n.losses = min(n.losses+1, flappingLosses)
}

// flaps reports whether the node answers, was silent more than once, and has not since answered for a whole T_isr.
func (n *node) flaps(nowMS, isrMS int64) bool {
	return n.up && n.losses == flappingLosses && nowMS-n.changedMS < isrMS
}

// node returns the entry of a broker, and creates it if it is missing.
func (m *Machine) node(name ident.Node) *node {
	i := 0
	for ; i < len(m.nodes) && m.nodes[i].name <= name; i++ {
		if m.nodes[i].name == name {
			return &m.nodes[i]
		}
	}
	added := node{name: name, changedMS: m.nowMS, lostMS: m.nowMS}
	m.nodes = slices.Concat(m.nodes[:i], []node{added}, m.nodes[i:]) // without room for more: each replica has this list
	return &m.nodes[i]
}

// peerState notes whether a node answers. A returning follower is probed.
func (m *Machine) peerState(ev PeerState) {
	n := m.node(ev.Node)
	if n.up && !ev.Up {
		n.silence(m.nowMS, m.o.ISRMS)
	}
	if n.up != ev.Up {
		n.changedMS = m.nowMS
	}
	cameUp := ev.Up && !n.up
	n.up, n.dead = ev.Up, ev.Dead && !ev.Up
	if m.lead != nil {
		m.lead.review = true
		if cameUp {
			m.probeAgain(ev.Node)
		}
	}
}

func (m *Machine) space(ev Space) {
	m.node(ev.Node).low = ev.Low
	m.lows = 0
	for i := range m.nodes {
		if m.nodes[i].low {
			m.lows++
		}
	}
	if m.lead != nil {
		m.lead.review = true
	}
}

func (m *Machine) live(ev Live) {
	n := m.node(ev.Node)
	n.incarnation, n.known = ev.Incarnation, true
	if ev.Node == m.self.Node && ev.Incarnation != m.self.Incarnation {
		m.reregister(ev.Incarnation)
	}
	switch {
	case m.lead != nil:
		m.lead.review = true
		if f := m.lead.follower(ev.Node); f != nil && f.incarnation < ev.Incarnation {
			m.probeAgain(ev.Node)
		}
	case m.state.Revision != 0:
		m.applyRole()
	}
}

// reregister ends a leadership together with its incarnation (EL-3), and continues under the next incarnation; 0: no
// registration yet.
func (m *Machine) reregister(i ident.Incarnation) {
	if m.lead != nil {
		m.stepDown()
	}
	m.campaign, m.cas = nil, nil
	if i != 0 {
		m.self.Incarnation = i
	}
}

// probeAgain asks a returning follower for its position.
func (m *Machine) probeAgain(n ident.Node) {
	if f := m.lead.follower(n); f != nil {
		f.probeAgain(m.nowMS)
	}
}
