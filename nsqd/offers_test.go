package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Deliveries that a leaving client returns go to the waiting subscribers.
func TestReturnedDeliveriesWakeOthers(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "ch", ChannelOptions{})
	leaves, waits := subscribe(t, c), subscribe(t, c)
	<-waits.Wake
	r.publishN(1)
	require.Len(t, c.Pull(leaves, 1, nil), 1)
	require.Empty(t, c.Pull(waits, 1, nil))
	c.Detach(leaves, true)
	require.NotEmpty(t, waits.Wake)
	require.Len(t, c.Pull(waits, 1, nil), 1)
}

// An offer ends when its subscriber pulls, so relays get the rest.
func TestOfferEndsWithItsPull(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "ch", ChannelOptions{})
	direct, relay := subscribe(t, c), &Subscriber{}
	require.NoError(t, c.Attach(relay))
	require.Empty(t, c.Pull(direct, 3, nil))
	r.publishN(3) // offered
	require.Len(t, c.Pull(direct, 3, nil), 3)
	r.publishN(3)
	require.Len(t, c.Pull(relay, 3, nil), 3)

	require.Empty(t, c.Pull(direct, 3, nil))
	r.publishN(3) // offered to a subscriber that leaves
	c.Detach(direct, true)
	require.Len(t, c.Pull(relay, 9, nil), 6)
}
