package limits

import (
	"container/list"
	"net"
	"net/netip"
)

// Crowd holds the connections of a port before their login. When there are too many, it chooses the one to close: the
// oldest of the network that has the most. So a flood displaces its own connections, as long as it comes from fewer
// networks than there are seats. Beyond that, the oldest connection of all is closed, and a client that logs in quickly
// is still admitted. Each operation takes constant time. The zero value is empty; the caller has a lock.
type Crowd[T any] struct {
	members int
	of      map[netip.Prefix]*network[T]
	ranks   []*list.List // ranks[n]: the networks that have n members, in the order in which they came to that number; the last one is not empty, unless the crowd is
}

type network[T any] struct {
	from    netip.Prefix
	members list.List     // of *Member[T], the oldest first
	place   *list.Element // in its rank
}

// Member is one connection.
type Member[T any] struct {
	Value T
	of    *network[T]
	place *list.Element
}

// Len is the number of members.
func (c *Crowd[T]) Len() int { return c.members }

// Add adds a member of a network.
func (c *Crowd[T]) Add(from netip.Prefix, value T) *Member[T] {
	if c.of == nil {
		c.of = map[netip.Prefix]*network[T]{}
	}
	n := c.of[from]
	if n == nil {
		n = &network[T]{from: from}
		c.of[from] = n
	}
	c.leaveRank(n)
	m := &Member[T]{Value: value, of: n}
	m.place = n.members.PushBack(m)
	c.members++
	c.enterRank(n)
	return m
}

// Remove removes a member. It is called once.
func (c *Crowd[T]) Remove(m *Member[T]) {
	n := m.of
	c.leaveRank(n)
	n.members.Remove(m.place)
	c.members--
	if n.members.Len() == 0 {
		delete(c.of, n.from)
	} else {
		c.enterRank(n)
	}
	if last := len(c.ranks) - 1; c.ranks[last].Len() == 0 { // the network was the largest, and now has a lower rank or is gone
		c.ranks = c.ranks[:last]
	}
}

func (c *Crowd[T]) leaveRank(n *network[T]) {
	if n.place != nil {
		c.ranks[n.members.Len()].Remove(n.place)
		n.place = nil
	}
}

func (c *Crowd[T]) enterRank(n *network[T]) {
	for len(c.ranks) <= n.members.Len() {
		c.ranks = append(c.ranks, list.New())
	}
	n.place = c.ranks[n.members.Len()].PushBack(n)
}

// Next is the member that is removed when there are too many, or nil.
func (c *Crowd[T]) Next() *Member[T] {
	if c.members == 0 {
		return nil
	}
	return c.ranks[len(c.ranks)-1].Front().Value.(*network[T]).oldest()
}

// Oldest is the oldest member of a network, or nil.
func (c *Crowd[T]) Oldest(from netip.Prefix) *Member[T] {
	if n := c.of[from]; n != nil {
		return n.oldest()
	}
	return nil
}

func (n *network[T]) oldest() *Member[T] { return n.members.Front().Value.(*Member[T]) }

// Network is the network of a connection's other side. It is not valid for a unix socket.
func Network(conn net.Conn) netip.Prefix {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return NetworkOf(tcp.AddrPort().Addr())
}

// NetworkOf is the unit of limits per address: an IPv4 address, or an IPv6 /64, which one customer has as a whole.
func NetworkOf(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	prefix, _ := ip.Prefix(min(ip.BitLen(), 64)) // invalid for an invalid address
	return prefix
}
