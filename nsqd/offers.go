package nsqd

// A subscriber waits for messages if its last Pull left credit unused. When messages come, the
// channel wakes as many waiting subscribers as the messages need: subscribers connected to this
// broker first, each group in the order in which they began to wait. A wake-up is an offer: until
// the subscriber pulls, that many messages count as offered. If it does not pull within offerNS,
// the offer lapses (Expire) and the next subscribers are woken. So a stuck or dead subscriber
// delays the others by offerNS, and no message is lost.
const offerNS = 5 * nsPerMS

// subscriberList is a queue of waiting subscribers, linked through them.
type subscriberList struct{ first, last *Subscriber }

func (l *subscriberList) empty() bool { return l.first == nil }

func (l *subscriberList) push(s *Subscriber) {
	s.waitingPrev, s.waitingNext = l.last, nil
	if l.last == nil {
		l.first = s
	} else {
		l.last.waitingNext = s
	}
	l.last = s
	s.waiting = true
}

func (l *subscriberList) remove(s *Subscriber) {
	if s.waitingPrev == nil {
		l.first = s.waitingNext
	} else {
		s.waitingPrev.waitingNext = s.waitingNext
	}
	if s.waitingNext == nil {
		l.last = s.waitingPrev
	} else {
		s.waitingNext.waitingPrev = s.waitingPrev
	}
	s.waitingNext, s.waitingPrev, s.waiting = nil, nil, false
}

func (c *Channel) listLocked(s *Subscriber) *subscriberList {
	if s.Direct {
		return &c.waitingDirect
	}
	return &c.waitingRelayed
}

// withdrawOfferLocked cancels the offer and the demand of s, because s pulls.
func (c *Channel) withdrawOfferLocked(s *Subscriber) {
	if s.offered {
		s.offered = false
		c.offered -= s.want
		if s.Direct {
			c.offeredDirect -= s.want
		}
	}
	if s.waiting {
		c.listLocked(s).remove(s)
	}
	s.want = 0
}

// demandLocked notes the credit that s could not use, and lets s wait.
func (c *Channel) demandLocked(s *Subscriber, want int) {
	if want > 0 && !s.waiting {
		s.want = want
		c.listLocked(s).push(s)
	}
}

// allowedLocked is the part of want that s may take: a relay leaves the messages that are offered
// to clients connected to this broker.
func (c *Channel) allowedLocked(s *Subscriber, want int, now int64) int {
	if s.Direct || c.offeredDirect == 0 {
		return want
	}
	return min(want, max(c.availableLocked(now)-c.offeredDirect, 0))
}

// offerLocked wakes waiting subscribers for the available messages. Every method that makes a
// message available calls it before it unlocks. While a goroutine reads the log it does nothing:
// that goroutine calls it after the read.
func (c *Channel) offerLocked(now int64) {
	if c.reading || c.waitingDirect.empty() && c.waitingRelayed.empty() {
		return
	}
	left := c.availableLocked(now) - c.offered
	for left > 0 {
		list := &c.waitingDirect
		if list.empty() {
			list = &c.waitingRelayed
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

// expireOffersLocked withdraws offers that have lapsed, and returns the time of its next call.
func (c *Channel) expireOffersLocked(now int64) int64 {
	if c.offered == 0 || c.waitingDirect.empty() && c.waitingRelayed.empty() {
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
