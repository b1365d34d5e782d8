package peertls_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn
	from   string
	closed atomic.Bool
}

func (c *fakeConn) Close() error         { c.closed.Store(true); return nil }
func (c *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1} }

// enter makes n connections of an address.
func enter(g *peertls.Gate, from string, n int) (conns []*fakeConn, seats []*peertls.Seat) {
	for range n {
		c := &fakeConn{from: from}
		conns = append(conns, c)
		seats = append(seats, g.Enter(c))
	}
	return conns, seats
}

func open(conns []*fakeConn) (n int) {
	for _, c := range conns {
		if !c.closed.Load() {
			n++
		}
	}
	return n
}

// TestAFloodDisplacesItself: beyond the limits the oldest waiting connection of the network with the most goes. Connections of brokers stay, and a broker that is quick gets in.
func TestAFloodDisplacesItself(t *testing.T) {
	g := peertls.NewGate(peertls.Limits{Admitted: 2, Waiting: 8})
	brokers, seats := enter(g, "10.0.0.1", 2)
	require.True(t, seats[0].Admit())
	require.True(t, seats[1].Admit())
	require.True(t, seats[1].Admit(), "a second call changes nothing")

	others, _ := enter(g, "10.0.0.2", 2)
	flood, _ := enter(g, "10.6.6.6", 100)
	require.Equal(t, 6, open(flood))
	require.Equal(t, 2, open(others), "one address does not displace another")
	require.False(t, flood[99].closed.Load(), "the newest stays")
	second, _ := enter(g, "10.7.7.7", 100)
	require.Equal(t, []int{3, 2, 3}, []int{open(flood), open(others), open(second)}, "nor do two")
	sameNetwork, _ := enter(g, "2001:db8::1", 1)
	for n := range 100 {
		enter(g, fmt.Sprintf("2001:db8::2:%x", n), 1)
	}
	require.Equal(t, []int{2, 2, 2, 0}, []int{open(flood), open(others), open(second), open(sameNetwork)}, "a network of IPv6 is one address")
	require.Equal(t, 8, g.Counts().Waiting)
	require.Equal(t, 2, open(brokers))
	require.Equal(t, peertls.Counts{Admitted: 2, Waiting: 8, Displaced: 295}, g.Counts())

	late, lateSeats := enter(g, "10.0.0.1", 1)
	require.False(t, lateSeats[0].Admit(), "too many brokers")
	require.False(t, late[0].closed.Load(), "its goroutine closes it")
	seats[0].Leave()
	seats[0].Leave()
	require.True(t, lateSeats[0].Admit())
	require.Equal(t, 2, g.Counts().Admitted)
	require.EqualValues(t, 1, g.Counts().Refused)
}

// TestADisplacedConnectionIsNotAdmitted: its handshake may end at the same moment.
func TestADisplacedConnectionIsNotAdmitted(t *testing.T) {
	g := peertls.NewGate(peertls.Limits{Admitted: 10, Waiting: 1})
	conns, seats := enter(g, "10.0.0.1", 2)
	require.True(t, conns[0].closed.Load())
	require.False(t, seats[0].Admit())
	require.True(t, seats[1].Admit())
	for _, s := range seats {
		s.Leave()
	}
	require.Equal(t, peertls.Counts{Displaced: 1}, g.Counts())
}

// TestAListenerGivesSeats: a connection leaves its seat with its Close.
func TestAListenerGivesSeats(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := peertls.NewGate(peertls.Limits{Admitted: 4, Waiting: 4})
	l := peertls.NewListener(raw, g)
	defer l.Close()
	client, err := net.Dial("tcp", raw.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	c, err := l.Accept()
	require.NoError(t, err)
	require.Equal(t, 1, g.Counts().Waiting)
	require.True(t, c.(*peertls.Conn).Seat.Admit())
	require.Equal(t, peertls.Counts{Admitted: 1}, g.Counts())
	require.NoError(t, c.Close())
	require.Equal(t, peertls.Counts{}, g.Counts())
	require.NoError(t, l.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}
