package replica

import (
	"errors"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// leadership is one epoch led by this machine.
type leadership struct {
	epoch     ident.Epoch
	start     ident.Position // of the marker: the epoch start
	markerEnd ident.Position
	sinceMS   int64
	open      bool   // the switch into the epoch is durable here: sending may begin
	opening   uint64 // token that makes it so

	followers []follower // all other replicas, sorted by node

	pending   []pendingPut // appended, not committed; by end
	held      []heldPut    // waiting without an offset
	heldBytes int

	review     bool          // something that may change the wanted ISR happened
	unresolved []outstanding // proposals that may still land
	retryMS    int64         // when to look at the unresolved again

	rollback bool           // a rollback was proposed in this epoch
	asked    ident.Position // committed end when it was: it may have moved since (RB-4)
	paused   bool           // puts are held while a rollback or a hand-over is under way
	waiters  []taken        // taken back, waiting for the marker
	heir     ident.Node     // of a planned hand-over
	heirMS   int64          // since when

	confirmN  uint64 // newest version issued
	confirmed uint64 // held by all of the maximal ISR
	changes   []pendingChange
}

type pendingPut struct {
	ticket uint64
	first  ident.Sequence
	end    ident.Offset
	sentMS int64
}

type heldPut struct {
	put     Put
	sinceMS int64
}

type taken struct {
	ticket  uint64
	sinceMS int64
}

type pendingChange struct{ ticket, n uint64 }

// becomeLeader opens an epoch that an election gave to this machine: the whole
// log is kept, the marker comes at its end (RB-5).
func (m *Machine) becomeLeader(e ident.Epoch) {
	if m.lead != nil {
		m.stepDown()
	}
	m.counters.Elections++
	m.openEpoch(e, m.log.end)
}

// openEpoch writes promise, truncation and marker as one journal record, takes
// the epoch and waits until that is durable before it speaks (RB-4). The channel
// state is issued anew as (epoch, 1) (RB-13).
func (m *Machine) openEpoch(e ident.Epoch, at ident.Position) {
	m.promised, m.follow = e, following{}
	draft := queue.Marker()
	marker := draft.Seal(at, e, m.log.lastCRC, m.log.timeNS)
	m.write(queue.Write{Kind: queue.WriteReset, Epoch: e, At: at, PrevCRC: m.log.lastCRC, Batches: []queue.Batch{marker}})
	m.appendBatch(marker)
	m.role = Electing
	if m.broken(BreakMarkerGate) {
		m.role = Leader
	}
	m.lead = &leadership{
		epoch: e, start: at, markerEnd: marker.End, sinceMS: m.now, opening: m.out.Token, confirmN: 1,
		open: m.broken(BreakOpenDurable),
	}
	m.log.dropTail()
	m.remember(marker)
	m.register.Unlead() // a finish that came after the snapshot would be in no version of this epoch
	m.keep(queue.Confirm{Epoch: e, N: 1, Full: true, Delta: m.register.Snapshot()})
	m.syncFollowers()
}

// leadSynced opens the epoch once its switch is durable: from then on it speaks.
func (m *Machine) leadSynced() {
	l := m.lead
	if !l.open && m.log.durable.token >= l.opening {
		l.open = true
	}
}

// stepDown ends the leadership in this process for good. What was written is in
// doubt, what was not is the next leader's.
func (m *Machine) stepDown() {
	l := m.lead
	if l == nil {
		return
	}
	m.lead, m.role = nil, Follower
	for _, p := range l.pending {
		if m.broken(BreakStepDownDoubt) {
			m.done(p.ticket, 0, RolledBack)
			continue
		}
		m.inDoubt(p.ticket)
	}
	for _, w := range l.waiters {
		m.inDoubt(w.ticket)
	}
	for _, h := range l.held {
		m.done(h.put.Ticket, 0, NotLeader)
	}
	for _, c := range l.changes {
		m.done(c.ticket, 0, InDoubt)
	}
	m.log.dropTail()
}

func (m *Machine) inDoubt(ticket uint64) {
	if ticket != 0 {
		m.counters.InDoubt++
		m.done(ticket, 0, InDoubt)
	}
}

// propose takes puts: a repeat joins its first try, the others are appended as
// one group, or held while the partition cannot take them.
func (m *Machine) propose(ev Propose) {
	l := m.lead
	if l == nil {
		for _, p := range ev.Puts {
			m.done(p.Ticket, 0, NotLeader)
		}
		return
	}
	m.log.timeNS = max(m.log.timeNS, ev.TimeNS)
	for _, p := range ev.Puts {
		switch {
		case m.repeated(p):
		case m.writable() && len(l.held) == 0:
			m.appendPut(p)
		case l.heldBytes+p.Draft.Size() > m.o.HeldBytes:
			m.done(p.Ticket, 0, NotEnoughReplicas)
		default:
			l.held = append(l.held, heldPut{put: p, sinceMS: m.now})
			l.heldBytes += p.Draft.Size()
		}
	}
}

// repeated recognises a put whose request id is in the log: it is answered, or
// waits for the same commit as the first.
func (m *Machine) repeated(p Put) bool {
	seen, ok := m.recent.find(p.Draft.Request)
	if !ok || m.broken(BreakRequestID) {
		return false
	}
	if seen.End.Offset <= m.committed.Offset && m.role == Leader || m.broken(BreakRequestCommitted) {
		m.done(p.Ticket, seen.First, Duplicate)
		return true
	}
	m.await(pendingPut{ticket: p.Ticket, first: seen.First, end: seen.End.Offset, sentMS: m.now})
	return true
}

// await keeps the waiting puts in the order of their ends.
func (m *Machine) await(p pendingPut) {
	l := m.lead
	i := len(l.pending)
	for i > 0 && l.pending[i-1].end > p.end {
		i--
	}
	l.pending = slices.Insert(l.pending, i, p)
}

// appendPut gives a put its place. From here on its failure is never definite
// without a rollback (RB-1).
func (m *Machine) appendPut(p Put) {
	b := p.Draft.Seal(m.log.end, m.lead.epoch, m.log.lastCRC, m.log.timeNS)
	m.appendBatch(b)
	m.extend(b)
	m.remember(b)
	m.lead.pending = append(m.lead.pending, pendingPut{ticket: p.Ticket, first: b.At.Sequence, end: b.End.Offset, sentMS: m.now})
}

// remember keeps a new batch for the followers, if there are any.
func (m *Machine) remember(b queue.Batch) {
	if len(m.state.Replicas) > 1 {
		m.log.pushTail(b, m.o.TailBytes)
	}
}

// writable reports whether a put may get an offset now.
func (m *Machine) writable() bool {
	l := m.lead
	return l != nil && m.role == Leader && !l.paused && m.liveISR() >= m.state.MinInSync
}

// liveISR counts the ISR members that answer.
func (m *Machine) liveISR() int {
	n := 0
	for _, x := range m.state.ISR {
		if x.Node == m.self.Node || m.node(x.Node).up {
			n++
		}
	}
	return n
}

// admitHeld appends what waited, in order, as soon as that is possible.
func (m *Machine) admitHeld() {
	l := m.lead
	if len(l.held) == 0 || !m.writable() {
		return
	}
	held := l.held
	l.held, l.heldBytes = nil, 0
	for _, h := range held {
		if !m.repeated(h.put) {
			m.appendPut(h.put)
		}
	}
}

// commit moves the committed end to the least end acknowledged by the maximal
// ISR, and answers what it passes.
func (m *Machine) commit() {
	l := m.lead
	end, confirmed, ok := m.acknowledgedByAll()
	if !ok {
		return
	}
	if end.Offset > m.committed.Offset {
		m.committed = end
		m.noteCommitted()
	}
	if m.role == Electing && m.committed.Offset >= l.markerEnd.Offset {
		m.role = Leader
		m.settleTaken()
	}
	m.confirmedBy(confirmed)
	if m.role != Leader {
		return
	}
	n := 0
	for n < len(l.pending) && l.pending[n].end <= m.committed.Offset {
		m.done(l.pending[n].ticket, l.pending[n].first, Committed)
		n++
	}
	l.pending = append(l.pending[:0], l.pending[n:]...)
	m.trimTail()
}

// trimTail drops the batches that every reachable follower acknowledged.
func (m *Machine) trimTail() {
	o := m.committed.Offset
	for i := range m.lead.followers {
		if f := &m.lead.followers[i]; f.matched && f.up(m) {
			o = min(o, f.match.Offset)
		}
	}
	m.log.trimTailTo(o)
}

// leadTick handles everything that waits for time only.
func (m *Machine) leadTick() {
	l := m.lead
	n := 0
	for n < len(l.held) && m.now-l.held[n].sinceMS > m.o.HoldMS {
		l.heldBytes -= l.held[n].put.Draft.Size()
		m.done(l.held[n].put.Ticket, 0, NotEnoughReplicas)
		n++
	}
	l.held = append(l.held[:0], l.held[n:]...)
	l.review = true
	m.rollbackTick()
	m.handOverTick()
	for i := range l.followers {
		l.followers[i].tick(m)
	}
}

// idle: nothing waits, every follower that answers knows everything, and the
// ISR is as good as it can be.
func (l *leadership) idle(m *Machine) bool {
	if m.role != Leader || len(l.pending)+len(l.held)+len(l.waiters)+len(l.unresolved)+len(l.changes) > 0 || l.paused {
		return false
	}
	for i := range l.followers {
		f := &l.followers[i]
		spared := len(m.state.ISR) > m.state.MinInSync && m.liveISR() >= m.state.MinInSync
		if f.up(m) && !f.current(m) || m.inISR(f.node) && !f.up(m) && spared {
			return false
		}
	}
	_, better := m.wantedISR()
	return !better
}

// handOver begins a planned change of leader: puts are held, everything is
// committed and copied, then the key is given to the heir.
func (m *Machine) handOver(ev HandOver) {
	if m.lead != nil && m.role == Leader && m.lead.heir == "" && m.inISR(ev.To) && ev.To != m.self.Node {
		m.lead.heir, m.lead.heirMS, m.lead.paused = ev.To, m.now, true
	}
}

// handOverTick goes on leading when a hand-over does not work, or has no answer:
// if it has landed, what is committed meanwhile is committed by the heir too.
func (m *Machine) handOverTick() {
	l := m.lead
	if l.heir != "" && m.now-l.heirMS > m.o.GraceMS {
		l.heir, l.paused = "", m.rollbackMayLand()
	}
}

// giveAway proposes the heir when it has everything, as long as its store is a
// member: it may have been proposed out since the hand-over began. A live leader
// without its store would block every election.
func (m *Machine) giveAway() bool {
	l := m.lead
	if l.heir == "" {
		return false
	}
	f := l.follower(l.heir)
	if f == nil || !slices.Contains(m.state.ISR, ident.Member{Node: f.node, Store: f.store}) || !f.present(m) {
		return false
	}
	complete := len(l.pending) == 0 && m.committed.Offset == m.log.end.Offset &&
		f.match.Offset == m.log.end.Offset && f.confirmAcked == l.confirmN
	if !complete && !m.broken(BreakHandOverComplete) {
		return false
	}
	s := m.state.Clone()
	s.Leader, s.LeaderIncarnation, s.Epoch = l.heir, f.incarnation, l.epoch+1
	m.proposeCAS(casHandOver, s, nil, &Peer{Node: l.heir, Incarnation: f.incarnation})
	return true
}

func (m *Machine) inISR(n ident.Node) bool {
	return slices.ContainsFunc(m.state.ISR, func(x ident.Member) bool { return x.Node == n })
}

var errAckBeyondEnd = errors.New("replica: acknowledgement beyond the end of the log")
