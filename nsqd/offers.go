package nsqd

// A subscriber whose Pull left credit unused is hungry. When messages come, as
// many hungry subscribers are woken as the messages need, those connected here
// first, in the order in which they became hungry. A wake-up is an offer: until
// the subscriber pulls, so many messages count as promised. An offer that nobody
// takes within offerNS lapses (Expire), and the next ones are woken, so a stuck
// or dead subscriber delays others by that much and loses nothing.
const offerNS = 5 * nsPerMS

// subscriberList is a queue of hungry subscribers, linked through them.
type subscriberList struct{ first, last *Subscriber }

func (l *subscriberList) empty() bool { return l.first == nil }

func (l *subscriberList) push(s *Subscriber) {
	s.hungryPrev, s.hungryNext = l.last, nil
	if l.last == nil {
		l.first = s
	} else {
		l.last.hungryNext = s
	}
	l.last = s
	s.hungry = true
}

func (l *subscriberList) remove(s *Subscriber) {
	if s.hungryPrev == nil {
		l.first = s.hungryNext
	} else {
		s.hungryPrev.hungryNext = s.hungryNext
	}
	if s.hungryNext == nil {
		l.last = s.hungryPrev
	} else {
		s.hungryNext.hungryPrev = s.hungryPrev
	}
	s.hungryNext, s.hungryPrev, s.hungry = nil, nil, false
}

func (c *Channel) listLocked(s *Subscriber) *subscriberList {
	if s.Direct {
		return &c.hungryDirect
	}
	return &c.hungryRelayed
}

// answeredLocked: s pulls, so its offer and its old demand are void.
func (c *Channel) answeredLocked(s *Subscriber) {
	if s.offered {
		s.offered = false
		c.offered -= s.want
		if s.Direct {
			c.offeredDirect -= s.want
		}
	}
	if s.hungry {
		c.listLocked(s).remove(s)
	}
	s.want = 0
}

// demandLocked notes the credit that s could not use.
func (c *Channel) demandLocked(s *Subscriber, want int) {
	if want > 0 && !s.hungry {
		s.want = want
		c.listLocked(s).push(s)
	}
}

// shareLocked is how much of want s may take: a relay leaves what was offered to
// clients connected here.
func (c *Channel) shareLocked(s *Subscriber, want int, now int64) int {
	if s.Direct || c.offeredDirect == 0 {
		return want
	}
	return min(want, max(c.availableLocked(now)-c.offeredDirect, 0))
}

// offerLocked wakes hungry subscribers for what is available. Whoever makes
// something available calls it before unlocking. While somebody reads the log it
// does nothing: the reader calls it when done.
func (c *Channel) offerLocked(now int64) {
	if c.reading || c.hungryDirect.empty() && c.hungryRelayed.empty() {
		return
	}
	left := c.availableLocked(now) - c.offered
	for left > 0 {
		list := &c.hungryDirect
		if list.empty() {
			list = &c.hungryRelayed
		}
		s := list.first
		if s == nil {
			return
		}
		list.remove(s)
		s.offered = true
		c.offered += s.want
		if s.Direct {
			c.offeredDirect += s.want
		}
		left -= s.want
		c.offeredAt = now
		s.wake()
	}
	if c.offered > 0 {
		c.p.lower(c.offeredAt + offerNS)
	}
}

// lapseLocked takes offers back that nobody took, and returns when to look again.
func (c *Channel) lapseLocked(now int64) int64 {
	if c.offered == 0 || c.hungryDirect.empty() && c.hungryRelayed.empty() {
		return never
	}
	if now < c.offeredAt+offerNS {
		return c.offeredAt + offerNS
	}
	for s := range c.subs {
		s.offered = false // its wake-up is still pending
	}
	c.offered, c.offeredDirect = 0, 0
	return never
}
