package nsqd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A message that comes again and cannot be read holds an ordered channel up: the
// next one, which is in memory, must not overtake it.
func TestUnreadableMessageKeepsTheOrder(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(2)
	got := c.Pull(s, 1, nil)
	require.Len(t, got, 1)
	require.NoError(t, c.Requeue(s, got[0].Message.Seq, 0))
	r.log.fail = errors.New("bad sector")
	require.Empty(t, c.Pull(s, 1, nil))
	require.Empty(t, c.Pull(s, 1, nil))
	r.log.fail = nil
	r.clock.add(stallNS)
	r.Expire(r.clock.now())
	again := c.Pull(s, 1, nil)
	require.Len(t, again, 1)
	require.Equal(t, got[0].Message.Seq, again[0].Message.Seq)
}
