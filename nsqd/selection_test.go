package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// notForC are headers of messages that channel c does not deliver, with its policy.
var notForC = map[string]struct {
	header string
	policy Policy
}{
	"another channel's":          {`{"##only_channel":"other"}`, Policy{}},
	"another channel's, escaped": {`{"\u0023#only_channel":"othe\u0072"}`, Policy{}},
	"another channel's, last":    {`{"##only_channel":"c","##only_channel":"other"}`, Policy{}},
	"rejected by the filter":     {`{"kind":"b"}`, Policy{Filter: "header:kind=a"}},
	"both":                       {`{"kind":"b","##only_channel":"other"}`, Policy{Filter: "header:kind=a"}},
	"accepted by the filter":     {`{"kind":"a","##only_channel":"other"}`, Policy{Filter: "header:kind=a"}},
}

// forEachNotForC runs a test with a message that is not for channel c, delayed by delayNS.
func forEachNotForC(t *testing.T, delayNS int64, test func(t *testing.T, r *rig, c *Channel)) {
	for name, x := range notForC {
		t.Run(name, func(t *testing.T) {
			r := newRig(Options{})
			c := r.channel(t, "c", ChannelOptions{})
			c.SetPolicy(x.policy)
			m := queue.Message{Time: r.clock.now(), Header: []byte(x.header), Body: []byte("m")}
			if delayNS > 0 {
				m.DeliverAt = m.Time + delayNS
			}
			r.log.publish(m)
			r.Advance(r.log.Committed())
			test(t, r, c)
		})
	}
}

// requirePassed: the consumer of the channel receives nothing, and the message is finished and counted.
func requirePassed(t *testing.T, r *rig, c *Channel) {
	t.Helper()
	require.Empty(t, c.Pull(subscribe(t, c), 10, nil))
	requireExact(t, r.Partition, c)
	require.EqualValues(t, 1, c.Finished())
	require.Equal(t, 1, filtered(r.Partition, c))
}

// TestMessagesThatAreNotForAChannel pass it by on every road.
func TestMessagesThatAreNotForAChannel(t *testing.T) {
	t.Run("live", func(t *testing.T) { forEachNotForC(t, 0, requirePassed) })
	t.Run("delayed", func(t *testing.T) { forEachNotForC(t, 1000*nsPerMS, requirePassed) })
	t.Run("prescan", func(t *testing.T) {
		forEachNotForC(t, 1000*nsPerMS, func(t *testing.T, r *rig, c *Channel) {
			require.Zero(t, countsOf(r.Partition, c).deferred)
			require.Empty(t, c.Deferred(10))
			r.tick(1000)
			requirePassed(t, r, c)
		})
	})
	t.Run("cancel", func(t *testing.T) {
		forEachNotForC(t, 1000*nsPerMS, func(t *testing.T, r *rig, c *Channel) {
			n, err := r.CancelDeferred(t.Context(), "c", []ident.Sequence{0})
			require.NoError(t, err)
			require.Zero(t, n, "it is not a delayed message of this channel")
			r.tick(1000)
			requirePassed(t, r, c)
		})
	})
	t.Run("redelivery", func(t *testing.T) { // a state that has it in the deferred set
		forEachNotForC(t, 0, func(t *testing.T, r *rig, c *Channel) {
			c.cursor.Requeue(0, 1)
			requirePassed(t, r, c)
		})
	})
	t.Run("relocated", func(t *testing.T) {
		forEachNotForC(t, 0, func(t *testing.T, r *rig, c *Channel) {
			c.cursor.Requeue(0, 0)
			r.log.relocated = map[ident.Offset][]ident.Sequence{500: {0}}
			require.NoError(t, r.Relocate(t.Context(), 500, []ident.Sequence{0}, false))
			r.log.start = 1
			requirePassed(t, r, c)
		})
	})
	t.Run("reap", func(t *testing.T) {
		forEachNotForC(t, 0, func(t *testing.T, r *rig, c *Channel) {
			r.Reap()
			require.EqualValues(t, 1, r.lowWater())
			require.Zero(t, countsOf(r.Partition, c).depth)
		})
	})
	t.Run("trace", func(t *testing.T) {
		forEachNotForC(t, 0, func(t *testing.T, r *rig, _ *Channel) {
			require.Equal(t, []api.ChannelTrace{{Channel: "c", State: api.TraceSkipped}}, r.Trace(0, r.log.messages[0].Header))
		})
	})
}
