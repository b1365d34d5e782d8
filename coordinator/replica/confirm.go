package replica

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// snapshotBytes is what deltas may take before the store is given a snapshot
	// instead of another delta, unless the last snapshot was larger: the store keeps
	// all since then in memory, and writes it at each checkpoint.
	snapshotBytes = 4 << 10
	// deltaOverhead is what a delta takes besides its bytes.
	deltaOverhead = 64
	// snapshotRetries of RetryMS is the longest that a snapshot is waited for.
	snapshotRetries = 16
)

// version orders the states of the channels: (epoch, n).
type version struct {
	epoch ident.Epoch
	n     uint64
}

// in gives n if the version is of epoch e, else 0.
func (v version) in(e ident.Epoch) uint64 {
	if v.epoch == e {
		return v.n
	}
	return 0
}

// confirmState is which version of the channel state the Register holds.
type confirmState struct {
	version version
	deltas  int // what the deltas since the last snapshot take
	full    int // bytes of that snapshot
}

func (c *confirmState) load(r queue.Confirm) { c.version = version{r.Epoch, r.N} }

// keep writes one version to the store: the delta, or a snapshot when the
// deltas have outgrown it.
func (m *Machine) keep(c queue.Confirm) {
	m.confirm.version = version{c.Epoch, c.N}
	m.confirm.deltas += len(c.Delta) + deltaOverhead
	if !c.Full && m.confirm.deltas > max(snapshotBytes, 2*m.confirm.full) {
		c = queue.Confirm{Epoch: c.Epoch, N: c.N, Full: true, Delta: m.register.Snapshot()}
	}
	if c.Full {
		m.confirm.deltas, m.confirm.full = 0, len(c.Delta)
	}
	m.write(queue.Write{Kind: queue.WriteConfirm, Epoch: c.Epoch, Confirm: c})
}

// Replay brings a register to the state that a store kept: snapshots and deltas,
// oldest first.
func Replay(r Register, confirms []queue.Confirm) {
	for _, c := range confirms {
		if c.Full {
			r.Replace(c.Delta)
		} else {
			r.Apply(c.Delta)
		}
	}
}

// confirmFrom applies a leader's version: a snapshot if it is newer, a delta
// only on top of its predecessor. A gap asks for a snapshot.
func (m *Machine) confirmFrom(msg *Message) {
	c, have := msg.Confirm, m.confirm.version
	newer := c.Epoch > have.epoch || c.Epoch == have.epoch && c.N > have.n
	switch {
	case c.Epoch != msg.Epoch:
		return
	case !newer:
		m.acknowledge()
	case c.Full:
		m.register.Replace(c.Delta)
		m.keep(c)
	case c.Epoch == have.epoch && c.N == have.n+1 || m.broken(BreakConfirmOrder):
		m.register.Apply(c.Delta)
		m.keep(c)
	default:
		m.acknowledgeWith(true)
	}
}

// change takes a delta of the channels that this machine leads: one version,
// journalled here and sent to every follower that holds the one before it.
func (m *Machine) change(ev Change) {
	l := m.lead
	if l == nil || m.role != Leader && !m.broken(BreakMarkerGate) {
		m.done(ev.Ticket, 0, NotLeader)
		return
	}
	l.confirmN++
	c := queue.Confirm{Epoch: l.epoch, N: l.confirmN, Delta: ev.Delta}
	m.keep(c)
	if ev.Ticket != 0 {
		l.changes = append(l.changes, pendingChange{ticket: ev.Ticket, n: c.N})
	}
	for i := range l.followers {
		f := &l.followers[i]
		if l.open && f.up(m) && f.confirmSent == c.N-1 {
			f.confirmSent = c.N
			m.confirmTo(f, c)
		}
	}
}

// snapshotTo sends the whole channel state, as of the newest version.
func (m *Machine) snapshotTo(f *follower) {
	l := m.lead
	f.confirmSent, f.snapshotN, f.confirmAtMS = l.confirmN, l.confirmN, m.now
	f.confirmWaitMS = min(max(2*f.confirmWaitMS, m.o.RetryMS), snapshotRetries*m.o.RetryMS)
	m.confirmTo(f, queue.Confirm{Epoch: l.epoch, N: l.confirmN, Full: true, Delta: m.register.Snapshot()})
}

// confirmTo sends one version, and tells the committed end by the way: a message
// is finished soon after it was committed, so most followers need no other word.
func (m *Machine) confirmTo(f *follower, c queue.Confirm) {
	f.announced = m.committed.Offset
	m.send(f.node, Message{Kind: MsgConfirm, Epoch: m.lead.epoch, To: f.store, Committed: m.committed, Confirm: c})
}

// confirmedBy completes the changes that all of the maximal ISR holds durably.
func (m *Machine) confirmedBy(n uint64) {
	l := m.lead
	l.confirmed = max(l.confirmed, n)
	done := 0
	for done < len(l.changes) && l.changes[done].n <= l.confirmed {
		m.done(l.changes[done].ticket, 0, Committed)
		done++
	}
	l.changes = append(l.changes[:0], l.changes[done:]...)
}
