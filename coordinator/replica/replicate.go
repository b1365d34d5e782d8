package replica

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// quickParts divides RetryMS. An eighth of it, 25 ms, is how long a new committed end waits for a message that carries
// it anyway, and how long the first probe waits for its answer.
const quickParts = 8

// syncFollowers makes the list of followers equal to the replicas of the key, and keeps their progress.
func (m *Machine) syncFollowers() {
	l := m.lead
	old := l.followers
	l.followers = nil
	for _, n := range m.state.Replicas {
		if n == m.self.Node {
			continue
		}
		f := newProgress(n, l.start, m.log.end.Offset, m.nowMS, m.o.RetryMS)
		for i := range old {
			if old[i].node == n {
				f = old[i]
			}
		}
		l.followers = append(l.followers, f)
	}
	slices.SortFunc(l.followers, func(a, b progress) int { return cmp.Compare(a.node, b.node) })
}

// follower returns the progress of a node; nil if the node is not another replica.
func (l *leadership) follower(n ident.Node) *progress {
	for i := range l.followers {
		if l.followers[i].node == n {
			return &l.followers[i]
		}
	}
	return nil
}

func (m *Machine) up(f *progress) bool { return m.node(f.node).up }

// fromPresentProcess reports whether the follower has answered a probe of this epoch as the currently registered
// process. An earlier process may have had another disk.
func (m *Machine) fromPresentProcess(f *progress) bool {
	n := m.node(f.node)
	return !f.probing() && n.incarnation != 0 && n.incarnation == f.incarnation
}

// silentSince reports whether the follower's node has registered again and not answered since.
func (m *Machine) silentSince(f *progress) bool { return m.node(f.node).incarnation > f.incarnation }

// hasEverything reports whether the follower has acknowledged the whole log and the newest channel state.
func (m *Machine) hasEverything(f *progress) bool {
	return f.ack.valid && f.ack.end.Offset == m.log.end.Offset && f.ack.state == m.lead.stateIssued
}

// caughtUp reports whether the follower has acknowledged everything, the committed end included.
func (m *Machine) caughtUp(f *progress) bool {
	return m.hasEverything(f) && f.committedAcked == m.committed.Offset && !f.probing()
}

// handleAck takes a follower's acknowledgement or rejection. An acknowledgement of another epoch, or of an earlier
// process of the node, does not count.
func (m *Machine) handleAck(from Peer, msg *Message) {
	l := m.lead
	if l == nil || msg.Epoch != l.epoch {
		return
	}
	f := l.follower(from.Node)
	if f == nil || from.Incarnation < f.incarnation {
		return
	}
	f.noteSender(from, m.log.end.Offset, m.nowMS)
	if msg.Reject {
		m.handleReject(f, msg)
		return
	}
	if msg.Durable.Offset > m.log.end.Offset || msg.StateVersion > l.stateIssued {
		m.alarm(errAckBeyondEnd)
		return
	}
	f.noteAck(msg, m.log.end.Offset, l.stateIssued, m.nowMS, m.o.ISRMS)
	if !m.inISR(f.node) {
		l.review = true
	}
	if msg.NeedSnapshot && f.snapshotDue(m.nowMS, m.o.RetryMS) {
		m.sendSnapshot(f)
	}
}

// handleReject moves to the position where the two logs connect, according to their epoch tables (CU-1). The first
// rejection by a store may move forward: an older disk that has come back may hold more than the replaced disk was
// sent. After that, a position that is not before the rejected append is replaced by the position one batch before that
// append, so that the search ends. During a probe only the answer to that probe counts (CU-2): when a pipeline of
// appends meets a gap, the follower rejects every one of them, and each would start another probe.
func (m *Machine) handleReject(f *progress, msg *Message) {
	if f.probing() && msg.Prev.Offset != f.probedAt {
		return
	}
	at := m.divergence(msg)
	ahead := at.Offset > msg.Prev.Offset && !f.searched
	if at.Offset >= msg.Prev.Offset && msg.Prev.Offset > 0 && !ahead {
		if p, ok := m.batchAt(msg.Prev.Offset - 1); ok {
			at = p
		}
	}
	at = greatest(at, f.ack.end)
	if first := m.index.Start(); at.Offset < first.Offset {
		at = first
	}
	if again := f.probeBack(at, m.nowMS); !again {
		m.sendFrom(f)
	}
}

