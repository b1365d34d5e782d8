package tcp

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// counter counts the writes that reach the socket.
type counter struct {
	net.Conn
	writes int
}

func (c *counter) Write(b []byte) (int, error) {
	c.writes++
	return len(b), nil
}

// TestUnbufferedBurstIsOneWrite: a client without an output buffer receives messages without
// delay, with as few system calls as other clients.
func TestUnbufferedBurstIsOneWrite(t *testing.T) {
	var c counter
	o := newOutput(&c, 0, &buffers{})
	o.resizeLocked(unbuffered)
	for range 3 {
		require.NoError(t, o.messageLocked(&api.Delivery{Message: queue.Message{Body: []byte("body")}}))
	}
	require.NoError(t, o.flushLocked())
	require.Equal(t, 1, c.writes)
	require.Nil(t, o.buf, "an idle connection has no buffer")

	o.resizeLocked(100)
	require.NoError(t, o.sendLocked(frameResponse, responseOK))
	require.NotNil(t, o.buf, "only buffers of the default size are shared")
}
