package replica

import (
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// leadership is one epoch that this machine leads. openEpoch creates it, stepDown or the next epoch ends it. Only Step
// changes it; the comment of each field names the methods that write it.
type leadership struct {
	epoch     ident.Epoch    // openEpoch
	start     ident.Position // openEpoch: the epoch start, where the marker begins
	markerEnd ident.Position // openEpoch
	sinceMS   int64          // openEpoch
	openToken uint64         // openEpoch: of the submission that switches into the epoch
	open      bool           // synced: that submission is durable, messages may leave

	followers []progress // syncFollowers: all other replicas, sorted by node

	// The puts (puts.go).
	pending   []pendingPut // with an offset, not committed; sorted by end
	held      []heldPut    // without an offset
	heldBytes int          // of held
	paused    bool         // rollback and transfer: puts are held although they could be appended

	// The changes of the key (cas.go, isr.go, transfer.go).
	review     bool       // something happened that may change the next ISR
	unresolved []proposal // that may still land
	retryMS    int64      // handleCAS: the earliest time of the next proposal
	transfer   transfer

	// The rollback (rollback.go).
	rollback      bool // a rollback was proposed in this epoch
	afterRollback bool // rollBack: this machine also led the previous epoch, without interruption
	rolledBack    []rolledBackPut

	// The channel state (channelstate.go).
	stateIssued    uint64 // newest version issued in this epoch
	stateCommitted uint64 // held durably by every member of the maximal ISR
	changes        []pendingChange
}

// becomeLeader opens an epoch that an election gave to this machine, with the marker at the end of the log (RB-5).
func (m *Machine) becomeLeader(e ident.Epoch) {
	if m.lead != nil {
		m.stepDown()
	}
	m.counters.Elections++
	m.openEpoch(e, m.log.end)
}

// openEpoch writes the promise, the truncation and the marker as one journal record, and leads from then on; it serves
// when the marker is committed (EL-4). Nothing is sent before the record is durable (RB-4). An offset is used again
// only in this higher epoch (RB-9). The channel state is issued again as version (epoch, 1) (RB-12, RB-13).
func (m *Machine) openEpoch(e ident.Epoch, at ident.Position) {
	m.promised, m.follow = e, following{}
	draft := queue.Marker()
	marker := draft.Seal(at, e, m.log.lastCRC, m.log.timeNS)
	m.write(queue.Write{Kind: queue.WriteReset, Epoch: e, At: at, PrevCRC: m.log.lastCRC, Batches: []queue.Batch{marker}})
	m.appendBatch(marker)
	m.role = Electing
	m.lead = &leadership{
		epoch: e, start: at, markerEnd: marker.End, sinceMS: m.nowMS, openToken: m.out.Token, stateIssued: 1,
	}
	m.log.tail.drop()
	m.addToTail(marker)
	m.register.Unlead() // before the snapshot: a finish after it would be in no version of this epoch
	m.writeState(queue.StateVersion{Epoch: e, N: 1, Full: true, Delta: m.register.Snapshot()})
	m.syncFollowers()
}

// stepDown permanently ends the leadership in this process. Puts with an offset are in doubt, because the next leader
// may commit them (RB-8). Puts without an offset are redirected to the next leader.
func (m *Machine) stepDown() {
	l := m.lead
	if l == nil {
		return
	}
	m.lead, m.role = nil, Follower
	for _, p := range l.pending {
		m.inDoubt(p.ticket)
	}
	for _, p := range l.rolledBack {
		m.inDoubt(p.ticket)
	}
	for _, h := range l.held {
		m.done(h.put.Ticket, 0, outcome.NotLeader)
	}
	for _, c := range l.changes {
		m.done(c.ticket, 0, outcome.InDoubt)
	}
	m.log.tail.drop()
}

// inDoubt answers a put whose fate a later leader decides.
func (m *Machine) inDoubt(ticket uint64) {
	if ticket != 0 {
		m.counters.InDoubt++
		m.done(ticket, 0, outcome.InDoubt)
	}
}

// commit moves the committed end to the lowest end acknowledged within the maximal ISR, and answers the puts that it
// passes.
func (m *Machine) commit() {
	end, state, ok := m.leastAcknowledged()
	if !ok {
		return
	}
	m.advanceCommitted(end)
	if m.markerCommitted() {
		m.role = Leader
		m.answerRolledBack()
	}
	m.commitState(state)
	if m.role != Leader {
		return
	}
	m.answerCommitted()
	m.trimTail()
}

// markerCommitted reports whether the committed end has passed the marker of this epoch.
func (m *Machine) markerCommitted() bool { return m.committed.Offset >= m.lead.markerEnd.Offset }

// leastAcknowledged applies the commit rule to the current acknowledgements.
func (m *Machine) leastAcknowledged() (end ident.Position, state uint64, ok bool) {
	d := &m.log.durable
	own := ack{valid: d.epoch >= m.lead.epoch, end: d.end, state: d.state.in(m.lead.epoch)}
	c := newCommitment(own)
	m.requireMaximalISR(&c)
	if c.blocked {
		return c.result()
	}
	for i := range m.lead.followers {
		if f := &m.lead.followers[i]; f.lag.keepsUp && f.stateCurrent(m.lead.stateIssued) && !m.inISR(f.node) && !m.low(f.node) && m.responsive(f) {
			c.wait(&f.ack)
		}
	}
	return c.result()
}

// ackOf returns the acknowledgement of a follower; nil if the node is not a replica.
func (l *leadership) ackOf(n ident.Node) *ack {
	if f := l.follower(n); f != nil {
		return &f.ack
	}
	return nil
}

// trimTail drops the batches that every responding follower has acknowledged.
func (m *Machine) trimTail() {
	o := m.committed.Offset
	for i := range m.lead.followers {
		if f := &m.lead.followers[i]; f.ack.valid && m.up(f) && !m.spared(f) {
			o = min(o, f.ack.end.Offset)
		}
	}
	m.log.tail.trimTo(o)
}

// writable reports whether the state of the replicas allows a put to get an offset now. The metadata store need not
// answer (EL-5).
func (m *Machine) writable() bool {
	l := m.lead
	return l != nil && m.role == Leader && m.markerCommitted() && !l.paused && m.liveISR() >= m.state.MinInSync
}

// accepts reports whether this put may get an offset now. While a disk is full, only control batches may (AC-9).
func (m *Machine) accepts(d *queue.Draft) bool {
	return m.writable() && (d.Control != 0 || len(m.lead.held) == 0 && m.withSpace(m.state.ISR) == len(m.state.ISR))
}

// liveISR counts the ISR members that answer, this machine included.
func (m *Machine) liveISR() int {
	n := 0
	for _, x := range m.state.ISR {
		if x.Node == m.self.Node || m.node(x.Node).up {
			n++
		}
	}
	return n
}

// leadTick does everything that depends only on the passing of time.
func (m *Machine) leadTick() {
	l := m.lead
	m.refuseHeld()
	l.review = true
	m.rollbackTick()
	m.transferTick()
	for i := range l.followers {
		m.followerTick(&l.followers[i])
	}
}

// idle reports that nothing waits, every follower that answers is caught up, and the ISR need not change.
func (l *leadership) idle(m *Machine) bool {
	if m.role != Leader || !m.markerCommitted() || len(l.pending)+len(l.held)+len(l.rolledBack)+len(l.unresolved)+len(l.changes) > 0 || l.paused {
		return false
	}
	for i := range l.followers {
		f := &l.followers[i]
		removable := len(m.state.ISR) > m.state.MinInSync && m.liveISR() >= m.state.MinInSync
		settled := m.caughtUp(f) || m.spared(f) && !f.probing() && f.ack.valid && f.ack.state == l.stateIssued
		if m.up(f) && (!settled || m.silentSince(f) || m.node(f.node).flaps(m.nowMS, m.o.ISRMS)) || m.inISR(f.node) && !m.up(f) && removable {
			return false
		}
	}
	_, changed := m.nextISR()
	return !changed
}
