package nsqd

import (
	"math/rand/v2"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// readAheadMessages and readAheadBytes bound what a channel keeps in memory
	// of messages it has not delivered.
	readAheadMessages = 512
	readAheadBytes    = 1 << 20
	// pullBytes is what a Pull stops at: what it returns stays in memory until the
	// client has read it, and RDY counts messages, however large.
	pullBytes = 1 << 20
	// redoMessages bounds one read of messages that come again.
	redoMessages = 256
	// stallNS is how long a channel waits after a read that failed.
	stallNS = 100 * nsPerMS
)

// window holds messages that were read and not delivered yet. Their bodies are
// the batches': nothing is copied.
type window struct {
	messages []queue.Message
	head     int
	average  int  // bytes of a message, to read about readAheadBytes at once
	life     life // of the message at the front, once Reap has looked at it
}

func (w *window) empty() bool           { return w.head == len(w.messages) }
func (w *window) front() *queue.Message { return &w.messages[w.head] }
func (w *window) reset()                { w.messages, w.head = w.messages[:0], 0 }

func (w *window) pop() {
	w.messages[w.head] = queue.Message{} // do not keep its batch alive
	w.head++
}

// measure updates the average with what was read.
func (w *window) measure(read []queue.Message) {
	bytes := 0
	for i := range read {
		bytes += read[i].Size()
	}
	if len(read) > 0 {
		w.average = max(bytes/len(read), 1)
	}
}

// Pull appends at most credit deliveries, of about pullBytes, to dst and returns
// it; they are in flight to s from now on. If it returns less than credit, s.Wake receives as
// soon as there may be more. It may read from disk. A subscriber whose credit
// grew calls it again; credit 0 takes its demand back.
func (c *Channel) Pull(s *Subscriber, credit int, dst []edge.Delivery) []edge.Delivery {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.channel != c {
		return dst
	}
	c.answeredLocked(s)
	credit = max(credit, 0)
	had := len(dst)
	dst, full := c.takeLocked(s, c.shareLocked(s, credit, now), now, dst)
	c.p.lower(min(c.flights.next(), c.cursor.aside.next()))
	switch {
	case s.channel != c: // it was lost while the log was read
	case full:
		s.wake() // no demand meanwhile: what is offered to a client that does not read keeps others waiting
	default:
		c.demandLocked(s, credit-(len(dst)-had))
	}
	c.offerLocked(now)
	return dst
}

// takeLocked delivers up to want messages; full: there may be more, but these are
// large. It may let go of the lock to read.
func (c *Channel) takeLocked(s *Subscriber, want int, now int64, dst []edge.Delivery) (_ []edge.Delivery, full bool) {
	c.buryFrontLocked(now)
	for bytes := 0; want > 0 && s.channel == c && c.opensLocked(now); {
		from := c.sourceLocked()
		if from == nil {
			break
		}
		if from.empty() {
			if !c.loadLocked(from, now) {
				break
			}
			now = c.p.o.Now() // it may have taken long: a fence may have closed
			continue
		}
		var d edge.Delivery
		if c.deliverLocked(s, from, now, &d) {
			dst = append(dst, d)
			want--
			if bytes += d.Message.Size(); bytes >= pullBytes {
				return dst, want > 0
			}
		}
	}
	return dst, false
}

// sourceLocked chooses where the next message comes from: what comes again and
// what is new take turns, so that neither starves the other; an ordered channel
// goes by sequence. nil: there is nothing.
func (c *Channel) sourceLocked() *window {
	again := c.cursor.aside.due > 0
	fresh := !c.rests.on && (!c.ahead.empty() || c.fetched < c.limit)
	turn := c.redoing
	if c.ordered {
		old, _ := c.cursor.aside.peek()
		next, ok := c.frontLocked(&c.ahead)
		turn = !ok || old < next
	}
	switch {
	case again && (turn || !fresh):
		c.checkRedoLocked()
		return &c.redo
	case fresh:
		return &c.ahead
	}
	return nil
}

// checkRedoLocked voids bodies that are not those of the queue's front.
func (c *Channel) checkRedoLocked() {
	seq, _ := c.cursor.aside.peek()
	if !c.redo.empty() && c.redo.front().Seq != seq {
		c.redo.reset()
	}
}

// deliverLocked puts the front of the window into flight to s. False: it turned
// out to be settled already, or sampling discarded it.
func (c *Channel) deliverLocked(s *Subscriber, from *window, now int64, d *edge.Delivery) bool {
	m := from.front()
	seq := m.Seq
	again := from == &c.redo
	c.redoing = !again
	if !again {
		c.next = seq + 1
		if c.cursor.settled(seq) {
			from.pop()
			return false
		}
	}
	if c.p.outlived(lifeOf(m), now) || s.SampleRate > 0 && rand.Int32N(100) > s.SampleRate {
		c.finishFrontLocked(from)
		return false
	}
	attempts := uint16(1)
	if again && c.policy.MaxAttempts > 0 {
		if e, _ := c.cursor.aside.get(seq); c.diesLocked(e.attempts()) {
			from.pop()
			c.buryFrontLocked(now)
			return false
		}
	}
	if again {
		attempts += c.cursor.aside.deliver(seq)
	} else {
		c.paceLocked(m)
	}
	c.flights.add(flight{
		seq: seq, sub: s, start: now, deadline: now + c.timeoutNS(s), put: m.Time,
		attempts: attempts, aside: again,
	})
	*d = edge.Delivery{ID: ID(c.p.id, seq), Partition: c.p.id, Epoch: c.epoch, Message: *m}
	d.Message.Attempts = attempts
	from.pop()
	return true
}

