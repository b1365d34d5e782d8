package nsqd

import (
	"encoding/json"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/filter"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Policy is a channel's treatment of failing messages, and its filter. It is configuration, not replicated state: the
// broker sets it on every channel that it leads. The zero value is NSQ's behaviour: endless attempts without delay.
type Policy struct {
	// MaxAttempts is the number of failed deliveries after which a message is dead (DeadLetters); 0: unlimited.
	MaxAttempts uint16
	// DeadLetters: there is a topic for dead messages. A message that has failed and then expired is also dead.
	DeadLetters bool
	// Backoff is the minimum delay before a redelivery. During it an ordered channel delivers no later message.
	Backoff option.Backoff
	// Filter is the text of a filter (package nsqd/filter); "": none. The channel finishes what it rejects.
	Filter string
	// Revision orders the versions: an older policy never replaces a newer one.
	Revision int64
	// Channel is the id of the channel whose configuration this is (ChannelOptions.ID).
	Channel uint64
}

type policyInForce struct {
	Policy
	missing bool           // the broker has not set it yet
	filter  *filter.Filter // nil: all messages are delivered
}

type deadMessages struct {
	hold    Subscriber       // subscriber that holds dead messages in flight until they are moved; never attached
	pending []ident.Sequence // dead messages that the broker has not fetched yet, oldest first
}

// deadMoveTimeout is how long the move of a dead message may take before the message is offered to the broker again.
const deadMoveTimeout = 60_000 * nsPerMS

// SetPolicy replaces the channel's policy, unless the current policy is newer, or p is for another channel of the same
// name.
func (c *Channel) SetPolicy(p Policy) { c.update(func(int64) { c.setPolicyLocked(p) }) }

func (c *Channel) setPolicyLocked(p Policy) {
	if p.Channel == c.id && p.Revision >= c.policy.Revision {
		c.policy.Policy, c.policy.missing = p, false
		c.setFilterLocked(p.Filter)
	}
}

// Policy is the policy in force.
func (c *Channel) Policy() Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy.Policy
}

// isDead reports whether a message that failed has used up its attempts.
func (p *Policy) isDead(attempts uint16) bool { return p.MaxAttempts > 0 && attempts >= p.MaxAttempts }

// holdDeadLocked moves a dead message from the deferred set to the dead-letter hold, in which it counts as in flight
// until the broker has moved it to the dead letters. expired: it has outlived its time to live.
func (c *Channel) holdDeadLocked(seq ident.Sequence, attempts uint16, expired bool, now int64) {
	c.cursor.Deferred.MarkInFlight(seq, attempts)
	c.inFlight.add(delivery{
		seq: seq, sub: &c.dead.hold, start: now, deadline: now + deadMoveTimeout, putTime: now,
		name: name{c.serving.epoch, c.p.counts.deliveries.Add(1)}, attempts: attempts, deferred: true, expired: expired,
	})
	c.p.lower(now + deadMoveTimeout)
	c.dead.pending = append(c.dead.pending, seq)
	c.deadPendingLocked()
}

// deadPendingLocked makes the broker fetch dead messages.
func (c *Channel) deadPendingLocked() {
	c.p.timers.dead.Store(true)
	c.p.o.Wake(0)
}

// holdDeadFrontLocked moves dead messages from the front of the ready queue to the hold.
func (c *Channel) holdDeadFrontLocked(now int64) {
	for c.policy.MaxAttempts > 0 && c.serving.leads {
		seq, ok := c.cursor.Deferred.Peek()
		if !ok {
			return
		}
		e, _ := c.cursor.Deferred.Get(seq)
		if !c.policy.isDead(e.Attempts()) || c.blockedLocked() {
			return
		}
		c.cursor.Deferred.SkipFront()
		c.holdDeadLocked(seq, e.Attempts(), false, now)
	}
}

// DeadPending reports once that some channel has dead messages. If they are not fetched, it reports them again later.
func (p *Partition) DeadPending() bool { return p.timers.dead.Swap(false) }

// DeadLetters returns dead messages, about pullBytes of them. The caller publishes them to the dead-letter topic and
// then calls DeadMoved, or ReleaseDead; if it calls neither, they are offered again after a while. It may read a disk.
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
	for len(c.dead.pending) > 0 {
		seq := c.dead.pending[0]
		c.dead.pending = c.dead.pending[1:]
		if f, ok := c.inFlight.bySeq[seq]; ok && f.sub == &c.dead.hold && !f.moving {
			f.moving = true
			c.inFlight.setDeadline(f, c.p.o.Now()+deadMoveTimeout)
			d = api.Delivery{ID: api.MessageIDOf(c.p.id, seq), Partition: c.p.id, Epoch: f.epoch, Number: f.number}
			d.Message.Seq, d.Message.Attempts = seq, f.attempts
			return d, true
		}
	}
	return d, false
}

// retryDeadMoveLocked offers a dead message again if it was not moved in time.
func (c *Channel) retryDeadMoveLocked(f *delivery, now int64) {
	if f.moving { // otherwise the broker has not fetched it yet
		f.moving = false
		c.dead.pending = append(c.dead.pending, f.seq)
	}
	c.inFlight.setDeadline(f, now+deadMoveTimeout)
	c.deadPendingLocked()
}

// DeadReceipt is the receipt of a dead message. It has no attempts, because the last one has failed already.
func DeadReceipt(d *api.Delivery) Receipt {
	return Receipt{Sequence: d.Message.Seq, Epoch: d.Epoch, Number: d.Number}
}

