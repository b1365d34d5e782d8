package replica

import (
	"fmt"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// phase names what the log of a follower needs next. Each transition is a method of progress:
//
//	from              method                         to
//	–                 newProgress                    probe
//	any               becomeProbe, probeBack, probeAgain  probe
//	probe             endProbe                            replicate
//	probe             beginRead                           probeRead
//	probeRead         endRead                             probe
//	probeRead         endProbe                            catchUp
//	replicate         beginRead                           catchUp
//	catchUp           endRead                             replicate
//	probeRead,catchUp readFailed                          probe
type phase uint8

const (
	// probe: the leader searches for the position where the two logs connect. One append is outstanding, and is
	// repeated until the follower answers.
	probe phase = iota
	// probeRead: the first append of a probe will carry batches, which are being read from the files.
	probeRead
	// replicate: appends follow one another within the window.
	replicate
	// catchUp: the next batches are being read from the files. Nothing is sent before they have been read.
	catchUp
)

// String names the phase as panics and tests print it.
func (p phase) String() string {
	return [...]string{"probe", "probe-read", "replicate", "catch-up"}[p]
}

// progress is the leader's view of one follower in one epoch: what the follower has acknowledged and been sent, and
// what it needs next. Only the leader's Step changes it, by the methods of this file.
type progress struct {
	node        ident.Node        // newProgress
	incarnation ident.Incarnation // noteSender: the process that sent the last acknowledgement

	ack ack // noteSender, noteAck

	// The log.
	phase     phase
	next      ident.Position // becomeProbe, sentAppend, noteAck: where the next append begins
	probedAt  ident.Offset   // sentProbe, probeBack: where the append of a probe began
	searched  bool           // probeBack: this store has rejected an append, so the search has begun
	readToken uint64         // beginRead, endRead: of the read in progress; 0: none
	askedMS   int64          // probeNow: since when this probe has waited for its answer
	sentMS    int64          // sentProbe, sentAppend: the last append

	state stateProgress // the channel state
	lag   lag

	committedSent  ident.Offset // Machine.appendTo, sendState: the committed end in the last message to the follower
	committedAcked ident.Offset // noteAck: the committed end that the follower has
}

// stateProgress counts the channel-state versions that a follower was sent. Its ack has the version that it
// acknowledged.
type stateProgress struct {
	sent     uint64 // the newest version sent or acknowledged
	snapshot uint64 // the version of the last snapshot sent
	movedMS  int64  // when the last snapshot was sent, or the last acknowledgement advanced
	waitMS   int64  // the wait after movedMS before the next snapshot; 0: RetryMS
}

// newProgress begins with a probe at the epoch start. It is due at once.
func newProgress(n ident.Node, at ident.Position, logEnd ident.Offset, nowMS, retryMS int64) progress {
	return progress{
		node: n, next: at, phase: probe, askedMS: nowMS, sentMS: nowMS - retryMS, lag: lag{mark: logEnd, sinceMS: nowMS},
	}
}

// probing reports whether the leader is still searching for the position where the logs connect.
func (p *progress) probing() bool { return p.phase == probe || p.phase == probeRead }

// reading reports whether a read for this follower is in progress.
func (p *progress) reading() bool { return p.phase == probeRead || p.phase == catchUp }

// becomeProbe starts a search, from `next`, for the position where the logs connect. It may be called in any phase. A
// read in progress is dropped.
func (p *progress) becomeProbe(next ident.Position) {
	p.phase, p.next, p.readToken = probe, next, 0
}

// probeNow makes the probe's append due at once, for the first time. Only in phase probe.
func (p *progress) probeNow(nowMS int64) {
	p.must(p.phase == probe, "probeNow")
	p.askedMS, p.sentMS = nowMS, 0
}

// probeBack goes back to `at`, where the logs may connect, and probes there. It may be called in any phase. It returns
// true if the refused probe began at the same position; then the next probe is not sent at once.
func (p *progress) probeBack(at ident.Position, nowMS int64) (again bool) {
	again = p.probing() && at.Offset == p.probedAt
	p.becomeProbe(at)
	p.probedAt, p.searched, p.sentMS = at.Offset, true, nowMS
	if !again {
		p.probeNow(nowMS)
	}
	return again
}

// probeAgain probes a follower that was not reachable, in any phase: unacknowledged messages may be lost. Its lag
// continues (AC-8).
func (p *progress) probeAgain(nowMS int64) {
	p.becomeProbe(p.next)
	p.probeNow(nowMS)
	p.lag.keepsUp = false
	p.state.sent, p.state.waitMS = p.ack.state, 0
	p.committedSent = 0
}

// asked reports whether the probe's append is outstanding. Repetitions carry no batches.
func (p *progress) asked() bool { return p.probing() && p.sentMS >= p.askedMS }

// endProbe ends a probe: the follower has acknowledged, in this epoch. If it acknowledged only its promise, the next
// append is rejected, and another probe begins. It may be called in any phase; outside a probe it changes nothing.
func (p *progress) endProbe() {
	switch p.phase {
	case probe:
		p.phase = replicate
	case probeRead:
		p.phase = catchUp
	}
}

// beginRead starts to wait for batches from the files. Only in phases probe and replicate, because one read is in
// progress at a time.
func (p *progress) beginRead(token uint64) {
	p.must(!p.reading(), "beginRead")
	p.readToken = token
	if p.phase == probe {
		p.phase = probeRead
	} else {
		p.phase = catchUp
	}
}

// endRead continues with the batches that were read, or without any. Only in phases probeRead and catchUp.
func (p *progress) endRead() {
	p.must(p.reading(), "endRead")
	p.readToken = 0
	if p.phase == probeRead {
		p.phase = probe
	} else {
		p.phase = replicate
	}
}

// readFailed makes the leader probe again after a while, because a read returned no matching batches. Only in phases
// probeRead and catchUp.
func (p *progress) readFailed(nowMS int64) {
	p.must(p.reading(), "readFailed")
	p.becomeProbe(p.next)
	p.sentMS = nowMS
}

// sentProbe records the append of a probe. Only in phase probe.
func (p *progress) sentProbe(at ident.Offset, nowMS int64) {
	p.must(p.phase == probe, "sentProbe")
	p.probedAt, p.sentMS = at, nowMS
}

// sentAppend records an append up to `end`; the next one begins there. Only in phase replicate.
func (p *progress) sentAppend(end ident.Position, nowMS int64) {
	p.must(p.phase == replicate, "sentAppend")
	p.next, p.sentMS = end, nowMS
}

// noteSender notes the process and the store that a message came from, in any phase. A different store is a different
// replica: nothing that the old one acknowledged or was sent counts any longer, except the position of the next append.
func (p *progress) noteSender(from Peer, logEnd ident.Offset, nowMS int64) {
	p.incarnation = from.Incarnation
	if p.ack.store == from.Store {
		return
	}
	phase := replicate
	if p.probing() {
		phase = probe
	}
	*p = progress{
		node: p.node, incarnation: p.incarnation, ack: ack{store: from.Store},
		phase: phase, next: p.next, lag: lag{mark: logEnd, sinceMS: nowMS},
	}
}

// noteAck records an acknowledgement, limited to logEnd and to version newest, in any phase. It ends a probe.
func (p *progress) noteAck(msg *Message, logEnd ident.Offset, newest uint64, nowMS, isrMS int64) {
	p.endProbe()
	moved := !p.ack.valid || msg.Durable.Offset > p.ack.end.Offset || msg.StateVersion > p.ack.state
	p.ack.end, p.ack.valid = greatest(p.ack.end, msg.Durable), true
	if moved {
		p.lag.advance(p.ack.end.Offset, logEnd, nowMS, isrMS)
	}
	p.next = greatest(p.next, p.ack.end)
	p.committedAcked = max(p.committedAcked, msg.Committed.Offset)
	p.noteStateAck(msg.StateVersion, newest, nowMS)
}

// stateCurrent reports whether the follower was sent everything up to the newest version, and needs no snapshot.
// Otherwise the replica cannot join the ISR, however well its log keeps up.
func (p *progress) stateCurrent(newest uint64) bool {
	return p.state.sent != 0 && p.state.sent == newest && p.ack.state >= p.state.snapshot
}

// sentSnapshot records a snapshot of version n. The wait before the next snapshot doubles each time until the follower
// has acknowledged one (CH-3): otherwise large snapshots would queue up in the network.
func (p *progress) sentSnapshot(n uint64, nowMS, retryMS int64) {
	s := &p.state
	s.sent, s.snapshot, s.movedMS = n, n, nowMS
	s.waitMS = min(max(2*s.waitMS, retryMS), snapshotRetries*retryMS)
}

// sentDelta records the delta of version n, directly after the last version sent, because the follower refuses a gap.
func (p *progress) sentDelta(n uint64) {
	p.must(p.state.sent == n-1, "sentDelta")
	p.state.sent = n
}

// snapshotDue reports whether the follower has acknowledged nothing new during the wait that follows the last snapshot.
func (p *progress) snapshotDue(nowMS, retryMS int64) bool {
	return nowMS-p.state.movedMS >= max(p.state.waitMS, retryMS)
}

// noteStateAck records the channel-state version that the follower holds durably. newest is the leader's.
func (p *progress) noteStateAck(n, newest uint64, nowMS int64) {
	s := &p.state
	if n > p.ack.state {
		p.ack.state, s.movedMS = n, nowMS
	}
	if p.ack.state == newest || p.ack.state > s.snapshot { // a version after the snapshot has arrived
		s.waitMS = 0
	}
	s.sent = max(s.sent, p.ack.state)
}

// must panics on a transition that the phase does not allow: a bug of this package.
func (p *progress) must(ok bool, transition string) {
	if !ok {
		panic(fmt.Sprintf("replica: %s of follower %s in phase %s, state version %d sent", transition, p.node, p.phase, p.state.sent))
	}
}

// lag measures how long a follower has owed an acknowledgement (AC-5). It has one mark at a time: the end of the log at
// one moment. So a follower that keeps acknowledging, but only old puts, also lags.
type lag struct {
	mark    ident.Offset // not acknowledged since sinceMS
	sinceMS int64
	keepsUp bool // the previous mark was acknowledged within half of T_isr
}

// restart sets the mark to the current end of the log.
func (g *lag) restart(logEnd ident.Offset, nowMS int64) { g.mark, g.sinceMS = logEnd, nowMS }

// advance sets the next mark once the current one is acknowledged.
func (g *lag) advance(end, logEnd ident.Offset, nowMS, isrMS int64) {
	if end >= g.mark {
		g.keepsUp = nowMS-g.sinceMS < isrMS/2
		g.restart(logEnd, nowMS)
	}
}