// timeoutNS is the message timeout of deliveries to s.
func (c *Channel) timeoutNS(s *Subscriber) int64 {
	ms := s.MsgTimeoutMS
	if ms <= 0 {
		ms = c.p.o.MsgTimeoutMS
	}
	return ms * nsPerMS
}

// loadLocked fills the window from the log, without the lock meanwhile. False:
// there is nothing to read, or somebody else reads; who reads wakes the others.
func (c *Channel) loadLocked(w *window, now int64) bool {
	if c.reading || now < c.stalled {
		return false
	}
	from, most := c.rangeLocked(w)
	if from >= c.limit {
		if w == &c.redo { // kept by a follower whose log was not that long yet
			c.restLocked(from, now)
		}
		return true // look again
	}
	var again []ident.Sequence
	if w == &c.redo {
		again = c.cursor.aside.front(most, c.limit)
	}
	generation, room := c.generation, w.messages[:0]
	w.messages, w.head = nil, 0
	c.reading = true
	c.mu.Unlock()
	var read []queue.Message
	var err error
	if w == &c.redo {
		read, err = c.p.readEach(again, room)
	} else {
		read, err = c.p.source.Read(from, max(most, 1), room)
	}
	start := c.p.source.Start().Sequence
	c.mu.Lock()
	c.reading = false
	if generation != c.generation {
		return true // the position moved: look again
	}
	w.measure(read)
	if w == &c.redo {
		return c.tookRedoLocked(from, read, start, err, now)
	}
	return c.tookAheadLocked(read, start, err, now)
}

// rangeLocked is what the window needs next: from where, and how many at most.
func (c *Channel) rangeLocked(w *window) (from ident.Sequence, most int) {
	if w == &c.redo {
		from, _ = c.cursor.aside.peek()
		return from, min(redoMessages, readAheadBytes/max(w.average, 1))
	}
	// Pass over what is settled without reading it: an ephemeral channel may have
	// discarded gigabytes.
	c.fetched = c.cursor.ranges.after(max(c.fetched, c.cursor.confirmed))
	return c.fetched, min(readAheadMessages, readAheadBytes/max(w.average, 1))
}

// tookAheadLocked keeps what is deliverable of a run read at fetched.
func (c *Channel) tookAheadLocked(read []queue.Message, start ident.Sequence, err error, now int64) bool {
	if len(read) == 0 && c.fetched < min(start, c.limit) {
		c.skipLocked(min(start, c.limit))
		return true
	}
	if len(read) == 0 || err != nil {
		return c.stallLocked(err, now)
	}
	kept := read[:0]
	for i := range read {
		m := read[i]
		if m.Seq > c.fetched {
			c.skipLocked(min(m.Seq, c.limit))
		}
		if m.Seq >= c.limit {
			break
		}
		c.fetched = m.Seq + 1
		switch {
		case c.cursor.settled(m.Seq):
		case !c.meant(m.Header):
			c.cursor.finish(m.Seq)
			c.changedLocked()
		case m.DeliverAt > now:
			c.cursor.putAside(newEntry(m.Seq, m.DeliverAt, 0))
			c.changedLocked()
		default:
			kept = append(kept, m)
		}
	}
	clear(read[len(kept):])
	c.ahead.messages = kept
	return true
}

// skipLocked settles what retention has taken from under the channel.
func (c *Channel) skipLocked(to ident.Sequence) {
	c.skipped += uint64(to - c.fetched)
	c.cursor.settle(span{c.fetched, to})
	c.fetched = to
	c.changedLocked()
}

// tookRedoLocked keeps the bodies of the front of the ready queue.
func (c *Channel) tookRedoLocked(from ident.Sequence, read []queue.Message, start ident.Sequence, err error, now int64) bool {
	if !c.cursor.aside.isReady(from) {
		return true // finished or reclaimed meanwhile
	}
	if len(read) > 0 && read[0].Seq > from || len(read) == 0 && err == nil && from < start {
		c.cursor.finish(from) // retention has taken it
		c.changedLocked()
		return true
	}
	if len(read) == 0 || err != nil {
		if c.ordered {
			return c.stallLocked(err, now) // nothing may overtake it
		}
		// Unlike a fault at the cursor it need not hold up the others.
		c.logReadErrorLocked(err)
		c.restLocked(from, now)
		return true
	}
	c.redo.messages = read
	return true
}

// restLocked puts a ready message that cannot be read now off for a moment.
func (c *Channel) restLocked(seq ident.Sequence, now int64) {
	e, _ := c.cursor.aside.get(seq)
	c.cursor.aside.wait(newEntry(seq, now+stallNS, e.attempts()))
}

// stallLocked lets the channel rest after a read that gave nothing. Expire wakes
// the subscribers again.
func (c *Channel) stallLocked(err error, now int64) bool {
	c.logReadErrorLocked(err)
	c.stalled = now + stallNS
	c.p.lower(c.stalled)
	return false
}

// logReadErrorLocked says so once, until the position moves.
func (c *Channel) logReadErrorLocked(err error) {
	if err != nil && c.readErr == nil {
		c.readErr = err
		c.p.report(c.name, "cannot read the log, trying again", err)
	}
}
