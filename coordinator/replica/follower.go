package replica

import (
	"fmt"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// following is the follower's side of one epoch.
type following struct {
	leader   ident.Node     // "": no leader of the promised epoch has sent anything yet
	verified ident.Position // this log equals the leader's up to here, as compared in this epoch
}

// accept checks the epoch of a leader's message, and promises a higher one (ID-5).
func (m *Machine) accept(from Peer, msg *Message) bool {
	e := msg.Epoch
	if e < m.promised {
		m.reject(from.Node, m.promised, msg.Prev)
		return false
	}
	if m.lead != nil {
		if e <= m.lead.epoch {
			m.alarm(fmt.Errorf("%w: %s in epoch %d", errTwoLeaders, from.Node, e))
			return false
		}
		m.stepDown()
		m.becomeFollower()
	}
	if e > m.promised {
		m.promise(e)
	}
	if m.follow.leader != from.Node {
		m.followLeader(from.Node)
	}
	return true
}

// promise raises the promised epoch: this replica answers nothing in a lower one.
func (m *Machine) promise(e ident.Epoch) {
	m.promised = e
	m.followLeader("")
	m.write(queue.Write{Kind: queue.WriteEpoch, Epoch: e})
}

// followLeader starts following n. No part of the log counts as equal to the leader's until it has been compared in
// this epoch.
func (m *Machine) followLeader(n ident.Node) {
	m.follow = following{leader: n}
}

// reject sends the epoch table of this log (FO-2), from which the leader finds where the logs diverge. prev was
// rejected.
func (m *Machine) reject(to ident.Node, e ident.Epoch, prev ident.Position) {
	m.send(to, Message{
		Kind: MsgAppendAck, Epoch: e, Reject: true, Prev: prev, Durable: m.log.durable.end, Epochs: m.log.epochs,
	})
}

// appendFrom is the follower's only path for puts, multi-puts and control batches. The append must connect to this log
// (FO-1). Batches that are already here are skipped, a conflicting suffix is cut (FO-3), and the rest is written.
func (m *Machine) appendFrom(from ident.Node, msg *Message) {
	at, joins := m.joins(msg)
	if !joins && m.mayRestart(msg) {
		if m.protectsAbandoned(from, msg, ident.Position{}) {
			return
		}
		m.restartAt(msg.Prev, msg.PrevCRC, msg.Forgotten)
		m.write(queue.Write{Kind: queue.WriteRestart, Epoch: m.promised, At: msg.Prev, PrevCRC: msg.PrevCRC})
		at, joins = msg.Prev, true
	}
	if !joins {
		m.rejectAppend(from, msg)
		return
	}
	batches := msg.Batches
	if m.low(m.self.Node) && !m.inISR(m.self.Node) { // the leader has not been notified yet (AC-11)
		batches = nil
	}
	for i := range batches {
		b := &batches[i]
		if !m.takeBatch(from, msg, at, b) {
			return
		}
		at = b.End
	}
	m.dedupe.Follow(msg.ClockMS, m.nowMS)
	m.follow.verified = greatest(m.follow.verified, at)
	m.followCommitted(msg.Committed)
	if !m.wrote() { // otherwise its sync triggers the acknowledgement
		m.acknowledge()
	}
}

// joins finds where an append continues this log. If the preceding batches have equal checksums, the logs are equal up
// to there.
func (m *Machine) joins(msg *Message) (at ident.Position, ok bool) {
	at, ok = m.borderAt(msg.Prev.Offset)
	return at, ok && m.crcAt(at.Offset) == msg.PrevCRC
}

// mayRestart reports whether the log may be emptied and begin at the first position that the leader retains (CU-6).
// Nothing that is committed here, or was compared in this epoch, may be removed: a message that would do so is late or
// a duplicate.
func (m *Machine) mayRestart(msg *Message) bool {
	return msg.Restart && msg.Prev.Offset >= greatest(m.committed, m.follow.verified).Offset
}

// rejectAppend rejects an append that does not connect to this log. If it begins below the committed end, but not below
// what was compared in this epoch, the leader has another history. Two exceptions: this log has just been emptied
// (CU-6), or the position is before its beginning and the leader has committed more, so that its next probe is where
// this log ends (CU-1).
func (m *Machine) rejectAppend(from ident.Node, msg *Message) {
	beganAfresh := m.log.end == m.index.Start() // it contains nothing that could belong to another history
	start := m.index.Start().Offset
	beforeThisLog := msg.Prev.Offset < start && msg.Committed.Offset >= start
	below := msg.Prev.Offset < m.committed.Offset && msg.Prev.Offset >= m.follow.verified.Offset && !beganAfresh && !beforeThisLog
	if below && !m.protectsAbandoned(from, msg, msg.Prev) {
		m.alarm(fmt.Errorf("%w: leader %s, committed here up to %d", ErrOtherHistory, from, m.committed.Offset))
	}
	m.reject(from, m.promised, msg.Prev)
}

// takeBatch writes one batch of a message at `at`, unless it is already here. False: this batch and the rest are
// refused.
func (m *Machine) takeBatch(from ident.Node, msg *Message, at ident.Position, b *queue.Batch) bool {
	if b.At.Offset != at.Offset || b.PrevCRC != m.crcAt(at.Offset) {
		m.alarm(fmt.Errorf("%w: at %d, from %s", errBrokenChain, b.At.Offset, from))
		return false
	}
	if at.Offset < m.log.end.Offset {
		if m.hasBatch(b) {
			return true
		}
		if m.protectsAbandoned(from, msg, at) {
			return false
		}
		if at.Offset < m.committed.Offset {
			m.alarm(fmt.Errorf("%w: leader %s conflicts at %d, committed here up to %d", ErrOtherHistory, from, at.Offset, m.committed.Offset))
			return false
		}
		m.truncate(at)
		m.write(queue.Write{Kind: queue.WriteTruncate, Epoch: m.promised, At: at, PrevCRC: m.log.lastCRC})
	}
	m.appendBatch(*b)
	m.extend(*b)
	return true
}

// protectsAbandoned refuses, with an alarm, to cut messages at or above `at` of a history that an operator abandoned
// (CU-9): some of them may be acknowledged and exist only here. The leader's message names the history too, because the
// metadata may reach a follower late. Before any key has been seen, nothing is cut.
func (m *Machine) protectsAbandoned(from ident.Node, msg *Message, at ident.Position) bool {
	if m.state.Revision == 0 {
		return m.log.end.Sequence > at.Sequence
	}
	abandoned := max(m.state.Abandoned, msg.Abandoned)
	end := m.endOfEpoch(abandoned)
	if abandoned == 0 || end <= at.Sequence {
		return false
	}
	m.alarm(fmt.Errorf("%w: messages %d to %d, leader %s", ErrAbandoned, at.Sequence, end-1, from))
	return true
}

// endOfEpoch is the sequence after the last message of the given or an earlier epoch; 0 if the table has only later
// epochs.
func (m *Machine) endOfEpoch(e ident.Epoch) ident.Sequence {
	var end ident.Sequence
	for i := range m.log.epochs {
		if m.log.epochs[i].Epoch > e {
			break
		}
		end = m.log.epochs[i].End.Sequence
	}
	return end
}

// hasBatch reports whether the log already has b at its position: with equal epoch, offset and checksum.
func (m *Machine) hasBatch(b *queue.Batch) bool {
	r, ok := m.index.AtOffset(b.At.Offset)
	if !ok || r.Offset != b.At.Offset {
		return false
	}
	return r.Epoch == b.Epoch && r.CRC == b.CRC && r.Size == uint32(len(b.Bytes))
}

// followCommitted adopts the leader's committed end, up to the position that was compared with the leader's log (FO-5).
func (m *Machine) followCommitted(c ident.Position) {
	m.advanceCommitted(least(least(c, m.follow.verified), m.log.end))
}

// acknowledge sends the leader the durable and compared end (FO-4), if the promise of its epoch is durable.
func (m *Machine) acknowledge() { m.sendAck(false) }

// sendAck acknowledges, and requests a snapshot of the channel state if that is missing.
func (m *Machine) sendAck(needSnapshot bool) {
	d := m.log.durable
	if m.lead != nil || m.follow.leader == "" || d.epoch < m.promised {
		return
	}
	m.send(m.follow.leader, Message{
		Kind: MsgAppendAck, Epoch: m.promised, Durable: least(d.end, m.follow.verified), Committed: m.committed,
		StateVersion: d.state.in(m.promised), NeedSnapshot: needSnapshot,
	})
}
