package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func TestExpiredMessagesAreFinishedInsteadOfDelivered(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	put := func(body, header string, delayMS int64) {
		m := queue.Message{Time: r.clock.now(), Body: []byte(body), Header: []byte(header)}
		if delayMS > 0 {
			m.DeliverAt = m.Time + delayMS*nsPerMS
		}
		r.log.publish(m)
	}
	put("short", `{"##ttl_ms":100}`, 0)
	put("none", ``, 0)
	put("later", `{"##ttl_ms":100}`, 500)
	put("bad", `{"##ttl_ms":"x"}`, 0)
	r.Advance(r.log.Committed())
	r.tick(100)
	require.Equal(t, []string{"none", "bad"}, bodies(c.Pull(s, 5, nil)))
	requireExact(t, r.Partition, c)
	r.tick(499)
	d := c.Pull(s, 5, nil)
	require.Equal(t, []string{"later"}, bodies(d), "its time begins when it is due")
	require.NoError(t, c.Requeue(s, c.of(d[0].Message.Seq, 0), 0))
	r.tick(1)
	require.Empty(t, c.Pull(s, 5, nil))
	requireExact(t, r.Partition, c)

	r.SetTTL(1000)
	r.publish("young")
	r.tick(999)
	require.Equal(t, []string{"young"}, bodies(c.Pull(s, 5, nil)))
	r.publish("old")
	put("longer", `{"##ttl_ms":100000}`, 0)
	r.Advance(r.log.Committed())
	r.tick(1000)
	require.Empty(t, c.Pull(s, 5, nil), "the shorter limit counts")
	requireExact(t, r.Partition, c)
	<-s.Wake
	r.SetTTL(0)
	r.publish("for ever")
	r.tick(1 << 30)
	require.Contains(t, bodies(c.Pull(s, 5, nil)), "for ever")
}

// TestExpiredMessagesLeaveWithoutConsumers: messages without a consumer expire too, or they would
// hold the log forever.
func TestExpiredMessagesLeaveWithoutConsumers(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	r.SetTTL(1000)
	r.publishN(3 * readAheadMessages)
	r.postpone(5000*nsPerMS, "later")
	r.tick(500)
	r.publish("young")
	r.Reap()
	require.Equal(t, counts{depth: 3*readAheadMessages + 2, published: 3*readAheadMessages + 2}, rawCounts(c))
	reads := r.log.reads
	r.Reap()
	require.Equal(t, reads, r.log.reads, "the first message is known to live")
	require.Zero(t, cap(c.reader.ahead.messages), "no subscriber waits for the messages that were read")

	r.tick(500)
	r.Reap()
	require.Equal(t, counts{depth: 1, deferred: 1, finished: 3 * readAheadMessages, published: 3*readAheadMessages + 2}, rawCounts(c))
	require.EqualValues(t, 3*readAheadMessages, r.lowWater(), "the delayed one")
	r.tick(4500) // "later" has been due for half a second
	r.Reap()
	require.Equal(t, 1, rawCounts(c).depth)
	r.tick(1000)
	r.Reap()
	require.Equal(t, 3*readAheadMessages+2, rawCounts(c).finished)
	require.EqualValues(t, 3*readAheadMessages+2, r.lowWater())
	r.Flush()
	require.NotEmpty(t, r.rep.deltas)
}

// TestReapBesideConsumers: Reap takes no message from a consumer, and finishes none twice.
func TestReapBesideConsumers(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	r.publishN(10)
	d := c.Pull(s, 2, nil) // the others are read ahead
	require.NoError(t, c.Requeue(s, c.of(d[1].Message.Seq, 0), 0))
	r.SetTTL(100)
	r.tick(100)
	r.Reap()
	require.Equal(t, counts{inFlight: 1, finished: 9, published: 10}, rawCounts(c))
	require.Empty(t, c.Pull(s, 5, nil))
	require.NoError(t, c.Finish(s, c.of(d[0].Message.Seq, 1)))
	require.EqualValues(t, 10, c.cursor.Confirmed())
	r.publishN(1)
	<-s.Wake
	require.Len(t, c.Pull(s, 5, nil), 1)
}

// rawCounts is countsOf without a prescan.
func rawCounts(c *Channel) counts {
	s := c.stats(false, &mergedLatency{})
	return counts{int(s.Depth), s.InFlightCount, s.DeferredCount, int(c.Finished()), int(s.MessageCount)}
}
