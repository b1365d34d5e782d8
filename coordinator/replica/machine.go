package replica

import (
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Machine is one partition on one broker. It is owned by one goroutine.
type Machine struct {
	o        Options
	self     Peer
	index    Index
	register Register

	now  int64 // ms, of the last Tick
	role Role

	log       log
	recent    recent
	committed ident.Position
	noted     ident.Offset // committed end last written as a hint

	promised ident.Epoch // no lower epoch is answered
	confirm  confirmState

	state meta.PartitionState // as last seen; Revision 0 = never
	nodes []node              // what is known of the replicas' nodes, sorted by name

	follow   following
	lead     *leadership // not nil in Electing and Leader
	campaign *campaign   // not nil in Candidate
	cas      *outstanding
	asked    uint64 // last token given to a read or a compare-and-swap

	counters Counters
	out      *Effects // of the Step that runs
}

// node is what the machine was told of one broker.
type node struct {
	name        ident.Node
	incarnation ident.Incarnation
	known       bool // a Live event came
	up, dead    bool
	changedMS   int64 // when up last changed
}

// outstanding is a compare-and-swap whose answer has not come.
type outstanding struct {
	token uint64
	state meta.PartitionState // proposed; Revision is the one it compares
	kind  casKind
	was   []ident.Member // the ISR it would replace
}

type casKind uint8

const (
	casISR casKind = iota + 1
	casRollback
	casHandOver
	casElection
)

// New makes the machine of a partition from what its store found. The caller
// must then tell it Live and PeerState of the replicas, Meta, and a Tick.
func New(r queue.Restored, ix Index, reg Register, o Options) *Machine {
	m := &Machine{
		o: o, self: o.Self, index: ix, register: reg,
		promised:  r.Epoch,
		committed: r.KnownCommitted,
		noted:     r.KnownCommitted.Offset,
	}
	m.log = newLog(r, o.Epochs)
	m.recent.load(r.Recent)
	m.confirm.load(r.Confirm)
	return m
}

// Step takes one event in and appends what must be done to out. It panics only
// on an impossible transition, never on a peer's bytes.
func (m *Machine) Step(ev Event, out *Effects) {
	m.out = out
	if m.role == Stopped {
		m.refuseStopped(ev)
		return
	}
	switch ev := ev.(type) {
	case Propose:
		m.propose(ev)
	case Change:
		m.change(ev)
	case Received:
		m.receive(ev)
	case Synced:
		m.synced(ev)
	case Read:
		m.readDone(ev)
	case Meta:
		m.learn(ev.State)
	case CASDone:
		m.casDone(ev)
	case PeerState:
		m.peerState(ev)
	case Live:
		m.liveness(ev)
	case Tick:
		m.tick(ev)
	case HandOver:
		m.handOver(ev)
	}
	m.advance()
	m.endStep()
	if m.o.Check {
		m.check()
	}
}

// advance does what any event may have made possible.
func (m *Machine) advance() {
	if m.lead != nil {
		m.commit()
		m.admitHeld()
		m.reconfigure()
		m.replicate()
	}
	m.campaignStep()
}

// endStep closes the submission of this Step: everything written so far is
// durable when its token is.
func (m *Machine) endStep() {
	if m.out.Token != 0 && m.log.closeToken(m.out.Token, m.now, m.promised, m.confirm.version) && m.broken(BreakSyncBeforeAck) {
		m.log.synced(m.out.Token)
		m.acknowledge()
	}
	m.out = nil
}

// write adds one journal record to this Step's submission.
func (m *Machine) write(w queue.Write) {
	if m.out.Token == 0 || m.log.closed(m.out.Token) {
		m.log.token++
		m.out.Token = m.log.token
	}
	m.out.Write = append(m.out.Write, w)
}

func (m *Machine) send(to ident.Node, msg Message) {
	msg.Store = m.self.Store
	m.out.Send = append(m.out.Send, Envelope{To: to, Msg: msg})
}

func (m *Machine) done(ticket uint64, first ident.Sequence, o Outcome) {
	if ticket != 0 {
		m.out.Done = append(m.out.Done, Completion{Ticket: ticket, First: first, Outcome: o})
	}
}

func (m *Machine) alarm(err error) {
	if m.out.Alarm == nil {
		m.out.Alarm = err
	}
}

// synced notes what became durable, and acknowledges it.
func (m *Machine) synced(ev Synced) {
	if ev.Err != nil {
		m.stop(ev.Err)
		return
	}
	m.log.synced(ev.Token)
	if m.lead != nil {
		m.leadSynced()
		return
	}
	m.acknowledge()
}

// stop ends all acknowledging: the store has failed and is never retried.
func (m *Machine) stop(err error) {
	m.stepDown()
	m.role = Stopped
	m.campaign, m.cas = nil, nil
	m.alarm(err)
}

// refuseStopped answers what would otherwise wait for ever.
func (m *Machine) refuseStopped(ev Event) {
	switch ev := ev.(type) {
	case Propose:
		for _, p := range ev.Puts {
			m.done(p.Ticket, 0, NotLeader)
		}
	case Change:
		m.done(ev.Ticket, 0, NotLeader)
	}
}

func (m *Machine) tick(ev Tick) {
	if ev.NowMS > m.now { // a clock that jumps back only makes waits longer
		m.now = ev.NowMS
	}
	if m.lead != nil {
		m.leadTick()
	}
}

// learn takes a newer state of the partition's key.
func (m *Machine) learn(s meta.PartitionState) {
	if s.Revision <= m.state.Revision {
		return
	}
	m.state = s.Clone()
	m.campaign = nil
	if m.lead != nil {
		m.lead.resolve(s.Revision)
		m.lead.review = true
	}
	m.assume()
}

// assume takes the role that the key, as known, gives this machine.
func (m *Machine) assume() {
	s := &m.state
	mine := s.Leader == m.self.Node && m.registered() && m.holdsISRStore() &&
		(s.LeaderIncarnation == m.self.Incarnation || m.broken(BreakIncarnation))
	switch {
	case mine && m.leads(s.Epoch):
		m.syncFollowers()
	case mine && m.lead != nil && m.lead.rollback && s.Epoch == m.lead.epoch+1:
		m.rollBack(s.Epoch)
	case mine && (s.Epoch > m.promised || m.broken(BreakIncarnation)):
		m.becomeLeader(s.Epoch)
	case m.campaign == nil:
		m.stepDown()
		m.becomeFollower()
	}
}

// leads reports whether this machine leads that epoch already.
func (m *Machine) leads(e ident.Epoch) bool { return m.lead != nil && m.lead.epoch == e }

// Committing reports whether this machine leads and puts are on their way to
// being committed.
func (m *Machine) Committing() bool {
	return m.role == Leader && len(m.lead.pending) > 0
}

// registered reports whether the node's own incarnation is the live one.
func (m *Machine) registered() bool {
	n := m.node(m.self.Node)
	return n.known && n.incarnation == m.self.Incarnation
}

// holdsISRStore reports whether this very store is in the ISR.
func (m *Machine) holdsISRStore() bool {
	for _, x := range m.state.ISR {
		if x.Node == m.self.Node {
			return x.Store == m.self.Store || m.broken(BreakStoreElect) || m.broken(BreakStoreID)
		}
	}
	return m.broken(BreakElectOutsideISR)
}

func (m *Machine) becomeFollower() {
	m.role = Idle
	for _, n := range m.state.Replicas {
		if n == m.self.Node {
			m.role = Follower
		}
	}
}

// node finds or makes the entry of a broker.
func (m *Machine) node(name ident.Node) *node {
	for i := range m.nodes {
		if m.nodes[i].name == name {
			return &m.nodes[i]
		}
		if m.nodes[i].name > name {
			m.nodes = append(m.nodes, node{})
			copy(m.nodes[i+1:], m.nodes[i:])
			m.nodes[i] = node{name: name, changedMS: m.now}
			return &m.nodes[i]
		}
	}
	m.nodes = append(m.nodes, node{name: name, changedMS: m.now})
	return &m.nodes[len(m.nodes)-1]
}

func (m *Machine) peerState(ev PeerState) {
	n := m.node(ev.Node)
	if n.up != ev.Up {
		n.changedMS = m.now
	}
	cameUp := ev.Up && !n.up
	n.up, n.dead = ev.Up, ev.Dead && !ev.Up
	if m.lead != nil {
		m.lead.review = true
		if cameUp {
			m.reprobe(ev.Node)
		}
	}
}

// liveness notes which incarnation of a node is registered. A machine whose own
// registration is gone stops leading and goes on under the new incarnation.
func (m *Machine) liveness(ev Live) {
	n := m.node(ev.Node)
	n.incarnation, n.known = ev.Incarnation, true
	if ev.Node == m.self.Node && ev.Incarnation != m.self.Incarnation {
		if m.lead != nil && !m.broken(BreakRegistration) {
			m.stepDown()
		}
		m.campaign, m.cas = nil, nil
		if ev.Incarnation != 0 {
			m.self.Incarnation = ev.Incarnation
		}
	}
	switch {
	case m.lead != nil:
		m.lead.review = true
		if f := m.lead.follower(ev.Node); f != nil && f.incarnation < ev.Incarnation {
			m.reprobe(ev.Node)
		}
	case m.state.Revision != 0:
		m.assume()
	}
}

// Idle reports that no Tick is needed before the next other event.
func (m *Machine) Idle() bool {
	if m.cas != nil || m.campaign != nil || len(m.log.pending) > 0 {
		return false
	}
	if m.lead == nil {
		return !m.leaderGone()
	}
	return m.lead.idle(m)
}
