package chaos

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestChaosSlowWay: a connection that exists becomes slow, and quick again.
func TestChaosSlowWay(t *testing.T) {
	Inside(t)
	const delay = 200 * time.Millisecond
	n := newNetwork(t, 2)
	var server net.Listener
	var client net.Conn
	n.hosts[0].do(t, func() { server = listen(t, address(rpcLane, 1)+":0") })
	defer server.Close()
	n.hosts[1].do(t, func() {
		var err error
		client, err = net.Dial("tcp", server.Addr().String())
		require.NoError(t, err)
	})
	defer client.Close()
	echo, err := server.Accept()
	require.NoError(t, err)
	defer echo.Close()
	roundTrip := func() time.Duration {
		began, b := time.Now(), make([]byte, 1)
		for _, hop := range [][2]net.Conn{{client, echo}, {echo, client}} {
			_, err := hop[0].Write(b)
			require.NoError(t, err)
			_, err = hop[1].Read(b)
			require.NoError(t, err)
		}
		return time.Since(began)
	}
	quick := func() bool { return roundTrip() < delay }
	_, ok := within(readyLimit, quick)
	require.True(t, ok)
	heal := n.slow([]int{1}, []int{2}, []lane{rpcLane}, delay)
	require.GreaterOrEqual(t, roundTrip(), 2*delay)
	heal()
	_, ok = within(readyLimit, quick)
	require.True(t, ok, "it stays slow")
}

func listen(t *testing.T, address string) net.Listener {
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	return l
}
