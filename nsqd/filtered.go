package nsqd

import (
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/filter"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The selection of a channel decides about a message when the channel reads it: before its first delivery, and again
// before each redelivery. A message that is for another channel, or that the filter rejects, is finished like one that a
// consumer has finished: the finish is replicated, and a seek back repeats the message. The selection runs without the
// channel's lock, because a regular expression may take milliseconds for a window of messages.

// skipMessages bounds the messages that one Pull or Reap reads without finding one to deliver, because the caller of Pull
// sends its client no heartbeats during that time.
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
