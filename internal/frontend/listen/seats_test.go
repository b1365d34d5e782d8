package listen

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// pretended is a connection from an address; "" = of a unix socket.
type pretended struct {
	net.Conn
	from   string
	closed bool
}

func (c *pretended) Close() error { c.closed = true; return nil }

func (c *pretended) RemoteAddr() net.Addr {
	if c.from == "" {
		return &net.UnixAddr{Name: "@", Net: "unix"}
	}
	return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1}
}

func enter(s *seats, from string) (*pretended, *seat, verdict) {
	c := &pretended{from: from}
	t, v := s.take(c)
	return c, t, v
}

// TestStrangersLockNobodyOut: strangers of any number of addresses, who keep their connections, keep no client out
// that logs in, and displace none that has.
func TestStrangersLockNobodyOut(t *testing.T) {
	for _, addresses := range []int{1, 2, 20, 200, 5000} {
		t.Run(fmt.Sprint(addresses), func(t *testing.T) {
			displaced := 0
			s := newSeats(400, 360, 100, nil, func() bool { return false }, func() { displaced++ })
			var strangers, clients []*pretended
			next := 0
			flood := func(n int) {
				for range n {
					next++
					c, _, v := enter(s, fmt.Sprintf("10.%d.%d.%d", next%addresses/62500, next%addresses/250%250, 1+next%addresses%250))
					require.Equal(t, admitted, v)
					strangers = append(strangers, c)
				}
			}
			flood(10_000)
			for range 360 {
				c, seat, v := enter(s, "192.0.2.7")
				require.Equal(t, admitted, v)
				flood(20) // until its login
				require.False(t, c.closed)
				require.True(t, seat.admit(true))
				clients = append(clients, c)
			}
			flood(10_000)
			for _, c := range clients {
				require.False(t, c.closed)
			}
			open := 0
			for _, c := range strangers {
				if !c.closed {
					open++
				}
			}
			require.Equal(t, 40, open, "what the clients leave")
			require.Equal(t, len(strangers)-open, displaced)
			require.Equal(t, 400, s.count())
			if addresses > 1 {
				_, _, v := enter(s, "192.0.2.7")
				require.Equal(t, overAddress, v)
			}
		})
	}
}

// TestSeatsOfClients: clients without a login leave seats for clients that log in; and if all seats
// have clients, a further one is refused.
func TestSeatsOfClients(t *testing.T) {
	var open atomic.Bool
	s := newSeats(20, 0, 5, nil, open.Load, func() {})
	var all []*seat
	for n := range 18 {
		_, seat, v := enter(s, "")
		require.Equal(t, admitted, v)
		require.True(t, seat.admit(false), n)
		require.True(t, seat.admit(false))
		all = append(all, seat)
	}
	late, seat, v := enter(s, "192.0.2.1")
	require.Equal(t, admitted, v)
	require.False(t, seat.admit(false), "nine tenths have rights without a login")
	require.True(t, seat.admit(true))
	require.True(t, all[0].admit(true), "it logs in later")
	require.Equal(t, 17, s.anonymous)
	_, seat, v = enter(s, "192.0.2.2")
	require.Equal(t, admitted, v)
	require.True(t, seat.admit(false))
	_, _, v = enter(s, "192.0.2.3")
	require.Equal(t, overTotal, v, "all seats have clients")
	require.Equal(t, 0, s.strangers.Len())
	require.False(t, late.closed)
	for _, seat := range all {
		seat.leave()
		seat.leave()
		require.False(t, seat.admit(true), "it is left")
	}
	require.Equal(t, []int{2, 1}, []int{s.count(), s.anonymous})

	open.Store(true)
	for range 18 {
		c, _, v := enter(s, "192.0.2.4")
		require.Equal(t, admitted, v)
		defer func() { require.False(t, c.closed) }()
	}
	_, _, v = enter(s, "192.0.2.5")
	require.Equal(t, overTotal, v, "without a login everybody is a client")
}

// TestSeatsBeforeTheUsersAreRead: while a broker starts, no client can log in, and all of them may have connected again at the same
// moment. They have all seats.
func TestSeatsBeforeTheUsersAreRead(t *testing.T) {
	var ready atomic.Bool
	displaced := 0
	s := newSeats(400, 360, 100, ready.Load, func() bool { return false }, func() { displaced++ })
	var seats []*seat
	for range 360 {
		_, seat, v := enter(s, "192.0.2.7")
		require.Equal(t, admitted, v)
		seats = append(seats, seat)
	}
	require.Zero(t, displaced)
	ready.Store(true)
	for _, seat := range seats[1:] {
		require.True(t, seat.admit(true))
	}
	stranger, _, v := enter(s, "192.0.2.8")
	require.Equal(t, admitted, v)
	require.False(t, stranger.closed)
	for range 100 {
		_, _, _ = enter(s, "192.0.2.8")
	}
	require.True(t, stranger.closed)
	require.Equal(t, 400, s.count())
}
