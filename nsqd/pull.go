package nsqd

import (
	"cmp"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// readAheadMessages and readAheadBytes bound the undelivered messages of a channel in memory.
	readAheadMessages = 512
	readAheadBytes    = 1 << 20
	// pullBytes is the size at which a Pull stops, because RDY counts messages of any size.
	pullBytes = 1 << 20
	// redeliveryMessages bounds one read of messages for redelivery.
	redeliveryMessages = 256
	// stallNS is the wait of a channel after a read that failed.
	stallNS = 100 * nsPerMS
)

// window has messages that were read and not delivered yet. Their bodies alias the batches.
type window struct {
	messages []queue.Message
	head     int
	average  int                         // average bytes of a message, to read about readAheadBytes at once
	rejected map[ident.Sequence]struct{} // messages of the ready queue that are not for the channel; nil: none
	life     life                        // of the first message, once Reap has examined it
}

func (w *window) empty() bool           { return w.head == len(w.messages) }
func (w *window) front() *queue.Message { return &w.messages[w.head] }
func (w *window) reset()                { w.messages, w.head, w.rejected = w.messages[:0], 0, nil }

// rejects reports whether a message of the ready queue is not for the channel.
func (w *window) rejects(seq ident.Sequence) bool {
	_, rejected := w.rejected[seq]
	return rejected
}

func (w *window) pop() {
	w.messages[w.head] = queue.Message{} // releases its batch
	w.head++
}

// measure updates the average with the messages of a read.
func (w *window) measure(read []queue.Message) {
	bytes := 0
	for i := range read {
		bytes += read[i].Size()
	}
	if len(read) > 0 {
		w.average = max(bytes/len(read), 1)
	}
}

// Pull appends at most credit deliveries, of about Subscriber.PullBytes, to dst and returns it. They are then in flight
// to s. If there are fewer than credit, s.Wake receives when there may be more. Pull may read a disk. A subscriber
// calls it again when its credit grows; a credit of 0 or less withdraws its demand.
func (c *Channel) Pull(s *Subscriber, credit int, dst []api.Delivery) []api.Delivery {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.channel != c {
		return dst
	}
	c.withdrawOfferLocked(s)
	had := len(dst)
	dst, full := c.takeLocked(s, c.allowedLocked(s, credit, now), now, dst)
	c.p.lower(min(c.inFlight.next(), c.cursor.Deferred.Next()))
	switch {
	case s.channel != c: // s was detached while the log was read
	case full:
		s.wake() // no demand until it pulls again, because an offer to a client that does not read would delay the others
	default:
		if unused := credit - (len(dst) - had); unused > 0 && !s.waiting {
			s.want = unused
			c.subs.list(s).push(s)
		}
	}
	c.offerLocked(now)
	return dst
}

// takeLocked delivers up to want messages. full: it stopped at the size limit, or after skipMessages messages that are
// not for the channel, and there may be more. It may release the lock to read.
func (c *Channel) takeLocked(s *Subscriber, want int, now int64, dst []api.Delivery) (_ []api.Delivery, full bool) {
	c.holdDeadFrontLocked(now)
	began, most := c.reader.fetched, cmp.Or(s.PullBytes, pullBytes)
	for bytes := 0; want > 0 && s.channel == c; {
		from := c.sourceLocked()
		if from == nil {
			break
		}
		if from.empty() {
			if c.verdictLocked(s, nil, now) != deliver || !c.loadLocked(from, now) {
				break
			}
			if from == &c.reader.ahead && from.empty() && c.reader.fetched > began+skipMessages {
				return dst, true
			}
			now = c.p.o.Now() // the read may have taken long, and a fence may have closed
			continue
		}
		switch v := c.verdictLocked(s, from, now); {
		case v == deliver:
			var d api.Delivery
			c.deliverLocked(s, from, now, &d)
			dst = append(dst, d)
			want--
			if bytes += d.Message.Size(); bytes >= most {
				return dst, want > 0
			}
		case v.stopsChannel():
			return dst, false
		default:
			c.skipFrontLocked(from, v, now)
		}
	}
	return dst, false
}

