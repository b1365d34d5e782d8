package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Pace lets channels that are far behind rest now and then: delivering old
// messages takes from the puts of the moment the processors and connections that
// those need.
type Pace interface {
	// Burst is how many bytes such a channel may deliver between two rests; 0 = it
	// need not rest now. It is called under locks.
	Burst() int
	// Rest calls wake when the rest is over, from another goroutine: it is called
	// under locks, too.
	Rest(wake func())
}

const (
	// farBehind is how many bytes a channel is behind when it is slowed: those that
	// keep up never are, nor is one whose consumers have had a bad second.
	farBehind = 16 << 20
	// unasked is how many bytes a channel delivers before the Pace is asked again
	// if it need not rest now.
	unasked = 256 << 10
)

// rests is what a channel notes of its rests.
type rests struct {
	left     int            // bytes it may deliver before the Pace is asked
	messages ident.Sequence // delivered since it was asked
	slowed   bool           // left is a burst of the Pace
	on       bool           // nothing new is delivered until the rest is over,
	until    ident.Sequence // or until the limit is there
}

// paceLocked counts a new message that is delivered, and lets the channel rest
// after a burst. Puts end the rest, half as many as were delivered before it: a
// channel gains on its producers, however busy the broker is.
func (c *Channel) paceLocked(m *queue.Message) {
	r := &c.rests
	r.left -= m.Size()
	r.messages++
	if r.left > 0 || c.p.o.Pace == nil {
		return
	}
	burst, messages := 0, r.messages
	// An ordered channel is slow anyway: it waits for the replicas each time.
	if !c.ordered && int(c.limit-c.next)*c.ahead.average >= farBehind {
		burst = c.p.o.Pace.Burst()
	}
	if burst == 0 {
		*r = rests{left: unasked}
		return
	}
	*r = rests{left: burst, slowed: true, on: true, until: c.limit + (messages+1)/2}
	c.p.o.Pace.Rest(c.rested)
}

// rested ends a rest.
func (c *Channel) rested() {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rests.on = false
	c.offerLocked(now)
}

// rationLocked is how many of so many new messages may be delivered before the
// next rest: nobody is woken for others.
func (c *Channel) rationLocked(n int) int {
	switch {
	case c.rests.on:
		return 0
	case c.rests.slowed:
		return min(n, c.rests.left/max(c.ahead.average, 1)+1)
	}
	return n
}
