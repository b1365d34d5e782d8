package listen

import (
	"net"
	"net/netip"
	"sync"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

type verdict int

const (
	admitted verdict = iota
	overTotal
	overAddress
)

// anonymousShare reserves one in this many seats for clients that log in. The rest may go to clients that have rights
// without a login.
const anonymousShare = 10

// seats counts the open connections of one kind, in total and per address. A connection above a limit is refused
// instead of waiting: its client can connect to another broker.
//
// Where clients log in, a connection occupies one of a few waiting seats until its login. It is closed when the waiting
// seats, or all seats, are taken (limits.Crowd). So clients without a login, from however many addresses, neither lock
// others out nor displace a client that has logged in.
type seats struct {
	max, perAddress int // 0 = no limit
	waiting         int // connections before their login; 0 = no limit
	// ready reports whether clients can log in; nil = yes. Before that the number of waiting clients has no limit.
	ready func() bool
	// open reports whether every client may do everything, without a login; nil = yes.
	open func() bool
	// displaced counts a displaced connection.
	displaced func()

	mu        sync.Mutex
	all       int
	anonymous int
	of        map[netip.Prefix]int // as many entries as open connections at most
	strangers limits.Crowd[*seat]
}

type seat struct {
	seats *seats
	conn  net.Conn
	from  netip.Prefix
	// waits is nil when the client has logged in or needs no login, and when the seat is left.
	waits     *limits.Member[*seat]
	anonymous bool
	left      bool
}

func newSeats(total, perAddress, waiting int, ready, open func() bool, displaced func()) *seats {
	return &seats{max: total, perAddress: perAddress, waiting: waiting, ready: ready, open: open, displaced: displaced, of: map[netip.Prefix]int{}}
}

// take gives a connection a seat if it is within the limits. leave must follow then.
func (s *seats) take(conn net.Conn) (*seat, verdict) {
	t := &seat{seats: s, conn: conn, from: limits.Network(conn)}
	waits := s.open != nil && !s.open()
	few := waits && s.waiting > 0 && (s.ready == nil || s.ready())
	out, v := s.seat(t, waits, few)
	if out != nil {
		s.displaced()
		_ = out.conn.Close() // its goroutine notices
	}
	return t, v
}

// seat counts a connection. out is the connection to close in exchange; nil: none. few: the number of waiting
// connections is limited.
func (s *seats) seat(t *seat, waits, few bool) (out *seat, v verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waits { // first, because the newcomer counts for its network
		t.waits = s.strangers.Add(t.from, t)
	}
	var goes *limits.Member[*seat]
	switch {
	case s.perAddress > 0 && t.from.IsValid() && s.of[t.from] >= s.perAddress:
		goes, v = s.strangers.Oldest(t.from), overAddress
	case s.max > 0 && s.all >= s.max:
		goes, v = s.strangers.Next(), overTotal
	case few && s.strangers.Len() > s.waiting:
		goes = s.strangers.Next()
	}
	switch {
	case goes != nil && goes != t.waits:
		out = goes.Value
		out.leaveLocked()
	case v != admitted:
		if waits {
			s.strangers.Remove(t.waits)
		}
		return nil, v
	}
	s.all++
	if t.from.IsValid() {
		s.of[t.from]++
	}
	return out, admitted
}

// admit moves a connection out of the waiting seats: its client has logged in, or has rights without a login. It
// returns false if the connection was displaced, or if too many clients have rights without a login. A second call
// changes nothing, unless the client has logged in since the first.
func (t *seat) admit(loggedIn bool) bool {
	s := t.seats
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t.left:
		return false
	case t.waits == nil && (!t.anonymous || !loggedIn):
		return true
	case t.waits != nil && !loggedIn && s.max > 0 && s.anonymous >= s.max-max(s.max/anonymousShare, 1):
		return false
	}
	if t.waits != nil {
		s.strangers.Remove(t.waits)
		t.waits = nil
	}
	switch {
	case !loggedIn:
		t.anonymous = true
		s.anonymous++
	case t.anonymous:
		t.anonymous = false
		s.anonymous--
	}
	return true
}

// leave frees the seat. A second call changes nothing.
func (t *seat) leave() {
	t.seats.mu.Lock()
	defer t.seats.mu.Unlock()
	t.leaveLocked()
}

func (t *seat) leaveLocked() {
	s := t.seats
	if t.left {
		return
	}
	t.left = true
	s.all--
	if s.of[t.from]--; s.of[t.from] <= 0 {
		delete(s.of, t.from)
	}
	if t.waits != nil {
		s.strangers.Remove(t.waits)
		t.waits = nil
	}
	if t.anonymous {
		s.anonymous--
	}
}

func (s *seats) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}
