package replica

import (
	"fmt"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// following is the follower's side of one epoch.
type following struct {
	leader   ident.Node
	verified ident.Position // equal to the leader's log up to here, compared in this epoch
}

// receive handles a message of a peer. Nothing a peer sends may panic.
func (m *Machine) receive(ev Received) {
	msg := &ev.Msg
	if msg.To != 0 && msg.To != m.self.Store && !m.broken(BreakStoreAddressed) && !m.broken(BreakStoreID) {
		if msg.Kind == MsgAppend { // so that the leader learns which store is here
			m.reject(ev.From.Node, msg.Epoch, msg.Prev)
		}
		return
	}
	switch msg.Kind {
	case MsgAppend:
		if m.accept(ev.From, msg) {
			m.appendFrom(ev.From.Node, msg)
		}
	case MsgConfirm:
		if m.accept(ev.From, msg) {
			m.followCommitted(msg.Committed)
			m.confirmFrom(msg)
		}
	case MsgAppendAck:
		m.acked(ev.From, msg)
	case MsgProbe:
		m.send(ev.From.Node, Message{
			Kind: MsgProbeReply, Epoch: m.promised, LastEpoch: m.lastEpoch(), Durable: m.log.durable.end,
		})
	case MsgProbeReply:
		m.probed(ev.From, msg)
	}
}

// accept checks the epoch of a leader's message and promises a higher one.
func (m *Machine) accept(from Peer, msg *Message) bool {
	e := msg.Epoch
	if e < m.promised && !m.broken(BreakEpochCheck) {
		m.reject(from.Node, m.promised, msg.Prev)
		return false
	}
	if m.lead != nil {
		if e <= m.lead.epoch { // two leaders of one epoch, or a broken rule
			m.alarm(fmt.Errorf("replica: %s leads epoch %d like this node", from.Node, e))
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

// promise raises the epoch below which nothing is answered any more.
func (m *Machine) promise(e ident.Epoch) {
	m.promised = e
	m.followLeader("")
	m.write(queue.Write{Kind: queue.WriteEpoch, Epoch: e})
}

// followLeader begins with nothing compared: logs are equal only as far as this
// epoch's leader has said.
func (m *Machine) followLeader(n ident.Node) {
	f := following{leader: n}
	if m.broken(BreakVerifiedEpoch) {
		f.verified = m.follow.verified
	}
	m.follow = f
}

// reject tells what is here, so that the leader finds where the logs part. prev
// is the position that was refused.
func (m *Machine) reject(to ident.Node, e ident.Epoch, prev ident.Position) {
	m.send(to, Message{
		Kind: MsgAppendAck, Epoch: e, Reject: true, Prev: prev, Durable: m.log.durable.end, Epochs: m.log.epochs,
	})
}

// appendFrom is the follower's one path for puts, multi-puts and control
// batches: compare where they join, skip what is here already, cut what
// conflicts, write the rest.
func (m *Machine) appendFrom(from ident.Node, msg *Message) {
	at, joins := m.joins(msg)
	if !joins && msg.Restart && (msg.Prev.Offset >= greatest(m.committed, m.follow.verified).Offset || m.broken(BreakRestartBelow)) {
		m.restartAt(msg.Prev, msg.PrevCRC)
		m.write(queue.Write{Kind: queue.WriteRestart, Epoch: m.promised, At: msg.Prev, PrevCRC: msg.PrevCRC})
		at, joins = msg.Prev, true
	}
	if !joins {
		if at := msg.Prev.Offset; at < m.committed.Offset && at >= m.follow.verified.Offset { // else it was asked before
			m.alarm(fmt.Errorf("replica: leader %s has another log below the committed end %d: nothing was cut", from, m.committed.Offset))
		}
		m.reject(from, m.promised, msg.Prev)
		return
	}
	for i := range msg.Batches {
		b := &msg.Batches[i]
		if b.At.Offset != at.Offset || b.PrevCRC != m.crcAt(at.Offset) && !m.broken(BreakDupCRC) {
			m.alarm(fmt.Errorf("replica: batch at %d of %s does not join the one before it", b.At.Offset, from))
			return
		}
		if at.Offset < m.log.end.Offset {
			if same, known := m.holds(b); known && same {
				at = b.End
				continue
			}
			if at.Offset < m.committed.Offset {
				m.alarm(fmt.Errorf("replica: leader %s conflicts at %d, below the committed end %d: nothing was cut", from, at.Offset, m.committed.Offset))
				return
			}
			m.truncate(at)
			m.write(queue.Write{Kind: queue.WriteTruncate, Epoch: m.promised, At: at, PrevCRC: m.log.lastCRC})
		}
		m.appendBatch(*b)
		m.extend(*b)
		at = b.End
	}
	m.follow.verified = greatest(m.follow.verified, at)
	m.followCommitted(msg.Committed)
	if !m.wrote() { // else the sync of it acknowledges
		m.acknowledge()
	}
}

// wrote reports whether this Step has something for the journal.
func (m *Machine) wrote() bool { return m.out.Token != 0 && !m.log.closed(m.out.Token) }

// joins finds where an append continues this log.
func (m *Machine) joins(msg *Message) (at ident.Position, ok bool) {
	at, ok = m.borderAt(msg.Prev.Offset)
	return at, ok && (m.crcAt(at.Offset) == msg.PrevCRC || m.broken(BreakDupCRC))
}

// extend adds a batch to this Step's submission, joined to the record before it
// where that appends too.
func (m *Machine) extend(b queue.Batch) {
	if n := len(m.out.Write); n > 0 && m.out.Token != 0 && !m.log.closed(m.out.Token) {
		if w := &m.out.Write[n-1]; w.Kind == queue.WriteAppend && w.Epoch == m.promised {
			w.Batches = append(w.Batches, b)
			return
		}
	}
	m.write(queue.Write{Kind: queue.WriteAppend, Epoch: m.promised, At: b.At, Batches: []queue.Batch{b}})
}

// holds reports whether the batch at b's place is b: epoch, offset and checksum.
func (m *Machine) holds(b *queue.Batch) (same, known bool) {
	r, ok := m.index.AtOffset(b.At.Offset)
	if !ok || r.Offset != b.At.Offset {
		return false, ok
	}
	if m.broken(BreakDupCRC) {
		return r.Size == uint32(len(b.Bytes)), true
	}
	return r.Epoch == b.Epoch && r.CRC == b.CRC && r.Size == uint32(len(b.Bytes)), true
}

// followCommitted takes the leader's committed end, never beyond what was
// compared with its log.
func (m *Machine) followCommitted(c ident.Position) {
	if !m.broken(BreakFollowerCommit) {
		c = least(c, m.follow.verified)
	}
	c = least(c, m.log.end)
	if c.Offset > m.committed.Offset {
		m.committed = c
		m.noteCommitted()
	}
}

// noteCommitted lets the committed end ride on a submission that happens
// anyway: recovery then never cuts below it.
func (m *Machine) noteCommitted() {
	if m.wrote() && m.noted < m.committed.Offset {
		m.write(queue.Write{Kind: queue.WriteCommitted, At: m.committed})
		m.noted = m.committed.Offset
	}
}

// acknowledge tells the leader what is durable here, if anything stands behind
// it: the promise of the epoch first of all.
func (m *Machine) acknowledge() { m.acknowledgeWith(false) }

// acknowledgeWith also asks for a snapshot of the channel state.
func (m *Machine) acknowledgeWith(needFull bool) {
	d := m.log.durable
	if m.lead != nil || m.follow.leader == "" || d.epoch < m.promised && !m.broken(BreakPromiseDurable) {
		return
	}
	end := least(d.end, m.follow.verified)
	if m.broken(BreakAckVerified) {
		end = d.end
	}
	m.send(m.follow.leader, Message{
		Kind: MsgAppendAck, Epoch: m.promised, Durable: end, Committed: m.committed,
		ConfirmN: m.confirmHeld(d.confirm), NeedFull: needFull,
	})
}

// confirmHeld is the version of this epoch that is durable here; versions of
// earlier epochs say nothing.
func (m *Machine) confirmHeld(v version) uint64 {
	if m.broken(BreakConfirmEpoch) {
		return v.n
	}
	return v.in(m.promised)
}

func (m *Machine) lastEpoch() ident.Epoch {
	if n := len(m.log.epochs); n > 0 {
		return m.log.epochs[n-1].Epoch
	}
	return 0
}
