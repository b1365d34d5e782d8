package coordinator

// bring adds mail that somebody waits for, and has it carried; false after the loop's end.
func (l *loop) bring(w work) bool {
	_, open := l.mail.add(w)
	if open {
		l.carry()
	}
	return open
}

// carryMost bounds the passes that one caller runs: what it sets off may bring more.
const carryMost = 3

// carry runs a pass here and now, if the loop rests: to wake its goroutine, and those
// that write to the other brokers, costs a lone put more than all that they do for it,
// since each of them wakes up on a thread of its own (docs/adr/0010). What many bring at
// the same time is better posted: the goroutine gathers it into one pass.
//
// The caller may hold what no pass wants: its own connection, the journal. No mail stays
// behind: who does not get the turn leaves it to who has it and looks again.
func (l *loop) carry() {
	for range carryMost {
		if !l.mail.waits() || !l.turn.TryLock() {
			return
		}
		l.carried = true
		l.pass(false, false)
		l.carried = false
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

// flushSpoken sends what a carried pass has queued.
func (l *loop) flushSpoken() {
	for _, n := range l.spoken {
		l.peers.Flush(n)
	}
	l.spoken = l.spoken[:0]
}
