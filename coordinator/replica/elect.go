package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// campaign is the phase between the loss of the leader and the replica's own proposal (EL-2). The candidate asks the
// other ISR members where their logs end. If some log ends later it waits, so that those members come first. That order
// saves truncations; safety does not depend on it, because every ISR member holds everything that is committed.
type campaign struct {
	startMS    int64
	asked      []ident.Node
	replies    []logTip
	proposedMS int64 // 0: not yet
}

// logTip is the durable end of one member's log.
type logTip struct {
	node  ident.Node
	epoch ident.Epoch // of the newest batch
	end   ident.Offset
}

// before orders candidates: by the later epoch, then the longer log, then the name.
func (a logTip) before(b logTip) bool {
	switch {
	case a.epoch != b.epoch:
		return a.epoch > b.epoch
	case a.end != b.end:
		return a.end > b.end
	default:
		return a.node < b.node
	}
}

// leaderGone reports whether the incarnation that the key names as leader is not registered.
func (m *Machine) leaderGone() bool {
	if m.state.Revision == 0 || m.role == Stopped || m.lead != nil {
		return false
	}
	n := m.node(m.state.Leader)
	return n.known && n.incarnation != m.state.LeaderIncarnation
}

// campaignStep drives the election. The metadata store's transaction decides it; other members do not vote.
func (m *Machine) campaignStep() {
	if !m.leaderGone() || !m.registered() || !m.isMember() { // only a registered member stands (EL-1)
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
	proposedLately := c.proposedMS != 0 && m.nowMS-c.proposedMS < m.o.RetryMS
	if m.cas != nil || proposedLately || m.nowMS < c.startMS+m.headStartMS() {
		return
	}
	c.proposedMS = m.nowMS
	s := m.state.Clone()
	gone := Peer{Node: s.Leader, Incarnation: s.LeaderIncarnation}
	s.Leader, s.LeaderIncarnation, s.Epoch = m.self.Node, m.self.Incarnation, s.Epoch+1
	m.proposeCAS(casElection, s, &gone, nil)
}

// startCampaign asks the members that answer where their logs end.
func (m *Machine) startCampaign() {
	m.campaign = &campaign{startMS: m.nowMS}
	for _, x := range m.state.ISR {
		if x.Node != m.self.Node && m.node(x.Node).up {
			m.campaign.asked = append(m.campaign.asked, x.Node)
			m.send(x.Node, Message{Kind: MsgProbe, Epoch: m.promised, To: x.Store})
		}
	}
}

func (m *Machine) answerProbe(from Peer) {
	m.send(from.Node, Message{
		Kind: MsgProbeReply, Epoch: m.promised, LastEpoch: m.log.lastEpoch(), Durable: m.log.durable.end,
	})
}

// handleProbeReply takes the first reply of a member.
func (m *Machine) handleProbeReply(from Peer, msg *Message) {
	c := m.campaign
	if c == nil || slices.ContainsFunc(c.replies, func(r logTip) bool { return r.node == from.Node }) {
		return
	}
	c.replies = append(c.replies, logTip{node: from.Node, epoch: msg.LastEpoch, end: msg.Durable.Offset})
}

// headStartMS is how long this candidate waits: one election time for each reply that ranks before its own log. While
// replies are missing it adds one, plus one for each position in the ISR, so that isolated candidates do not collide.
func (m *Machine) headStartMS() int64 {
	c := m.campaign
	mine := logTip{node: m.self.Node, epoch: m.log.lastEpoch(), end: m.log.durable.end.Offset}
	slots := int64(0)
	for _, r := range c.replies {
		if r.before(mine) {
			slots++
		}
	}
	if len(c.replies) < len(c.asked) {
		slots++
		slots += int64(slices.IndexFunc(m.state.ISR, func(x ident.Member) bool { return x.Node == m.self.Node }))
	}
	return slots * m.o.ElectionMS
}
