package nsqd

import (
	"math/rand/v2"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// verdict is whether a message may be delivered now and, if not, why.
type verdict uint8

const (
	deliver verdict = iota

	// The channel delivers no message now, and does not finish any by itself:
	notLeading    // this broker does not lead the partition
	policyMissing // the broker has not set the channel's policy yet, so a filter would be missing
	fenced        // this leader has lost contact with its replicas and may have been replaced

	// The channel delivers no message now:
	channelPaused
	blocked     // an ordered channel waits for an earlier message (blockedLocked)
	uncommitted // at or above the committed end, or published since the topic was paused

	// The message is skipped, and the channel continues with the next one:
	settled  // finished, or in the deferred set
	dead     // it has used up its attempts and goes to the dead letters
	rejected // it is for another channel, or the filter rejects it
	expired  // it has outlived its time to live
	sampled  // the subscriber's sample rate leaves it out
)

// stopsChannel reports whether the verdict holds for every message of the channel.
func (v verdict) stopsChannel() bool { return v >= notLeading && v <= uncommitted }

// stopsReap reports whether Reap must also wait.
func (v verdict) stopsReap() bool { return v >= notLeading && v <= fenced }

// verdictLocked decides whether the first message of a window may be delivered to s now; without a window, whether any
// message may be.
//
// A delayed message enters a window only when it is due (deferredSet.Expire). availableLocked also takes into account
// the pause after a failed read and the paced catch-up, and Pull the subscriber's credit.
func (c *Channel) verdictLocked(s *Subscriber, w *window, now int64) verdict {
	switch {
	case !c.serving.leads:
		return notLeading
	case c.policy.missing:
		return policyMissing
	case c.fencedLocked(now):
		return fenced
	case c.paused:
		return channelPaused
	case c.blockedLocked():
		return blocked
	case w == nil:
		return deliver
	}
	m := w.front()
	again := w == &c.reader.redelivery
	switch {
	case m.Seq >= c.limit:
		return uncommitted
	case !again && c.cursor.Settled(m.Seq):
		return settled
	case again && c.usedUpLocked(m.Seq):
		return dead
	case w.rejects(m.Seq):
		return rejected
	case c.p.outlived(lifeOf(m), now):
		return expired
	case s.SampleRate > 0 && rand.Int32N(100) > s.SampleRate:
		return sampled
	}
	return deliver
}

func (c *Channel) fencedLocked(now int64) bool {
	fence := &c.p.fences.all
	if c.order.on {
		fence = &c.p.fences.ordered
	}
	until := max(fence.Load(), c.p.o.Fence.Load())
	return until != 0 && now >= until
}

// usedUpLocked reports whether a deferred message has used up the attempts of the policy.
func (c *Channel) usedUpLocked(seq ident.Sequence) bool {
	if c.policy.MaxAttempts == 0 {
		return false
	}
	e, _ := c.cursor.Deferred.Get(seq)
	return c.policy.isDead(e.Attempts())
}

// life holds the data of one message that determine its expiry.
type life struct {
	seq   ident.Sequence
	since int64 // unix ns; 0: unknown
	own   int64 // its own limit in ms; 0: none
}

func lifeOf(m *queue.Message) life {
	return life{seq: m.Seq, since: max(m.Time, m.DeliverAt), own: m.TTLMS()}
}

// SetTTL limits the life of all messages in ms since they were published or, with a delay, due; 0: no limit. An expired
// message is not delivered but finished, by Reap at the latest, or it goes to the dead letters.
func (p *Partition) SetTTL(ms int64) { p.ttl.Store(ms) }

func (p *Partition) outlived(l life, now int64) bool { return l.over(p.ttl.Load(), now) }

// Outlived reports whether a message has expired at a time (unix ns), if its topic limits the life of messages to
// ttl ms; 0: no limit.
func Outlived(m *queue.Message, ttl, now int64) bool { return lifeOf(m).over(ttl, now) }

func (l life) over(ttl, now int64) bool {
	if l.own > 0 && (ttl == 0 || l.own < ttl) {
		ttl = l.own
	}
	return ttl > 0 && now-l.since >= ttl*nsPerMS
}

// availableLocked is the number of messages that may be delivered now.
func (c *Channel) availableLocked(now int64) int {
	if now < c.reader.retryAt || c.verdictLocked(nil, nil, now) != deliver {
		return 0
	}
	if c.order.on {
		return int(min(c.depthLocked(), 1))
	}
	again := c.cursor.Deferred.Ready()
	return again + c.quotaLocked(int(c.depthLocked())-again)
}
