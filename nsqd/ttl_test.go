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
	require.NoError(t, c.Requeue(s, d[0].Message.Seq, 0))
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
