package nsqd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWorkNeverFalls: the counts of a process survive changes of leaders, and a snapshot of the
// state, which creates the channels again.
func TestWorkNeverFalls(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "ch", ChannelOptions{})
	s := subscribe(t, c)
	r.publishN(3)
	r.CountStored(12)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	want := Work{Messages: 3, Bytes: 12, Channels: map[string]channelWork{"ch": {Requeued: 1}}}
	require.Equal(t, want, r.Work())

	full := r.Snapshot()
	r.Unlead()
	r.log.publish(r.log.messages[0], r.log.messages[0]) // by another leader
	require.Equal(t, want, r.Work(), "the other leader's messages are its own work")
	r.Replace(full)
	r.ApplyPending()
	require.Equal(t, want, r.Work(), "the channel is a new one")

	r.Lead(2)
	require.Equal(t, want, r.Work())
	r.publishN(1)
	want.Messages = 4
	require.Equal(t, want, r.Work())
	require.EqualValues(t, 6, r.Stats("", false).MessageCount, "of all leaders")
	c, _ = r.Channel("ch")
	require.EqualValues(t, 1, c.stats(false, &mergedLatency{}).RequeueCount)

	require.NoError(t, r.DeleteChannel(t.Context(), "ch"))
	want.Channels = nil
	require.Equal(t, want, r.Work())
}

// TestLagOfAChannel: a channel lags as long as a message is neither finished nor deferred.
func TestLagOfAChannel(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "ch", ChannelOptions{})
	lag := func() (bool, int) {
		st := r.Stats("", false).Channels[0]
		return st.Lags, int(st.Oldest)
	}
	lags, _ := lag()
	require.False(t, lags)
	r.publishN(3)
	lags, oldest := lag()
	require.True(t, lags, "without a consumer")
	require.Zero(t, oldest)
	s := subscribe(t, c)
	require.Len(t, c.Pull(s, 2, nil), 2)
	lags, oldest = lag()
	require.True(t, lags, "in flight")
	require.Zero(t, oldest)
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	require.NoError(t, c.Requeue(s, c.of(1, 0), 1000))
	lags, oldest = lag()
	require.True(t, lags)
	require.Equal(t, 2, oldest, "the deferred message waits by intent")
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Finish(s, c.of(2, 1)))
	lags, _ = lag()
	require.False(t, lags)

	// The message comes back, and a consumer holds it: it is deferred, and late nonetheless.
	held := func() time.Duration { return r.Stats("", false).Channels[0].Held }
	require.Zero(t, held(), "nothing is in flight")
	r.tick(1001)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Touch(s, c.of(1, 0)))
	r.clock.add(50_000 * nsPerMS)
	lags, _ = lag()
	require.False(t, lags)
	require.Equal(t, 50*time.Second, held())
	require.NoError(t, c.Finish(s, c.of(1, 1)))
	require.Zero(t, held())
}
