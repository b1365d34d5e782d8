package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// Policy is a channel's treatment of failing messages, and its filter. It is configuration, not
// state: the broker sets it on every channel that it leads. The zero value is NSQ's behaviour:
// endless attempts without delay, for all messages.
type Policy struct {
	// MaxAttempts is the number of deliveries after which a message that comes back is dead. A dead
	// message is no longer delivered; the broker fetches it (DeadPending, DeadLetters). 0: no
	// message dies.
	MaxAttempts uint16
	// DeadLetters: there is a topic for dead messages. A message that has failed, and then outlived its time
	// to live, is dead too.
	DeadLetters bool
	// Backoff is the least delay before a message is delivered again. An ordered channel waits for
	// it: no later message overtakes.
	Backoff option.Backoff
	// Filter is the text of a filter (package nsqd/filter). The channel finishes the messages that it
	// rejects instead of delivering them. "": it delivers all messages.
	Filter string
	// Revision numbers the versions of the configuration: a newer policy is never
	// replaced by an older one, whatever its source.
	Revision int64
	// Channel is the id of the channel whose configuration this is (ChannelOptions.ID).
	Channel uint64
}

// deadMoveTimeoutMS is the time that the broker has to move a dead message, before the message is
// offered to it again.
const deadMoveTimeoutMS = 60_000

// SetPolicy replaces the channel's policy, unless it has a newer one, or the policy is that of another
// channel of the same name.
func (c *Channel) SetPolicy(p Policy) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setPolicyLocked(p)
	c.offerLocked(now)
}

func (c *Channel) setPolicyLocked(p Policy) {
	if p.Channel == c.id && p.Revision >= c.policy.Revision {
		c.policy, c.awaitsPolicy = p, false
		c.setFilterLocked(p.Filter)
	}
}

// Policy is the policy in force.
func (c *Channel) Policy() Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy
}

func (c *Channel) isDeadLocked(attempts uint16) bool {
	return c.policy.MaxAttempts > 0 && attempts >= c.policy.MaxAttempts
}

// holdDeadLocked takes a deferred message that is neither ready nor in flight into flight to the
// dead-letter hold, until the broker has moved it to the dead letters. expired: it has outlived its time
// to live.
func (c *Channel) holdDeadLocked(seq ident.Sequence, attempts uint16, expired bool, now int64) {
	c.cursor.Deferred.MarkInFlight(seq, attempts)
	c.inFlight.add(delivery{
		seq: seq, sub: &c.deadLetterHold, start: now, deadline: now + deadMoveTimeoutMS*nsPerMS, putTime: now,
		epoch: c.epoch, number: c.p.deliveries.Add(1), attempts: attempts, deferred: true, expired: expired,
	})
	c.p.lower(now + deadMoveTimeoutMS*nsPerMS)
	c.dead = append(c.dead, seq)
	c.deadPendingLocked()
}

// deadPendingLocked has the broker fetch dead messages.
func (c *Channel) deadPendingLocked() {
	c.p.deadPending.Store(true)
	c.p.o.Wake(0)
}

// holdDeadFrontLocked moves dead messages from the front of the ready queue into the dead-letter
// hold.
func (c *Channel) holdDeadFrontLocked(now int64) {
	for c.policy.MaxAttempts > 0 && c.serving {
		seq, ok := c.cursor.Deferred.Peek()
		if !ok {
			return
		}
		e, _ := c.cursor.Deferred.Get(seq)
		if !c.isDeadLocked(e.Attempts()) || c.blockedLocked() {
			return
		}
		c.cursor.Deferred.SkipFront()
		c.holdDeadLocked(seq, e.Attempts(), false, now)
	}
}

// DeadPending reports whether some channel has dead messages for the broker to move, and clears
// that flag. Messages that the caller does not fetch with Channel.DeadLetters are offered again
// later.
func (p *Partition) DeadPending() bool { return p.deadPending.Swap(false) }

// DeadLetters returns dead messages, about pullBytes of them; an empty result means that there are no others. The caller
// publishes them to the dead-letter topic and then calls DeadMoved, or ReleaseDead if that failed.
// Without either they are offered again after a while. It may read a disk.
func (c *Channel) DeadLetters() (all []api.Delivery) {
	for bytes := 0; bytes < pullBytes && len(all) < maxRevoked; {
		d, ok := c.nextDeadLetter()
		if !ok {
			break
		}
		seq := d.Message.Seq
		read, err := c.p.Read(seq, 1, nil)
		if err != nil || len(read) == 0 || read[0].Seq != seq {
			c.ReleaseDead(DeadReceipt(&d))
			continue
		}
		read[0].Attempts = d.Message.Attempts
		d.Message = read[0]
		all = append(all, d)
		bytes += d.Message.Size()
	}
	return all
}

// nextDeadLetter takes the next dead message that is not being moved, without its body.
func (c *Channel) nextDeadLetter() (d api.Delivery, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.dead) > 0 {
		seq := c.dead[0]
		c.dead = c.dead[1:]
		if f, ok := c.inFlight.bySeq[seq]; ok && f.sub == &c.deadLetterHold && !f.moving {
			f.moving = true
			c.inFlight.setDeadline(f, c.p.o.Now()+deadMoveTimeoutMS*nsPerMS)
			d = api.Delivery{ID: api.MessageIDOf(c.p.id, seq), Partition: c.p.id, Epoch: f.epoch, Number: f.number}
			d.Message.Seq, d.Message.Attempts = seq, f.attempts
			return d, true
		}
	}
	return d, false
}

// retryDeadMoveLocked offers a dead message again that was not moved in time.
func (c *Channel) retryDeadMoveLocked(f *delivery, now int64) {
	if !f.moving { // the broker has not fetched it yet
		c.inFlight.setDeadline(f, now+deadMoveTimeoutMS*nsPerMS)
		c.deadPendingLocked()
		return
	}
	f.moving = false
	c.inFlight.setDeadline(f, now+deadMoveTimeoutMS*nsPerMS)
	c.dead = append(c.dead, f.seq)
	c.deadPendingLocked()
}

// DeadReceipt is the receipt of a dead message. It has no attempts: the last one has failed already.
func DeadReceipt(d *api.Delivery) Receipt {
	return Receipt{Sequence: d.Message.Seq, Epoch: d.Epoch, Number: d.Number}
}

// DeadMoved finishes a dead message after it was stored in the dead-letter topic. Errors as Finish.
func (c *Channel) DeadMoved(r Receipt) error { return c.Finish(&c.deadLetterHold, r) }

// ReleaseDead defers a dead message by one second after a move that failed.
func (c *Channel) ReleaseDead(r Receipt) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.inFlight.bySeq[r.Sequence]
	if !ok || f.sub != &c.deadLetterHold || !r.is(f) {
		return
	}
	c.inFlight.remove(f)
	c.cursor.Deferred.Schedule(cursor.NewEntry(f.seq, now+1000*nsPerMS, f.attempts))
	c.p.lower(now + 1000*nsPerMS)
	c.offerLocked(now) // an ordered channel may deliver again
}
