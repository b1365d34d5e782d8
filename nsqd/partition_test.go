package nsqd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every new deadline lowers Due at once, without a Pull.
func TestDueIsSetAtOnce(t *testing.T) {
	due := func(t *testing.T, r *rig, ms int64) {
		t.Helper()
		require.LessOrEqual(t, r.Due(), r.clock.now()+ms*nsPerMS)
	}
	one := func(t *testing.T) (*rig, *Channel, *Subscriber) {
		r := newRig(Options{MsgTimeoutMS: 10_000})
		c := r.channel(t, "ch", ChannelOptions{})
		s := subscribe(t, c)
		r.publishN(2)
		require.Len(t, c.Pull(s, 1, nil), 1)
		return r, c, s
	}
	t.Run("requeued", func(t *testing.T) {
		r, c, s := one(t)
		require.NoError(t, c.Requeue(s, c.of(0, 0), 200))
		due(t, r, 200)
	})
	t.Run("reclaimed", func(t *testing.T) {
		r, _, _ := one(t)
		n := r.failover()
		c, _ := n.Channel("ch")
		require.Empty(t, c.Reclaim(subscribe(t, c), []Receipt{{Sequence: 0, Attempts: 1}}))
		due(t, n, 10_000)
	})
	t.Run("handed over", func(t *testing.T) {
		r, c, s := one(t)
		r.clock.add(9_000 * nsPerMS)
		next := subscribe(t, c)
		require.Empty(t, c.TransferDeliveries(s, next, []Receipt{c.of(0, 1)}))
		r.tick(2_000)
		require.Equal(t, 1, c.InFlight(next), "its timeout starts again")
	})
	t.Run("cannot be read", func(t *testing.T) {
		r, c, s := one(t)
		require.Len(t, c.Pull(s, 1, nil), 1)
		r.Expire(r.clock.now())
		r.log.fail = errors.New("no disk")
		r.publishN(1)
		require.Empty(t, c.Pull(s, 1, nil))
		due(t, r, 100)
		r.Expire(r.clock.now())
		due(t, r, 100)
	})
}

// A leader that has reached the metadata but never its replicas delivers on no ordered channel.
func TestOrderedChannelIsFencedFromTheFirst(t *testing.T) {
	r := newRig(Options{})
	strict, plain := r.channel(t, "strict", ChannelOptions{Ordered: true}), r.channel(t, "plain", ChannelOptions{})
	r.publishN(1)
	r.ExtendUnordered(r.clock.now() + 1000*nsPerMS)
	r.clock.add(1001 * nsPerMS)
	r.ExtendUnordered(r.clock.now() + 1000*nsPerMS)
	require.Len(t, plain.Pull(subscribe(t, plain), 1, nil), 1)
	require.Empty(t, strict.Pull(subscribe(t, strict), 1, nil))
}