// replicate sends each follower what it lacks, within its window.
func (m *Machine) replicate() {
	l := m.lead
	if !l.open {
		return
	}
	for i := range l.followers {
		f := &l.followers[i]
		if m.hasEverything(f) {
			f.lag.restart(m.log.end.Offset, m.nowMS) // it owes nothing
		}
		if m.up(f) && !f.reading() {
			m.replicateTo(f)
		}
	}
}

// replicateTo sends one follower what it lacks within its window (AC-3), repeats the probe, or sends a first snapshot.
func (m *Machine) replicateTo(f *progress) {
	if f.probing() {
		if m.nowMS-f.sentMS >= f.probeAgainMS(m.o.RetryMS) {
			m.sendFrom(f)
		}
		return
	}
	if m.spared(f) {
		if f.next.Offset < m.index.Start().Offset { // the follower's log restarts at the leader's start, which frees space
			m.sendFrom(f)
		}
	} else {
		for f.phase == replicate && f.next.Offset < m.log.end.Offset &&
			int(f.next.Offset-f.ack.end.Offset) < m.o.WindowBytes {
			m.sendFrom(f)
		}
	}
	if f.state.sent == 0 {
		m.sendSnapshot(f)
	}
}

// probeAgainMS is how long a probe waits for its answer: as long as the follower has already left probes unanswered. So
// a follower that is opening ten thousand replicas is probed at growing intervals.
func (p *progress) probeAgainMS(retryMS int64) int64 {
	return min(max(p.sentMS-p.askedMS, retryMS/quickParts), retryMS)
}

// sendFrom sends one append from f.next on, from the tail, or requests a read of the files (CU-3).
func (m *Machine) sendFrom(f *progress) {
	// If retention has passed f.next, the follower's log restarts at the first position that is left.
	if first := m.index.Start(); f.next.Offset < first.Offset {
		f.becomeProbe(first)
	}
	if f.asked() || f.next.Offset == m.log.end.Offset || m.spared(f) {
		m.appendTo(f, nil, false)
		return
	}
	batches := m.log.tail.from(f.next.Offset)
	if batches == nil {
		m.requestToken++
		f.beginRead(m.requestToken)
		m.out.Read = append(m.out.Read, ReadRequest{Token: f.readToken, From: f.next.Offset, Max: m.o.GroupBytes})
		return
	}
	m.appendTo(f, append([]queue.Batch(nil), batches[:groupOf(batches, m.o.GroupBytes)]...), false)
}

// groupOf counts the batches that fit into one append: about limit bytes, at least one.
func groupOf(batches []queue.Batch, limit int) int {
	n, size := 0, 0
	for n < len(batches) && (n == 0 || size+len(batches[n].Bytes) <= limit) {
		size += len(batches[n].Bytes)
		n++
	}
	return n
}

// appendTo sends the batches that begin at f.next. Without batches it is a probe, or carries the committed end.
func (m *Machine) appendTo(f *progress, batches []queue.Batch, bulk bool) {
	msg := Message{
		Kind: MsgAppend, Epoch: m.lead.epoch, To: f.ack.store, Store: m.self.Store,
		Prev: f.next, PrevCRC: m.crcAt(f.next.Offset), Committed: m.committed, Batches: batches,
		Restart: f.probing() && f.next == m.index.Start() && f.next.Offset > 0, Abandoned: m.state.Abandoned,
		ClockMS: m.dedupe.Clock(m.nowMS),
	}
	if msg.Restart {
		msg.Forgotten = m.dedupe.Forgotten()
	}
	end := f.next
	if n := len(batches); n > 0 {
		msg.PrevCRC, end = batches[0].PrevCRC, batches[n-1].End
	}
	if f.probing() { // f.next stays, so that a late answer to an earlier repetition also counts
		f.sentProbe(msg.Prev.Offset, m.nowMS)
	} else {
		f.sentAppend(end, m.nowMS)
	}
	f.committedSent = m.committed.Offset
	m.out.Send = append(m.out.Send, Envelope{To: f.node, Msg: msg, Bulk: bulk})
}

