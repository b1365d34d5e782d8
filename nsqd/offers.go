package nsqd

// A subscriber waits if its last Pull left credit unused. When messages come, the channel wakes as many waiting
// subscribers as the messages need: those connected to this broker first, each group in the order of waiting. A wake-up
// is an offer: until the subscriber pulls, as many messages as its unused credit count as offered. If it does not pull
// within offerNS, the offer lapses (Expire) and the next subscribers are woken. So a stuck subscriber delays the others
// by offerNS.
const offerNS = 5 * nsPerMS

// subscriberList is a queue of waiting subscribers, as a linked list through the subscribers.
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

// subscribers are the subscribers of a channel, and the offers to them.
type subscribers struct {
	all             map[*Subscriber]struct{}
	direct, relayed subscriberList // waiting
	offered         int            // credit of the subscribers that were woken and have not pulled since
	offeredDirect   int            // the part of offered that belongs to direct subscribers
	offeredAt       int64
}

func (l *subscribers) waiting() bool { return !l.direct.empty() || !l.relayed.empty() }

func (l *subscribers) list(s *Subscriber) *subscriberList {
	if s.Direct {
		return &l.direct
	}
	return &l.relayed
}

// withdrawOfferLocked cancels the offer and the demand of s, because s pulls.
func (c *Channel) withdrawOfferLocked(s *Subscriber) {
	if s.offered {
		s.offered = false
		c.subs.offered -= s.want
		if s.Direct {
			c.subs.offeredDirect -= s.want
		}
	}
	if s.waiting {
		c.subs.list(s).remove(s)
	}
	s.want = 0
}

// allowedLocked is the part of want that s may take: a relay must leave the messages that are offered to clients of
// this broker.
func (c *Channel) allowedLocked(s *Subscriber, want int, now int64) int {
	if s.Direct || c.subs.offeredDirect == 0 {
		return want
	}
	return min(want, max(c.availableLocked(now)-c.subs.offeredDirect, 0))
}

// offerLocked wakes waiting subscribers for the available messages. Every method that makes a message available calls it
// before unlocking. While a goroutine reads the log it does nothing: that goroutine calls it after the read.
func (c *Channel) offerLocked(now int64) {
	if c.reader.active || !c.subs.waiting() {
		return
	}
	left := c.availableLocked(now) - c.subs.offered
	for left > 0 {
		list := &c.subs.direct
		if list.empty() {
			list = &c.subs.relayed
		}
		s := list.first
		if s == nil {
			return
		}
		list.remove(s)
		s.offered = true
		c.subs.offered += s.want
		if s.Direct {
			c.subs.offeredDirect += s.want
		}
		left -= s.want
		c.subs.offeredAt = now
		s.wake()
	}
	if c.subs.offered > 0 {
		c.p.lower(c.subs.offeredAt + offerNS)
	}
}

// expireOffersLocked withdraws offers that have lapsed, and returns the time of its next call.
func (c *Channel) expireOffersLocked(now int64) int64 {
	if c.subs.offered == 0 || !c.subs.waiting() {
		return never
	}
	if now < c.subs.offeredAt+offerNS {
		return c.subs.offeredAt + offerNS
	}
	for s := range c.subs.all {
		s.offered = false // it still has the wake-up pending
	}
	c.subs.offered, c.subs.offeredDirect = 0, 0
	return never
}