// DeadMoved finishes a dead message after it was stored in the dead-letter topic. Errors are those of Finish.
func (c *Channel) DeadMoved(r Receipt) error { return c.Finish(&c.dead.hold, r) }

// ReleaseDead defers a dead message by one second after a failed move.
func (c *Channel) ReleaseDead(r Receipt) {
	_ = c.withNamed(&c.dead.hold, r, func(f *delivery, now int64) { // the release lets an ordered channel deliver again
		c.inFlight.remove(f)
		c.cursor.Deferred.Schedule(cursor.NewEntry(f.seq, now+1000*nsPerMS, f.attempts))
		c.p.lower(now + 1000*nsPerMS)
	})
}

// The selection of a channel decides about a message when the channel reads it: before its first delivery, and again
// before each redelivery. A message that is not for the channel is finished like one that a consumer has finished. The
// selection runs without the channel's lock, because a regular expression may take milliseconds.

// skipMessages bounds the undelivered messages that one Pull or Reap reads: its caller sends no heartbeats during it.
const skipMessages = 1 << 15

// setFilterLocked puts the filter of a new policy into force. Messages that were read and not delivered are read again.
// A filter that cannot be parsed rejects nothing, so that no message is finished by mistake.
func (c *Channel) setFilterLocked(text string) {
	if text == c.policy.filter.String() {
		return
	}
	f, err := filter.Parse(text)
	if err != nil {
		c.p.report(c.name, "cannot parse the channel's filter; delivering all messages until a new filter is set (nsqctl channel policy)", err)
	}
	c.policy.filter = f
	c.releaseLocked(&c.reader.ahead)
	c.releaseLocked(&c.reader.redelivery)
	c.reader.prescanned = c.reader.fetched // a delayed message that the former filter rejected may be deferred now
}

// selectionLocked is the selection in force. setFilterLocked changes it.
func (c *Channel) selectionLocked() filter.Selection {
	return filter.Selection{Channel: c.name, Filter: c.policy.filter}
}

// reject returns the messages of a read that are not for the channel: one range for each run without a gap.
func reject(by filter.Selection, read []queue.Message) (spans []cursor.Span) {
	for i := range read {
		m := &read[i]
		if by.Accepts(m.Header) {
			continue
		}
		if last := len(spans) - 1; last >= 0 && spans[last].To == m.Seq {
			spans[last].To++
			continue
		}
		spans = append(spans, cursor.Span{From: m.Seq, To: m.Seq + 1})
	}
	return spans
}

// settleRejectedLocked finishes the rejected ones among new messages. Some may be settled already.
func (c *Channel) settleRejectedLocked(rejected []cursor.Span) {
	before := c.cursor.SettledCount()
	for _, s := range rejected {
		if s.To = min(s.To, c.limit); s.From < s.To {
			c.cursor.Settle(s)
		}
	}
	if n := c.cursor.SettledCount() - before; n > 0 {
		c.counts.Filtered.Add(n)
		c.changedLocked()
	}
}

// RedriveChannel retains the dead letters of a dead-letter topic.
const RedriveChannel = api.DeadLetterChannel

// RedriveFilter is the filter of RedriveChannel, which skips the topic's own messages. Every dead letter has this header.
const RedriveFilter = "header:##original_channel*=*"

// headerRedriven is the header with the id that a moved-back message had in the dead-letter topic.
const headerRedriven = "##redriven_id"

// DeadLetterHeader is the header of a message in a dead-letter topic, at most queue.MaxMessageHeader bytes. The
// message's own header is left out if it does not fit or is not JSON.
type DeadLetterHeader struct {
	Topic    string          `json:"##original_topic"`
	Channel  string          `json:"##original_channel"`
	ID       string          `json:"##original_id"`
	TimeNS   int64           `json:"##original_time"` // time of the put, unix ns
	Attempts uint16          `json:"##attempts"`
	Header   json.RawMessage `json:"##original_header,omitempty"`
}

// EncodeDeadLetter makes the header of a message that failed in a channel.
func EncodeDeadLetter(topic, channel string, d api.Delivery) []byte {
	h := DeadLetterHeader{Topic: topic, Channel: channel, ID: string(d.ID[:]), TimeNS: d.Message.Time, Attempts: d.Message.Attempts}
	if json.Valid(d.Message.Header) {
		h.Header = d.Message.Header
	}
	raw, _ := json.Marshal(h) // strings, numbers and valid JSON always marshal
	if len(raw) > queue.MaxMessageHeader {
		h.Header = nil
		raw, _ = json.Marshal(h)
	}
	return raw
}

// DecodeDeadLetter reads the header of a message in a dead-letter topic; false if it has none.
func DecodeDeadLetter(raw []byte) (h DeadLetterHeader, ok bool) {
	err := json.Unmarshal(raw, &h)
	return h, err == nil
}

// Redriven makes the header of the message that is moved back: its own header, and the channel in which it failed.
func (h DeadLetterHeader) Redriven() []byte {
	fields := map[string]json.RawMessage{} // numbers keep their notation
	_ = json.Unmarshal(h.Header, &fields)  // not an object: nothing to keep
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	only := quoted(h.Channel)
	fields[filter.HeaderOnlyChannel], fields[headerRedriven] = only, quoted(h.ID)
	raw, err := json.Marshal(fields)
	if err != nil || len(raw) > queue.MaxMessageHeader {
		raw, _ = json.Marshal(map[string]json.RawMessage{filter.HeaderOnlyChannel: only}) // a string always marshals
	}
	return raw
}

// quoted is a string in JSON.
func quoted(text string) json.RawMessage {
	raw, _ := json.Marshal(text) // a string always marshals
	return raw
}