// sourceLocked returns the window of the next message, or nil. Redeliveries and new messages alternate, unless ordered.
func (c *Channel) sourceLocked() *window {
	again := c.cursor.Deferred.Ready() > 0
	fresh := !c.reader.pacing.paused && (!c.reader.ahead.empty() || c.reader.fetched < c.limit)
	turn := c.reader.redeliverNext
	if c.order.on {
		old, _ := c.cursor.Deferred.Peek()
		next, ok := c.frontLocked(&c.reader.ahead)
		turn = !ok || old < next
	}
	switch {
	case again && (turn || !fresh):
		c.checkRedeliveryLocked()
		return &c.reader.redelivery
	case fresh:
		return &c.reader.ahead
	}
	return nil
}

// checkRedeliveryLocked drops the bodies for redelivery if they do not belong to the front of the ready queue.
func (c *Channel) checkRedeliveryLocked() {
	seq, _ := c.cursor.Deferred.Peek()
	if !c.reader.redelivery.empty() && c.reader.redelivery.front().Seq != seq {
		c.reader.redelivery.reset()
	}
}

// deliverLocked puts the front of the window into flight to s.
func (c *Channel) deliverLocked(s *Subscriber, from *window, now int64, d *api.Delivery) {
	m := from.front()
	seq, attempts := m.Seq, uint16(1)
	again := from == &c.reader.redelivery
	c.reader.redeliverNext = !again
	if again {
		attempts += c.cursor.Deferred.Deliver(seq)
	} else {
		c.reader.next = seq + 1
		c.paceLocked(m)
	}
	number := c.p.counts.deliveries.Add(1)
	c.inFlight.add(delivery{
		seq: seq, sub: s, start: now, deadline: now + c.timeoutNS(s), putTime: m.Time,
		name: name{c.serving.epoch, number}, attempts: attempts, deferred: again,
	})
	*d = api.Delivery{ID: api.MessageIDOf(c.p.id, seq), Partition: c.p.id, Epoch: c.serving.epoch, Number: number, Message: *m}
	d.Message.Attempts = attempts
	from.pop()
}

// skipFrontLocked removes a message that is not delivered from the front of the window.
func (c *Channel) skipFrontLocked(from *window, why verdict, now int64) {
	again := from == &c.reader.redelivery
	c.reader.redeliverNext = !again
	if !again {
		c.reader.next = from.front().Seq + 1
	}
	switch why {
	case settled:
		from.pop()
	case dead:
		from.pop()
		c.holdDeadFrontLocked(now)
	case rejected:
		c.counts.Filtered.Add(1)
		c.finishFrontLocked(from)
	case expired:
		c.expireFrontLocked(from, now)
	default:
		c.finishFrontLocked(from)
	}
}

func (c *Channel) timeoutNS(s *Subscriber) int64 {
	return cmp.Or(max(s.MsgTimeoutMS, 0), c.p.o.MsgTimeoutMS) * nsPerMS
}

// loadLocked fills the window from the log, without the lock. False: there is nothing, or another goroutine reads.
func (c *Channel) loadLocked(w *window, now int64) bool {
	if c.reader.active || now < c.reader.retryAt {
		return false
	}
	from, most := c.rangeLocked(w)
	if from >= c.limit {
		if w == &c.reader.redelivery { // deferred by a state that is newer than the log
			c.postponeLocked(from, now)
		}
		return true // the caller tries again
	}
	var again []ident.Sequence
	if w == &c.reader.redelivery {
		again = c.cursor.Deferred.Front(most, c.limit)
	}
	generation, room, selected := c.reader.generation, w.messages[:0], c.selectionLocked()
	w.messages, w.head = nil, 0
	c.reader.active = true
	c.mu.Unlock()
	var read []queue.Message
	var err error
	if w == &c.reader.redelivery {
		read, err = c.p.relocations.readEach(c.p.source, again, readAheadBytes, room)
	} else {
		read, err = c.p.source.Read(from, max(most, 1), room)
	}
	start := c.p.source.Start().Sequence
	rejected := reject(selected, read)
	c.mu.Lock()
	c.reader.active = false
	if generation != c.reader.generation || selected != c.selectionLocked() {
		return true // the cursor moved, or the filter changed: the caller tries again
	}
	w.measure(read)
	if w == &c.reader.redelivery {
		w.rejected = cursor.Sequences(rejected)
		return c.keepRedeliveryLocked(from, read, start, err, now)
	}
	c.settleRejectedLocked(rejected)
	return c.keepAheadLocked(read, start, err, now)
}

