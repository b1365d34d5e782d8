package nsqd

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Policy says what a channel does with messages that fail. It is configuration,
// not state: the broker tells every channel that it leads. The zero value is
// NSQ's behaviour: try for ever, at once.
type Policy struct {
	// MaxAttempts: a message that was delivered so often and came back is dead:
	// it is not delivered any more, but handed to the broker (Dead). 0 = never.
	MaxAttempts uint16
	// Backoff is the least delay before a message comes again. Ordered channels
	// have none: nothing may overtake.
	Backoff Backoff
}

// Backoff is Base × Factor^(attempts−1), at most Max, and up to the share Jitter
// of that less. Base 0 = none.
type Backoff struct {
	BaseMS, MaxMS  int64
	Factor, Jitter float64
}

// delayMS is the delay after so many attempts.
func (b Backoff) delayMS(attempts uint16) int64 {
	if b.BaseMS <= 0 {
		return 0
	}
	ms := float64(b.BaseMS) * math.Pow(max(b.Factor, 1), float64(max(attempts, 1)-1))
	if b.MaxMS > 0 {
		ms = min(ms, float64(b.MaxMS))
	}
	return int64(min(ms, 1<<40) * (1 - min(max(b.Jitter, 0), 1)*rand.Float64()))
}

// burialMS is how long the broker has to move a dead message before it is handed
// out again.
const burialMS = 60_000

// SetPolicy replaces the channel's policy.
func (c *Channel) SetPolicy(p Policy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policy = p
}

func (c *Channel) diesLocked(attempts uint16) bool {
	return c.policy.MaxAttempts > 0 && attempts >= c.policy.MaxAttempts
}

// buryLocked takes a message that was put aside, and is neither ready nor in
// flight, into flight to nobody, until the broker has moved it away.
func (c *Channel) buryLocked(seq ident.Sequence, attempts uint16, now int64) {
	c.cursor.aside.reclaim(seq, attempts)
	c.flights.add(flight{
		seq: seq, sub: &c.grave, start: now, deadline: now + burialMS*nsPerMS, put: now,
		attempts: attempts, aside: true,
	})
	c.p.lower(now + burialMS*nsPerMS)
	c.dead = append(c.dead, seq)
	c.p.graves.Store(true)
	c.p.o.Wake(0)
}

// buryFrontLocked takes dead messages off the front of the ready queue.
func (c *Channel) buryFrontLocked(now int64) {
	for c.policy.MaxAttempts > 0 && c.serving {
		seq, ok := c.cursor.aside.peek()
		if !ok {
			return
		}
		e, _ := c.cursor.aside.get(seq)
		if !c.diesLocked(e.attempts()) || c.busyLocked() {
			return
		}
		c.cursor.aside.ready.pop()
		c.buryLocked(seq, e.attempts(), now)
	}
}

// Dead reports whether channels have dead messages for the broker to move. It
// resets: what is not fetched with Channel.Dead now comes again.
func (p *Partition) Dead() bool { return p.graves.Swap(false) }

// Dead gives messages that have failed too often, about pullBytes of them; none:
// there are no more. They are to be put elsewhere and then finished with Buried, or
// given back with Exhumed. Without either they come again after a while. It may
// read a disk.
func (c *Channel) Dead() (all []edge.Delivery) {
	for bytes := 0; bytes < pullBytes && len(all) < maxTaken; {
		d, ok := c.nextDead()
		if !ok {
			break
		}
		seq := d.Message.Seq
		read, err := c.p.Read(seq, 1, nil)
		if err != nil || len(read) == 0 || read[0].Seq != seq {
			c.Exhumed(seq)
			continue
		}
		read[0].Attempts = d.Message.Attempts
		d.Message = read[0]
		all = append(all, d)
		bytes += d.Message.Size()
	}
	return all
}

// nextDead takes the next dead message that nobody moves yet, without its body.
func (c *Channel) nextDead() (d edge.Delivery, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.dead) > 0 {
		seq := c.dead[0]
		c.dead = c.dead[1:]
		if f, ok := c.flights.bySeq[seq]; ok && f.sub == &c.grave && !f.moving {
			f.moving = true
			c.flights.delay(f, c.p.o.Now()+burialMS*nsPerMS)
			d = edge.Delivery{ID: ID(c.p.id, seq), Partition: c.p.id, Epoch: c.epoch}
			d.Message.Seq, d.Message.Attempts = seq, f.attempts
			return d, true
		}
	}
	return d, false
}

// hauntLocked deals with a dead message that was not moved in time.
func (c *Channel) hauntLocked(f *flight, now int64) {
	if !f.moving { // its turn has not come
		c.flights.delay(f, now+burialMS*nsPerMS)
		c.p.graves.Store(true)
		c.p.o.Wake(0)
		return
	}
	c.flights.remove(f)
	c.buryLocked(f.seq, f.attempts, now)
}

// Buried finishes a dead message: it is stored elsewhere. Errors as Finish.
func (c *Channel) Buried(seq ident.Sequence, in ident.Epoch) error {
	return c.Finish(&c.grave, seq, in)
}

// Exhumed gives a dead message back that could not be moved; it comes again.
func (c *Channel) Exhumed(seq ident.Sequence) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.flights.bySeq[seq]
	if !ok || f.sub != &c.grave {
		return
	}
	c.flights.remove(f)
	c.cursor.aside.wait(newEntry(seq, now+1000*nsPerMS, f.attempts))
	c.p.lower(now + 1000*nsPerMS)
	c.offerLocked(now) // an ordered channel is open again
}

// HeaderOnly is the header by which a message is meant for one channel: what was
// moved to a dead-letter topic goes back to the channel that it came from alone.
const HeaderOnly = "##only_channel"

// meant reports whether a message with this header is for the channel.
func (c *Channel) meant(header []byte) bool {
	if len(header) == 0 || !bytes.Contains(header, []byte(`"`+HeaderOnly+`"`)) {
		return true
	}
	var h struct {
		Only *string `json:"##only_channel"`
	}
	return json.Unmarshal(header, &h) != nil || h.Only == nil || *h.Only == c.name
}
