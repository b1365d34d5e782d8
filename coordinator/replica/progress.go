package replica

import (
	"sort"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// soonParts: an eighth of RetryMS, 25 ms, is soon. So long does a moved committed
// end wait for a message that tells it by the way, and a first question for its
// answer.
const soonParts = 8

// follower is what a leader knows of one other replica in its epoch.
type follower struct {
	node        ident.Node
	store       ident.StoreID // 0 until it spoke
	incarnation ident.Incarnation

	probing bool           // one message is out to find where the logs join
	probe   ident.Offset   // where that message begins
	next    ident.Position // what is sent next
	match   ident.Position // acknowledged durable in this epoch
	matched bool           // match is valid

	confirmSent, confirmAcked uint64
	confirmAtMS               int64  // last snapshot sent, or acknowledgement that moved
	confirmWaitMS             int64  // since then, before the next snapshot; 0 = RetryMS
	snapshotN                 uint64 // of the last snapshot sent

	askedMS     int64        // since when it is asked where it stands, as it came or came back
	sentAtMS    int64        // last message
	owesSinceMS int64        // its debt is of then,
	owes        ident.Offset // the end of the log at that time: not acknowledged since
	keepsUp     bool         // it acknowledged what it owed before within half of T_isr
	announced   ident.Offset // committed end it was last told
	knows       ident.Offset // committed end it said it knows
	readToken   uint64       // of the catch-up read under way; 0 = none
}

// owesAll lets its debt begin now. It is that of one moment at a time: who
// acknowledges all the while, but what is a second old, is as late as who is silent.
func (f *follower) owesAll(m *Machine) { f.owes, f.owesSinceMS = m.log.end.Offset, m.now }

// syncFollowers makes the list follow the key's replicas, and keeps what is
// known of those that stay.
func (m *Machine) syncFollowers() {
	l := m.lead
	old := l.followers
	l.followers = nil
	for _, n := range m.state.Replicas {
		if n == m.self.Node {
			continue
		}
		f := follower{node: n, next: l.start, probing: true, askedMS: m.now, sentAtMS: m.now - m.o.RetryMS}
		f.owesAll(m)
		for i := range old {
			if old[i].node == n {
				f = old[i]
			}
		}
		l.followers = append(l.followers, f)
	}
	sort.Slice(l.followers, func(i, j int) bool { return l.followers[i].node < l.followers[j].node })
}

func (l *leadership) follower(n ident.Node) *follower {
	for i := range l.followers {
		if l.followers[i].node == n {
			return &l.followers[i]
		}
	}
	return nil
}

// reprobe asks a node that came back where it stands.
func (m *Machine) reprobe(n ident.Node) {
	if f := m.lead.follower(n); f != nil {
		f.probing, f.askedMS, f.sentAtMS, f.readToken = true, m.now, 0, 0
		f.owesAll(m)
		f.keepsUp = false
		f.confirmSent, f.confirmWaitMS = f.confirmAcked, 0
		f.announced = 0
	}
}

func (f *follower) up(m *Machine) bool { return m.node(f.node).up }

// present: what is known of it is the word of its present process. One that came
// back may have lost its disk.
func (f *follower) present(m *Machine) bool {
	n := m.node(f.node)
	return !f.probing && n.incarnation != 0 && n.incarnation == f.incarnation
}

// current: it holds and knows everything.
func (f *follower) current(m *Machine) bool {
	return f.matched && f.match.Offset == m.log.end.Offset && f.knows == m.committed.Offset &&
		f.confirmAcked == m.lead.confirmN && !f.probing
}

// hasState: no snapshot of the channels' state is on its way to it, or due; what has
// changed since is. Without it nobody joins, however well his log keeps up.
func (f *follower) hasState(m *Machine) bool {
	return f.confirmSent == m.lead.confirmN && f.confirmAcked >= f.snapshotN
}

// acknowledgedByAll gives the least durable end, and confirm version, over the
// maximal ISR: the members in the key and those of every proposal that may
// still land. A replica that keeps up counts before it joins: one that is farther
// away than the members would be behind the committed end as long as there are puts.
func (m *Machine) acknowledgedByAll() (end ident.Position, confirmed uint64, ok bool) {
	end, confirmed = m.log.durable.end, m.log.durable.confirm.in(m.lead.epoch)
	if m.broken(BreakOwnSync) {
		end = m.log.end
	} else if m.log.durable.epoch < m.lead.epoch {
		return end, 0, false
	}
	covers := func(isr []ident.Member) bool {
		for _, x := range isr {
			if x.Node == m.self.Node {
				continue
			}
			f := m.lead.follower(x.Node)
			if f == nil || !f.matched || f.store != x.Store && !m.broken(BreakStoreID) {
				return false
			}
			end = least(end, f.match)
			if !m.broken(BreakConfirmOnAll) {
				confirmed = min(confirmed, f.confirmAcked)
			}
		}
		return true
	}
	if !covers(m.state.ISR) {
		return end, 0, false
	}
	if m.broken(BreakMaximalISR) {
		return end, confirmed, true
	}
	if m.cas != nil && !m.broken(BreakProposedISR) && m.cas.state.Revision == m.state.Revision && !covers(m.cas.state.ISR) {
		return end, 0, false
	}
	for i := range m.lead.unresolved {
		if !covers(m.lead.unresolved[i].state.ISR) {
			return end, 0, false
		}
	}
	if m.broken(BreakProposedISR) || m.broken(BreakLateCAS) { // it would do their work
		return end, confirmed, true
	}
	for i := range m.lead.followers {
		if f := &m.lead.followers[i]; f.keepsUp && f.hasState(m) && !m.inISR(f.node) && m.answers(f) {
			end, confirmed = least(end, f.match), min(confirmed, f.confirmAcked)
		}
	}
	return end, confirmed, true
}

// acked takes a follower's acknowledgement or rejection.
func (m *Machine) acked(from Peer, msg *Message) {
	l := m.lead
	if l == nil || msg.Epoch != l.epoch && !m.broken(BreakAckEpoch) {
		return
	}
	f := l.follower(from.Node)
	if f == nil || from.Incarnation < f.incarnation && !m.broken(BreakAckIncarnation) {
		return
	}
	f.incarnation = from.Incarnation
	if f.store != from.Store { // first word of it, or it came back with other bytes
		*f = follower{node: f.node, store: from.Store, incarnation: from.Incarnation,
			next: f.next, probing: f.probing}
		f.owesAll(m)
	}
	if msg.Reject {
		m.rejected(f, msg)
		return
	}
	if msg.Durable.Offset > m.log.end.Offset || msg.ConfirmN > l.confirmN {
		m.alarm(errAckBeyondEnd) // never counted
		return
	}
	f.probing = false
	moved := !f.matched || msg.Durable.Offset > f.match.Offset || msg.ConfirmN > f.confirmAcked
	f.match, f.matched = greatest(f.match, msg.Durable), true
	if moved && f.match.Offset >= f.owes {
		f.keepsUp = m.now-f.owesSinceMS < m.o.ISRMS/2
		f.owesAll(m)
	}
	f.knows = max(f.knows, msg.Committed.Offset)
	f.next = greatest(f.next, f.match)
	if msg.ConfirmN > f.confirmAcked {
		f.confirmAcked, f.confirmAtMS = msg.ConfirmN, m.now
	}
	if f.confirmAcked == l.confirmN || f.confirmAcked > f.snapshotN { // what was sent behind it has come
		f.confirmWaitMS = 0
	}
	f.confirmSent = max(f.confirmSent, f.confirmAcked)
	if !m.inISR(f.node) {
		l.review = true
	}
	if msg.NeedFull && f.missedSnapshot(m) {
		m.snapshotTo(f)
	}
}

// rejected moves the follower's next position back to where the logs join; if
// the tables say it is no further back than what was refused, one batch back.
// Only the answer to the probe counts: when a pipeline of appends meets a gap,
// every one of them is refused.
func (m *Machine) rejected(f *follower, msg *Message) {
	if f.probing && msg.Prev.Offset != f.probe {
		return // of a message sent before the probe: each would start another
	}
	at := m.parting(msg)
	if at.Offset >= msg.Prev.Offset && msg.Prev.Offset > 0 {
		if r, ok := m.index.AtOffset(msg.Prev.Offset - 1); ok {
			at = ident.Position{Offset: r.Offset, Sequence: r.First}
		}
	}
	at = greatest(at, f.match)
	if first := m.index.Start(); at.Offset < first.Offset {
		at = first
	}
	again := f.probing && at.Offset == f.probe
	f.next, f.probing, f.probe, f.readToken, f.sentAtMS = at, true, at.Offset, 0, m.now
	if !again { // what was refused here a moment ago waits for the retry
		f.askedMS, f.sentAtMS = m.now, 0
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
		if f.matched && f.match.Offset == m.log.end.Offset && f.confirmAcked == l.confirmN {
			f.owesAll(m) // nothing yet
		}
		if !f.up(m) || f.readToken != 0 {
			continue
		}
		if f.probing {
			if m.now-f.sentAtMS >= f.patience(m.o.RetryMS) {
				m.sendFrom(f)
			}
			continue
		}
		for f.next.Offset < m.log.end.Offset && !f.probing && f.readToken == 0 &&
			int(f.next.Offset-f.match.Offset) < m.o.WindowBytes {
			m.sendFrom(f)
		}
		if f.confirmSent == 0 {
			m.snapshotTo(f)
		}
	}
}

// asked reports whether a question is out; it is repeated without batches.
func (f *follower) asked() bool { return f.probing && f.sentAtMS >= f.askedMS }

// patience is how long a question waits for its answer: as long as the follower
// has been asked in vain. One that opens its replica now hears nothing for some
// milliseconds; of one that starts with ten thousand, each is asked ever less.
func (f *follower) patience(retryMS int64) int64 {
	return min(max(f.sentAtMS-f.askedMS, retryMS/soonParts), retryMS)
}

// sendFrom sends one append from f.next on, out of the tail, or asks for a read.
func (m *Machine) sendFrom(f *follower) {
	if first := m.index.Start(); f.next.Offset < first.Offset { // retention has passed it: it begins afresh there
		f.next, f.probing = first, true
	}
	if f.asked() || f.next.Offset == m.log.end.Offset {
		m.appendTo(f, nil, false)
		return
	}
	batches := m.log.tailFrom(f.next.Offset)
	if batches == nil {
		m.asked++
		f.readToken = m.asked
		m.out.Read = append(m.out.Read, ReadRequest{Token: f.readToken, From: f.next.Offset, Max: m.o.GroupBytes})
		return
	}
	n, size := 0, 0
	for n < len(batches) && (n == 0 || size+len(batches[n].Bytes) <= m.o.GroupBytes) {
		size += len(batches[n].Bytes)
		n++
	}
	m.appendTo(f, append([]queue.Batch(nil), batches[:n]...), false)
}

// appendTo sends batches that begin at f.next (or none: where do you stand?).
func (m *Machine) appendTo(f *follower, batches []queue.Batch, bulk bool) {
	msg := Message{
		Kind: MsgAppend, Epoch: m.lead.epoch, To: f.store, Store: m.self.Store,
		Prev: f.next, PrevCRC: m.crcAt(f.next.Offset), Committed: m.committed, Batches: batches,
		Restart: f.probing && f.next == m.index.Start() && f.next.Offset > 0,
	}
	if len(batches) > 0 {
		msg.PrevCRC = batches[0].PrevCRC
	}
	switch {
	case f.probing: // repeated as it is: the answer to any of them may come late
		f.probe = msg.Prev.Offset
	case len(batches) > 0:
		f.next = batches[len(batches)-1].End
	}
	f.sentAtMS, f.announced = m.now, m.committed.Offset
	m.out.Send = append(m.out.Send, Envelope{To: f.node, Msg: msg, Bulk: bulk})
}

// readDone goes on with a catch-up.
func (m *Machine) readDone(ev Read) {
	if m.lead == nil {
		return
	}
	for i := range m.lead.followers {
		f := &m.lead.followers[i]
		if f.readToken != ev.Token {
			continue
		}
		f.readToken = 0
		if ev.Err != nil {
			m.alarm(ev.Err)
		}
		n := 0 // never beyond the present end: the log may have been cut since
		for n < len(ev.Batches) && ev.Batches[n].End.Offset <= m.log.end.Offset {
			n++
		}
		if n > 0 && ev.Batches[0].At.Offset == f.next.Offset {
			m.appendTo(f, ev.Batches[:n], true)
		} else {
			f.probing, f.sentAtMS = true, m.now // asked again after a while
		}
		return
	}
}

// tick repeats what may have been lost and tells a moved committed end.
func (f *follower) tick(m *Machine) {
	if !m.lead.open || !f.up(m) || f.readToken != 0 {
		return
	}
	quiet := m.now - f.sentAtMS
	silent := quiet >= m.o.RetryMS
	behind := f.matched && f.match.Offset < m.log.end.Offset || f.knows != m.committed.Offset
	if !f.probing && (behind && silent || f.announced != m.committed.Offset && quiet >= m.o.RetryMS/soonParts) {
		m.appendTo(f, nil, false) // a gap makes it reject, and tell where it stands
	}
	if f.confirmAcked < m.lead.confirmN && f.matched && f.missedSnapshot(m) {
		m.snapshotTo(f)
	}
}

// missedSnapshot: nothing was acknowledged for as long as the last snapshot is waited
// for. That is twice as long each time, until the follower has it: a large one may
// take the network longer than RetryMS, and the next would wait behind it.
func (f *follower) missedSnapshot(m *Machine) bool {
	return m.now-f.confirmAtMS >= max(f.confirmWaitMS, m.o.RetryMS)
}
