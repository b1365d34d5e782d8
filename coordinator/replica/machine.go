package replica

import (
	"cmp"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica/dedupe"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Machine is one partition on one broker. Only Step changes it, in one goroutine at a time: the holder of the run lock.
type Machine struct {
	o        Options
	self     Peer // live: the incarnation changes when the node registers again
	index    commitLog
	register register

	nowMS int64 // tick
	role  Role  // role.go, openEpoch, commit, stepDown, stop

	log              log             // log.go
	recent           dedupe.Requests // log.go: the request ids in the log
	dedupe           dedupe.Window   // log.go, Step, tick, appendFrom: the identities in the log
	marks            marks           // marks.go, log.go, synced
	committed        ident.Position  // advanceCommitted, restartAt
	committedWritten ident.Offset    // writeCommitted: the committed end in the journal
	committedMS      int64           // writeCommitted: when it was written there
	promised         ident.Epoch     // promise, openEpoch: messages of lower epochs are not answered
	channels         channelState    // writeState

	state metadata.PartitionState // observe: the key as last seen; Revision 0: never
	nodes []node                  // nodes.go: the replicas' nodes, sorted by name
	lows  int                     // space: how many of them are below their disk reserve

	follow   following   // follower.go
	lead     *leadership // leader.go; not nil in roles Electing and Leader
	campaign *campaign   // elect.go; not nil in role Candidate
	cas      *proposal   // cas.go; the outstanding one

	requestToken uint64 // the newest token of a read or a compare-and-swap
	transfers    uint64 // proposeTransfer: the newest number of a request to the channels to stop
	counters     Counters
	out          *Effects // of the current Step
}

// New makes the machine of a partition. The caller then reports Live and PeerState of each replica, Meta, and a Tick.
func New(r queue.Restored, ix commitLog, reg register, o Options) *Machine {
	m := &Machine{
		o: o, self: o.Self, index: ix, register: reg,
		promised:         r.Epoch,
		committed:        r.KnownCommitted,
		committedWritten: r.KnownCommitted.Offset,
		channels:         channelState{version: version{r.State.Epoch, r.State.N}},
	}
	m.log = newLog(r, o.Epochs)
	m.o.RepeatMS = cmp.Or(m.o.RepeatMS, DefaultRepeatMS)
	m.recent = dedupe.NewRequests(m.o.RepeatMS)
	m.recent.Load(r.Recent)
	m.dedupe = dedupe.NewWindow(cmp.Or(o.DedupeMS, dedupe.DefaultMS), cmp.Or(o.Identities, dedupe.DefaultIdentities), o.Budget)
	m.dedupe.Load(&r)
	m.marks = newMarks(&r)
	return m
}

// Step processes one event and adds the resulting effects to out. It never panics because of a peer's bytes.
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
		m.handleRead(ev)
	case Meta:
		m.observe(ev.State)
	case CASDone:
		m.handleCAS(ev)
	case PeerState:
		m.peerState(ev)
	case Live:
		m.live(ev)
	case Space:
		m.space(ev)
	case Tick:
		m.tick(ev)
	case TransferLeadership:
		m.transferLeadership(ev)
	case ChannelsStopped:
		m.channelsStopped(ev)
	case Dedupe:
		m.dedupe.LengthMS = ev.WindowMS
	}
	m.advance()
	m.endStep()
	if m.o.Check {
		m.check()
	}
}

// receive dispatches a message of a peer, unless it is for another store (ID-6). Nothing that a peer sends may panic.
func (m *Machine) receive(ev Received) {
	msg := &ev.Msg
	if msg.To != 0 && msg.To != m.self.Store {
		if msg.Kind == MsgAppend { // the rejection reports the store of this replica
			m.reject(ev.From.Node, msg.Epoch, msg.Prev)
		}
		return
	}
	switch msg.Kind {
	case MsgAppend:
		if m.accept(ev.From, msg) {
			m.appendFrom(ev.From.Node, msg)
		}
	case MsgChannelState:
		if m.accept(ev.From, msg) {
			m.followCommitted(msg.Committed)
			m.stateFrom(msg)
		}
	case MsgAppendAck:
		m.handleAck(ev.From, msg)
	case MsgProbe:
		m.answerProbe(ev.From)
	case MsgProbeReply:
		m.handleProbeReply(ev.From, msg)
	}
}

// advance takes the steps that any event may have made possible.
func (m *Machine) advance() {
	if m.lead != nil {
		m.commit()
		m.admitHeld()
		m.reconfigure()
		m.replicate()
	}
	m.campaignStep()
}

// endStep closes the submission of this Step: everything written so far becomes durable with its token.
func (m *Machine) endStep() {
	m.recordMark()
	if m.out.Token != 0 {
		m.recordCommitted()
		m.log.closeToken(m.out.Token, m.nowMS, m.promised, m.channels.version)
	}
	m.out = nil
}

// tick advances the time. A clock that jumps back only prolongs waits.
func (m *Machine) tick(ev Tick) {
	m.nowMS = max(m.nowMS, ev.NowMS)
	m.recent.Tick(m.nowMS)
	m.dedupe.Tick(m.nowMS)
	if m.lead != nil {
		m.leadTick()
	}
}

