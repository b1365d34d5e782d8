package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// campaign is a replica's way from "the leader is gone" to a proposal. It asks
// the other ISR members what they hold, and stands at once if nobody holds
// more; who holds less gives the better ones a head start. Any of them is safe:
// every ISR member holds everything committed.
type campaign struct {
	startMS int64
	asked   []ident.Node
	answers []standing
	stoodMS int64 // 0 = not yet
}

// standing is what a candidate holds.
type standing struct {
	node  ident.Node
	epoch ident.Epoch // of its newest batch
	end   ident.Offset
}

// leaderGone: the incarnation that the key names as leader is not registered.
func (m *Machine) leaderGone() bool {
	if m.state.Revision == 0 || m.role == Stopped || m.lead != nil {
		return false
	}
	n := m.node(m.state.Leader)
	return n.known && n.incarnation != m.state.LeaderIncarnation
}

// mayStand: this store is in the ISR, and this incarnation is registered.
func (m *Machine) mayStand() bool {
	return m.registered() && m.holdsISRStore()
}

// campaignStep drives the election: nobody's word is needed but etcd's.
func (m *Machine) campaignStep() {
	if !m.leaderGone() || !m.mayStand() {
		if m.campaign != nil && m.role == Candidate {
			m.becomeFollower()
		}
		m.campaign = nil
		return
	}
	if m.campaign == nil {
		m.startCampaign()
	}
	c := m.campaign
	m.role = Candidate
	if m.cas != nil || c.stoodMS != 0 && m.now-c.stoodMS < m.o.RetryMS || m.now < c.startMS+m.headStart() {
		return
	}
	c.stoodMS = m.now
	s := m.state.Clone()
	gone := Peer{Node: s.Leader, Incarnation: s.LeaderIncarnation}
	s.Leader, s.LeaderIncarnation, s.Epoch = m.self.Node, m.self.Incarnation, s.Epoch+1
	m.proposeCAS(casElection, s, &gone, nil)
}

func (m *Machine) startCampaign() {
	m.campaign = &campaign{startMS: m.now}
	for _, x := range m.state.ISR {
		if x.Node != m.self.Node && m.node(x.Node).up {
			m.campaign.asked = append(m.campaign.asked, x.Node)
			m.send(x.Node, Message{Kind: MsgProbe, Epoch: m.promised, To: x.Store})
		}
	}
}

// probed takes an answer to the question what another member holds.
func (m *Machine) probed(from Peer, msg *Message) {
	c := m.campaign
	if c == nil || slices.ContainsFunc(c.answers, func(s standing) bool { return s.node == from.Node }) {
		return
	}
	c.answers = append(c.answers, standing{node: from.Node, epoch: msg.LastEpoch, end: msg.Durable.Offset})
}

// headStart is how long this candidate waits: nothing if everybody asked has
// answered and holds no more, one election time for each better one, and one
// more while answers are missing.
func (m *Machine) headStart() int64 {
	c := m.campaign
	mine := standing{node: m.self.Node, epoch: m.lastEpoch(), end: m.log.durable.end.Offset}
	turns := int64(0)
	for _, a := range c.answers {
		if a.better(mine) {
			turns++
		}
	}
	if len(c.answers) < len(c.asked) {
		turns++
		turns += int64(slices.IndexFunc(m.state.ISR, func(x ident.Member) bool { return x.Node == m.self.Node }))
	}
	return turns * m.o.ElectionMS
}

func (s standing) better(t standing) bool {
	switch {
	case s.epoch != t.epoch:
		return s.epoch > t.epoch
	case s.end != t.end:
		return s.end > t.end
	default:
		return s.node < t.node
	}
}
