package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const hourNS = 3600_000 * nsPerMS

// A consumer hangs with a message in flight while the leader's clock is set back by an hour.
func TestTimeoutAfterTheClockWasSetBack(t *testing.T) {
	r := newRig(Options{})
	r.clock.add(2 * hourNS)
	c := r.channel(t, "c", ChannelOptions{})
	s := &Subscriber{MsgTimeoutMS: 100}
	require.NoError(t, c.Attach(s))
	r.publish("a", "b")
	require.Len(t, c.Pull(s, 2, nil), 2)
	r.clock.add(-hourNS)
	r.ClockSetBack(hourNS)
	require.LessOrEqual(t, r.Due(), r.clock.now()+100*nsPerMS)
	r.tick(60)
	require.NoError(t, c.Touch(s, c.of(1, 0)))
	r.tick(60)
	require.Equal(t, 1, c.InFlight(s))
	r.tick(60)
	require.Zero(t, c.InFlight(s))
}

// The clock is set back again and again, by steps and by an hour. A message in flight comes again
// when its timeout has passed, not its timeout after the last step.
func TestTimeoutWhileTheClockIsSetBack(t *testing.T) {
	r := newRig(Options{})
	r.clock.add(9 * hourNS)
	c := r.channel(t, "c", ChannelOptions{})
	s := &Subscriber{MsgTimeoutMS: 100}
	require.NoError(t, c.Attach(s))
	r.publish("a")
	require.Len(t, c.Pull(s, 1, nil), 1)
	for range 4 {
		r.tick(20)
		require.Equal(t, 1, c.InFlight(s))
		r.clock.add(-hourNS)
		r.ClockSetBack(hourNS)
	}
	r.tick(21)
	require.Zero(t, c.InFlight(s))
}

// A leader without contact to its replicas stops delivering at the same moment, even if its clock
// is set back.
func TestFenceAfterTheClockWasSetBack(t *testing.T) {
	r := newRig(Options{})
	r.clock.add(2 * hourNS)
	ordered, unordered := r.channel(t, "o", ChannelOptions{Ordered: true}), r.channel(t, "c", ChannelOptions{})
	r.publishN(3)
	r.Extend(r.clock.now() + 100)
	r.clock.add(-hourNS)
	r.ClockSetBack(hourNS)
	for _, c := range []*Channel{ordered, unordered} {
		require.Len(t, c.Pull(subscribe(t, c), 1, nil), 1)
	}
	r.clock.add(100)
	for _, c := range []*Channel{ordered, unordered} {
		require.Empty(t, c.Pull(subscribe(t, c), 1, nil))
	}
}

// A failed message of an ordered channel waits as long as before the clock was set back, also at the next leader.
func TestRetryAfterTheClockWasSetBack(t *testing.T) {
	r := newRig(Options{})
	r.clock.add(2 * hourNS)
	c := r.channel(t, "c", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(2)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 100))
	r.Flush()
	require.False(t, r.Dirty())
	r.clock.add(-hourNS)
	r.ClockSetBack(hourNS)
	require.True(t, r.Dirty(), "the next leader has the same deadline")
	r.Flush()
	r = r.failover()
	c, _ = r.Channel("c")
	s = subscribe(t, c)
	require.Empty(t, c.Pull(s, 1, nil))
	r.tick(101)
	require.Len(t, c.Pull(s, 1, nil), 1)
}