// synced notes that the log is durable up to a submission, and acknowledges that.
func (m *Machine) synced(ev Synced) {
	if ev.Err != nil {
		m.stop(ev.Err)
		return
	}
	m.log.synced(ev.Token)
	m.marks.synced(m.log.durable.token)
	if l := m.lead; l != nil { // messages leave once the switch into the epoch is durable (RB-4)
		l.open = l.open || m.log.durable.token >= l.openToken
		return
	}
	m.acknowledge()
}

// stop ends all acknowledgements, because the store has failed and is never retried (RB-1).
func (m *Machine) stop(err error) {
	m.stepDown()
	m.role = Stopped
	m.campaign, m.cas = nil, nil
	m.alarm(err)
}

// refuseStopped answers puts and changes, which would otherwise wait forever.
func (m *Machine) refuseStopped(ev Event) {
	switch ev := ev.(type) {
	case Propose:
		for _, p := range ev.Puts {
			m.done(p.Ticket, 0, outcome.NotLeader)
		}
	case Change:
		m.done(ev.Ticket, 0, outcome.NotLeader)
	}
}

// Release returns shared resources of the broker. It is the last call.
func (m *Machine) Release() { m.dedupe.Release() }

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

// Committing reports whether this machine leads and puts wait for their commit.
func (m *Machine) Committing() bool {
	return m.role == Leader && len(m.lead.pending) > 0
}

func (m *Machine) write(w queue.Write) {
	if !m.wrote() {
		m.log.token++
		m.out.Token = m.log.token
	}
	m.out.Write = append(m.out.Write, w)
}

// wrote reports whether this Step writes to the journal.
func (m *Machine) wrote() bool { return m.out.Token != 0 && !m.log.closed(m.out.Token) }

func (m *Machine) send(to ident.Node, msg Message) {
	msg.Store = m.self.Store
	m.out.Send = append(m.out.Send, Envelope{To: to, Msg: msg})
}

// done answers a ticket; ticket 0 needs no answer.
func (m *Machine) done(ticket uint64, first ident.Sequence, o outcome.Outcome) {
	if ticket != 0 {
		m.out.Done = append(m.out.Done, outcome.Completion{Ticket: ticket, First: first, Outcome: o})
	}
}

// alarm reports an error to the operator. Only the first alarm of a Step is reported.
func (m *Machine) alarm(err error) {
	if m.out.Alarm == nil {
		m.out.Alarm = err
	}
}

// Options configures a machine. The times are in milliseconds; DESIGN.md, "The times", explains each.
type Options struct {
	Self        Peer
	Partition   ident.Partition
	ISRMS       int64          // T_isr 1000: after this time the removal of a silent or late member from the ISR is proposed
	HoldMS      int64          // T_hold 3000: how long a put waits without an offset
	WriteMS     int64          // write deadline 3000: how long an appended put may stay uncommitted before a rollback
	GraceMS     int64          // 2000: how long a rolled-back put waits for the marker
	RetryMS     int64          // 200: after this time an unanswered message or transaction is repeated
	ElectionMS  int64          // 50: wait for probe replies, and the stagger of candidates
	RepeatMS    int64          // 30000: how long a request id is recognised after its append; 0: the default
	DedupeMS    int64          // 120000: the initial dedupe window; 0: the default
	Identities  int            // identities of messages in the window; more are refused; 0: 1179648
	WindowBytes int            // 8 MiB in flight to one follower
	GroupBytes  int            // 1 MiB in one append
	TailBytes   int            // 16 MiB of the newest batches stay in memory for followers
	HeldBytes   int            // 64 MiB of puts may wait without an offset; more are refused
	Epochs      int            // entries of the epoch table sent in a rejection; 0: 256
	Budget      *dedupe.Budget // bounds the identities of all partitions of the broker; nil: unlimited
	Check       bool           // verify the invariants after every Step; on in all tests
}

// DefaultRepeatMS is the default of Options.RepeatMS: it exceeds the put limit (9 s), beyond which no edge repeats a
// put.
const DefaultRepeatMS = 30_000

// commitLog is the commit log, which the machine keeps equal to its own log. A lookup of an old record may read a page.
type commitLog interface {
	Append(r ...commitlog.Record)
	Truncate(end ident.Offset)
	// Restart empties the index; the next record begins at p.
	Restart(p ident.Position)
	// AtOffset finds the record whose batch covers byte o.
	AtOffset(o ident.Offset) (commitlog.Record, bool)
	// Start is the first position that is retained.
	Start() ident.Position
}

// register is the channel state of the partition (nsqd). Only Step calls it, in the order of the versions.
type register interface {
	// Snapshot encodes the whole current state.
	Snapshot() []byte
	// Apply applies a delta. A delta only moves a channel forward, unless it is a replicated seek.
	Apply(delta []byte)
	// Replace replaces the current state with a snapshot.
	Replace(full []byte)
	// Unlead ends any deliveries here, and accepts no further changes.
	Unlead()
}