// handleRead continues with a catch-up. A read that a probe has replaced is ignored.
func (m *Machine) handleRead(ev Read) {
	if m.lead == nil {
		return
	}
	for i := range m.lead.followers {
		f := &m.lead.followers[i]
		if f.readToken != ev.Token {
			continue
		}
		if ev.Err != nil {
			m.alarm(ev.Err)
		}
		n := 0 // only up to the current end, because the log may have been cut since the request
		for n < len(ev.Batches) && ev.Batches[n].End.Offset <= m.log.end.Offset {
			n++
		}
		if n == 0 || ev.Batches[0].At.Offset != f.next.Offset {
			f.readFailed(m.nowMS)
			return
		}
		f.endRead()
		m.appendTo(f, ev.Batches[:n], true)
		return
	}
}

// followerTick repeats messages that may be lost, and sends a committed end that has moved. If messages were lost, an
// append without batches after the gap makes the follower reject it with its epoch table.
func (m *Machine) followerTick(f *progress) {
	if !m.lead.open || !m.up(f) || f.reading() {
		return
	}
	quietMS := m.nowMS - f.sentMS
	behind := !m.spared(f) && (f.ack.valid && f.ack.end.Offset < m.log.end.Offset || f.committedAcked != m.committed.Offset)
	repeat := (behind || m.silentSince(f)) && quietMS >= m.o.RetryMS
	announce := !m.spared(f) && f.committedSent != m.committed.Offset && quietMS >= m.o.RetryMS/quickParts
	if !f.probing() && (repeat || announce) {
		m.appendTo(f, nil, false)
	}
	if f.ack.valid && f.ack.state < m.lead.stateIssued && f.snapshotDue(m.nowMS, m.o.RetryMS) {
		m.sendSnapshot(f)
	}
}

// join finds where two logs diverge, from their epoch tables alone: at the lower end of the highest epoch that both
// have. Within an epoch one leader wrote one sequence of batches on top of one log, so two logs that have the epoch are
// equal up to there (KIP-279). It returns false if they have no epoch in common.
func join(a, b []commitlog.EpochEnd) (ident.Position, bool) {
	i, j := len(a)-1, len(b)-1
	for i >= 0 && j >= 0 {
		switch {
		case a[i].Epoch == b[j].Epoch:
			return least(a[i].End, b[j].End), true
		case a[i].Epoch > b[j].Epoch:
			i--
		default:
			j--
		}
	}
	return ident.Position{}, false
}

// divergence is the furthest position up to which this log and a follower's may be equal (CU-1). If the tables have no
// epoch in common, the follower was away for more epochs than a table holds. Then the leader probes at the follower's
// end, or at its own end if that comes first, and moves one batch back with each rejection: a follower can confirm
// equality only at positions that it has. A search from the beginning would probe positions that the follower's
// retention has already removed. The follower's end is taken from its table, because its durable end may be before the
// start of a log that was just emptied and is not synced yet.
func (m *Machine) divergence(rejection *Message) ident.Position {
	if at, ok := join(m.log.epochs, rejection.Epochs); ok {
		return at
	}
	end := rejection.Durable
	if n := len(rejection.Epochs); n > 0 {
		end = rejection.Epochs[n-1].End
	}
	at, _ := m.batchAt(min(end.Offset, m.log.end.Offset-1))
	return at
}
