package server

import (
	"net"
	"net/netip"
	"sync"
)

// verdict says how a new connection is treated.
type verdict int

const (
	admitted verdict = iota
	overTotal
	overAddress
)

// seats counts the open connections of one kind, in total and of each address. A connection
// above a limit is refused instead of waiting: its client can connect to another broker.
type seats struct {
	max, perAddress int // 0 = no limit
	mu              sync.Mutex
	open            int
	of              map[netip.Prefix]int // as many entries as open connections at most
}

func newSeats(total, perAddress int) *seats {
	return &seats{max: total, perAddress: perAddress, of: map[netip.Prefix]int{}}
}

// take counts a connection if it is within the limits. leave must follow then.
func (s *seats) take(from netip.Prefix) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.max > 0 && s.open >= s.max:
		return overTotal
	case s.perAddress > 0 && from.IsValid() && s.of[from] >= s.perAddress:
		return overAddress
	}
	s.open++
	if from.IsValid() {
		s.of[from]++
	}
	return admitted
}

func (s *seats) leave(from netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.of[from]--; s.of[from] <= 0 {
		delete(s.of, from)
	}
}

func (s *seats) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// networkOf is the unit of the limit per address: an IPv4 address, or an IPv6 /64, which one
// customer has as a whole. It is not valid for a unix socket, which has no limit per address.
func networkOf(conn net.Conn) netip.Prefix {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