// rangeLocked returns the first sequence that the window needs, and how many at most.
func (c *Channel) rangeLocked(w *window) (from ident.Sequence, most int) {
	if w == &c.reader.redelivery {
		from, _ = c.cursor.Deferred.Peek()
		return from, min(redeliveryMessages, readAheadBytes/max(w.average, 1))
	}
	// Settled messages are not read: an ephemeral channel may have discarded gigabytes.
	c.reader.fetched = c.cursor.Unsettled(c.reader.fetched)
	return c.reader.fetched, min(readAheadMessages, readAheadBytes/max(w.average, 1))
}

// keepAheadLocked keeps the deliverable messages of a run that was read at fetched.
func (c *Channel) keepAheadLocked(read []queue.Message, start ident.Sequence, err error, now int64) bool {
	if len(read) == 0 && c.reader.fetched < min(start, c.limit) {
		c.skipLocked(min(start, c.limit))
		return true
	}
	if len(read) == 0 || err != nil {
		return c.stallLocked(err, now)
	}
	kept := read[:0]
	for i := range read {
		m := read[i]
		if m.Seq > c.reader.fetched {
			c.skipLocked(min(m.Seq, c.limit))
		}
		if m.Seq >= c.limit {
			break
		}
		c.reader.fetched = m.Seq + 1
		switch {
		case c.cursor.Settled(m.Seq):
		case m.DeliverAt > now:
			c.cursor.DeferUntil(cursor.NewEntry(m.Seq, m.DeliverAt, 0))
			c.changedLocked()
		default:
			kept = append(kept, m)
		}
	}
	clear(read[len(kept):])
	c.reader.ahead.messages = kept
	return true
}

// skipLocked settles messages that retention has removed before the channel had read them.
func (c *Channel) skipLocked(to ident.Sequence) {
	c.cursor.Settle(cursor.Span{From: c.reader.fetched, To: to})
	c.reader.fetched = to
	c.changedLocked()
}

// keepRedeliveryLocked keeps the bodies of the first messages of the ready queue.
func (c *Channel) keepRedeliveryLocked(from ident.Sequence, read []queue.Message, start ident.Sequence, err error, now int64) bool {
	if !c.cursor.Deferred.IsReady(from) {
		return true // finished or reclaimed during the read
	}
	if len(read) > 0 && read[0].Seq > from || len(read) == 0 && err == nil && from < start {
		c.cursor.Finish(from) // retention has removed it
		c.changedLocked()
		return true
	}
	if len(read) == 0 || err != nil {
		if c.order.on {
			return c.stallLocked(err, now) // no message may overtake it
		}
		// Other messages need not wait.
		c.logReadErrorLocked(err)
		c.postponeLocked(from, now)
		return true
	}
	c.reader.redelivery.messages = read
	return true
}

// postponeLocked defers a ready message that cannot be read now by stallNS.
func (c *Channel) postponeLocked(seq ident.Sequence, now int64) {
	e, _ := c.cursor.Deferred.Get(seq)
	c.cursor.Deferred.Schedule(cursor.NewEntry(seq, now+stallNS, e.Attempts()))
}

// stallLocked stops reads for stallNS after a read that returned nothing. Then Expire wakes the subscribers.
func (c *Channel) stallLocked(err error, now int64) bool {
	c.logReadErrorLocked(err)
	c.reader.retryAt = now + stallNS
	c.p.lower(c.reader.retryAt)
	return false
}

// logReadErrorLocked logs a read error once, until the cursor moves.
func (c *Channel) logReadErrorLocked(err error) {
	if err != nil && c.reader.err == nil {
		c.reader.err = err
		c.p.report(c.name, "cannot read the log for a channel; retrying every 100 ms", err)
	}
}
