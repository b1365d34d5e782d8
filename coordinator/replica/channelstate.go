package replica

import (
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// snapshotBytes is the size of deltas above which the store is given a snapshot (or twice the size of the last
	// snapshot, if that is larger). The store keeps all versions since the snapshot in memory, and writes them at each
	// checkpoint.
	snapshotBytes = 4 << 10
	// deltaOverhead is the memory that a delta takes in addition to its bytes.
	deltaOverhead = 64
	// snapshotRetries times RetryMS is the longest wait for an acknowledgement before another snapshot is sent.
	snapshotRetries = 16
)

// version orders the states of the channels: (epoch, n) (RB-13).
type version struct {
	epoch ident.Epoch
	n     uint64
}

// in returns n if the version belongs to epoch e, otherwise 0: versions of other epochs are not comparable.
func (v version) in(e ident.Epoch) uint64 {
	if v.epoch == e {
		return v.n
	}
	return 0
}

// channelState is the version that the register holds, and the size of its history. Only writeState changes it.
type channelState struct {
	version version
	deltas  int // bytes of the deltas since the last snapshot
	full    int // bytes of that snapshot
}

// pendingChange is a change that waits until the maximal ISR holds its version.
type pendingChange struct{ ticket, n uint64 }

// writeState writes one version to the store: the delta, or a snapshot when the deltas have outgrown it.
func (m *Machine) writeState(c queue.StateVersion) {
	s := &m.channels
	s.version = version{c.Epoch, c.N}
	s.deltas += len(c.Delta) + deltaOverhead
	if !c.Full && s.deltas > max(snapshotBytes, 2*s.full) {
		c = queue.StateVersion{Epoch: c.Epoch, N: c.N, Full: true, Delta: m.register.Snapshot()}
	}
	if c.Full {
		s.deltas, s.full = 0, len(c.Delta)
	}
	m.write(queue.Write{Kind: queue.WriteState, Epoch: c.Epoch, State: c})
}

// Replay restores a register to the state that a store has kept: its snapshots and deltas, oldest first.
func Replay(r register, versions []queue.StateVersion) {
	for _, c := range versions {
		if c.Full {
			r.Replace(c.Delta)
		} else {
			r.Apply(c.Delta)
		}
	}
}

// stateFrom applies a leader's version: a snapshot if it is newer, a delta directly on top of its predecessor (CH-1).
// If there is a gap, the follower requests a snapshot (CH-2).
func (m *Machine) stateFrom(msg *Message) {
	c, have := msg.State, m.channels.version
	newer := c.Epoch > have.epoch || c.Epoch == have.epoch && c.N > have.n
	switch {
	case c.Epoch != msg.Epoch:
		return
	case !newer:
		m.acknowledge()
	case c.Full:
		m.register.Replace(c.Delta)
		m.writeState(c)
	case c.Epoch == have.epoch && c.N == have.n+1:
		m.register.Apply(c.Delta)
		m.writeState(c)
	default:
		m.sendAck(true)
	}
}

// change issues a delta of the channels led here as one version, and sends it to every follower that was sent the
// previous version.
func (m *Machine) change(ev Change) {
	l := m.lead
	if l == nil || m.role != Leader {
		m.done(ev.Ticket, 0, outcome.NotLeader)
		return
	}
	l.stateIssued++
	c := queue.StateVersion{Epoch: l.epoch, N: l.stateIssued, Delta: ev.Delta}
	m.writeState(c)
	if ev.Ticket != 0 {
		l.changes = append(l.changes, pendingChange{ticket: ev.Ticket, n: c.N})
	}
	for i := range l.followers {
		f := &l.followers[i]
		if l.open && m.up(f) && f.state.sent == c.N-1 {
			f.sentDelta(c.N)
			m.sendState(f, c)
		}
	}
}

// sendSnapshot sends the whole channel state as of the newest version.
func (m *Machine) sendSnapshot(f *progress) {
	l := m.lead
	f.sentSnapshot(l.stateIssued, m.nowMS, m.o.RetryMS)
	m.sendState(f, queue.StateVersion{Epoch: l.epoch, N: l.stateIssued, Full: true, Delta: m.register.Snapshot()})
}

// sendState sends one version together with the committed end, so that most followers need no separate message for
// that.
func (m *Machine) sendState(f *progress, c queue.StateVersion) {
	f.committedSent = m.committed.Offset
	m.send(f.node, Message{Kind: MsgChannelState, Epoch: m.lead.epoch, To: f.ack.store, Committed: m.committed, State: c})
}

// commitState completes the changes up to version n, which every member of the maximal ISR holds durably.
func (m *Machine) commitState(n uint64) {
	l := m.lead
	l.stateCommitted = max(l.stateCommitted, n)
	done := 0
	for done < len(l.changes) && l.changes[done].n <= l.stateCommitted {
		m.done(l.changes[done].ticket, 0, outcome.Committed)
		done++
	}
	l.changes = append(l.changes[:0], l.changes[done:]...)
}
