package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// pacer makes channels that are far behind pause between bursts, because they take CPU time from current puts.
type pacer interface {
	// Burst is the number of bytes that such a channel may deliver between two pauses; 0: no pause. Called under locks.
	Burst() int
	// Pause calls wake after the pause. It is called under locks, so it calls wake from another goroutine.
	Pause(wake func())
}

const (
	// farBehind is the backlog in bytes from which a channel is slowed: more than consumers fall behind in a bad
	// second.
	farBehind = 16 << 20
	// probeBytes is the number of bytes after which a channel that need not pause consults the Pace again.
	probeBytes = 256 << 10
)

// pacing is the state of a channel's paced catch-up.
type pacing struct {
	quota    int            // bytes that it may deliver before it consults the Pace
	messages ident.Sequence // delivered since the Pace was last consulted
	slowed   bool           // quota is a burst of the Pace
	paused   bool           // no new message is delivered until the pause is over,
	resumeAt ident.Sequence // or until the limit has reached this sequence
}

// paceLocked counts a new message that is delivered, and pauses the channel after a burst. The pause also ends after
// half as many new puts as were delivered before it, so a channel gains on its producers however busy the broker is.
func (c *Channel) paceLocked(m *queue.Message) {
	r := &c.reader.pacing
	r.quota -= m.Size()
	r.messages++
	if r.quota > 0 || c.p.o.Pace == nil {
		return
	}
	burst, messages := 0, r.messages
	// An ordered channel is never paused: it is slow anyway, because it waits for the replicas after each message.
	if !c.order.on && int(c.limit-c.reader.next)*c.reader.ahead.average >= farBehind {
		burst = c.p.o.Pace.Burst()
	}
	if burst == 0 {
		*r = pacing{quota: probeBytes}
		return
	}
	*r = pacing{quota: burst, slowed: true, paused: true, resumeAt: c.limit + (messages+1)/2}
	c.p.o.Pace.Pause(c.resume)
}

func (c *Channel) resume() { c.update(func(int64) { c.reader.pacing.paused = false }) }

// quotaLocked is the part of n new messages for which subscribers are woken: those that are delivered before the next
// pause.
func (c *Channel) quotaLocked(n int) int {
	switch {
	case c.reader.pacing.paused:
		return 0
	case c.reader.pacing.slowed:
		return min(n, c.reader.pacing.quota/max(c.reader.ahead.average, 1)+1)
	}
	return n
}
