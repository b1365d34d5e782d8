package coordinator

// borrowBytes is how much mail the turn is borrowed for at most: without syncs a pass
// writes to the page cache, which may take its time when there is much.
const borrowBytes = 64 << 10

// hand gives mail to the loop: it is brought if it is alone and small, and passes need
// not linger. false after the loop's end.
func (l *loop) hand(w work, alone bool, bytes int) bool {
	if alone && bytes <= borrowBytes && l.linger == 0 {
		return l.bring(w)
	}
	return l.mail.post(w)
}

// bring adds mail that somebody waits for, and runs a pass for it; false after the loop's end.
func (l *loop) bring(w work) bool {
	_, open := l.mail.add(w)
	if open {
		l.borrow()
	}
	return open
}

// borrowMost bounds the passes that one caller runs: what it sets off may bring more.
const borrowMost = 3

// borrow runs a pass here and now, if the loop rests: to wake its goroutine, and those
// that write to the other brokers, costs a lone put more than all that they do for it,
// since each of them wakes up on a thread of its own (docs/adr/0010). What many bring at
// the same time is better posted: the goroutine gathers it into one pass.
//
// The caller may hold what no pass wants: its own connection, the journal. No mail stays
// behind: who does not get the turn leaves it to who has it and looks again.
func (l *loop) borrow() {
	for range borrowMost {
		if !l.mail.waits() || !l.turn.TryLock() {
			return
		}
		l.borrowed = true
		l.pass(false, false)
		l.borrowed = false
		l.turn.Unlock()
	}
	l.lookAgain()
}

// lookAgain wakes the goroutine for what came during a pass. It is called after the
// turn was given back.
func (l *loop) lookAgain() {
	if l.mail.waits() {
		l.mail.ring()
	}
}

// flushSpoken sends what a pass with a borrowed turn has queued.
func (l *loop) flushSpoken() {
	for _, n := range l.spoken {
		l.peers.Flush(n)
	}
	l.spoken = l.spoken[:0]
}
