package coordinator

import "time"

const (
	// eagerBytes of puts are proposed even while an earlier submission is being
	// synced.
	eagerBytes = 256 << 10
	// gatherBytes of puts do not wait for those before them to be committed, nor
	// do any longer than gatherFor.
	gatherBytes = 16 << 10
	gatherFor   = 10 * time.Millisecond
)

// release proposes the puts that have gathered. They go on gathering, unless
// there are many, while a submission of this loop is on its way to the disk, for
// the journal would not write them before that sync ends anyway; while puts of
// their partition are on their way to being committed, for one append costs all
// replicas the same work whether it carries one put or fifty; and for a moment
// after that, until their company is there. So groups grow with the load, and a
// lone put never waits.
func (l *loop) release() {
	syncing := len(l.passes) > 0
	if !syncing {
		for _, h := range l.waiting {
			if h.waiting = false; len(h.puts) > 0 {
				l.touch(h)
			}
		}
		clear(l.waiting)
		l.waiting = l.waiting[:0]
	}
	for _, h := range l.touched {
		behind := h.machine.Committing()
		if h.company.away > 0 && !behind {
			h.company.landed(l.now, len(h.puts))
		}
		switch {
		case len(h.puts) == 0:
		case h.putBytes >= eagerBytes || !syncing && !l.gathers(h, behind):
			h.company.left(l.now, len(h.puts))
			l.flush(h)
		case syncing && !h.waiting:
			h.waiting = true
			l.waiting = append(l.waiting, h)
		}
	}
}

// gathers reports whether a partition's puts wait for those before them, which
// are behind, to be committed, or for company. Not for long: what cannot be
// committed now is the machine's business.
func (l *loop) gathers(h *hosted, behind bool) bool {
	switch {
	case h.putBytes >= gatherBytes:
		return false
	case behind:
		return l.now.Sub(h.company.since) < gatherFor
	case h.company.awaits(l.now, len(h.puts), h.putBytes):
		l.hold(h)
		return true
	}
	return false
}

// hold has the partition looked at again when its wait for company ends, or
// another's that began before: at most patience later.
func (l *loop) hold(h *hosted) {
	if h.held {
		return
	}
	h.held = true
	l.held = append(l.held, h)
	if len(l.held) == 1 {
		l.holding.Reset(h.company.until.Sub(l.now))
	}
}

// letGo looks at the partitions that are held. Whose wait has not ended is held
// again.
func (l *loop) letGo() {
	for _, h := range l.held {
		if h.held = false; len(h.puts) > 0 {
			l.touch(h)
		}
	}
	clear(l.held)
	l.held = l.held[:0]
}

const (
	// patience bounds a wait for company.
	patience = time.Millisecond
	// companyBytes of puts wait for none: there is little left to share.
	companyBytes = gatherBytes / 2
	// remembered is what the past counts at the next judgement.
	remembered = 7.0 / 8
	// strangers is how many puts may come while the company is away, as part of it.
	strangers = 1.0 / 4
	// doubtMost bounds how many groups in a row go without waiting.
	doubtMost = 63
)

// company is which puts of a partition might go together. Producers that wait for
// each answer fall into two halves: while the puts of one are being committed
// those of the other gather, and each put takes two rounds. So after a commit the
// puts that have gathered wait for as many more as were answered, for three
// quarters of the time that the commit took: less than the round which those that
// come too late have to wait for.
//
// It was right if hardly any puts come while the company is away. If many do, for
// their producers do not wait for answers, or have other things to do between,
// the next groups go without, ever more of them.
type company struct {
	since time.Time // when puts were last proposed
	away  int       // puts that are being committed
	held  bool      // they had company to wait for
	size  int       // puts to wait for; at most 1 = none
	until time.Time // and for how long

	answered, gathered float64 // puts of groups that had waited, and meanwhile; lately
	doubt, skip        int     // groups to go without waiting; what is left of them
}

// left notes that puts go.
func (c *company) left(now time.Time, puts int) {
	c.away += puts
	c.since, c.held, c.size = now, c.size > 1, 0
}

// landed notes that all are committed, and how many have gathered.
func (c *company) landed(now time.Time, gathered int) {
	answered := c.away
	c.away = 0
	if c.held {
		c.judge(float64(answered), float64(gathered))
	}
	if c.skip > 0 {
		c.skip--
		return
	}
	c.size, c.until = answered+gathered, now.Add(min(now.Sub(c.since)*3/4, patience))
}

// judge learns from a group that had waited.
func (c *company) judge(answered, gathered float64) {
	c.answered = c.answered*remembered + answered
	c.gathered = c.gathered*remembered + gathered
	if c.gathered <= c.answered*strangers {
		c.doubt /= 2
		return
	}
	c.doubt = min(2*c.doubt+1, doubtMost)
	c.skip = c.doubt
}

// awaits reports whether puts wait for more.
func (c *company) awaits(now time.Time, puts, bytes int) bool {
	return puts < c.size && bytes < companyBytes && now.Before(c.until)
}
