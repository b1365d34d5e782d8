package peertls

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

// Limits bound the connections of one port.
type Limits struct {
	// Admitted bounds the connections of brokers; further ones are refused.
	Admitted int
	// Waiting bounds the connections whose other side has not proved that it is a broker. A further one displaces one
	// of them (limits.Crowd): a broker proves it within milliseconds, the connections of a flood never do.
	Waiting int
}

// Gate counts the connections of a port.
type Gate struct {
	limits Limits
	mu     struct {
		sync.Mutex
		waiting  limits.Crowd[*Seat]
		admitted int
	}
	displaced, refused atomic.Int64
}

// NewGate returns a gate without connections; limits below one count as one.
func NewGate(l Limits) *Gate {
	l.Admitted, l.Waiting = max(l.Admitted, 1), max(l.Waiting, 1)
	return &Gate{limits: l}
}

// Seat is one connection's entry in a Gate. Leave releases it.
type Seat struct {
	gate     *Gate
	conn     net.Conn
	at       *limits.Member[*Seat] // nil: admitted, displaced or left
	admitted bool
}

// Enter gives a new connection a seat. If too many connections wait, it closes the oldest one of the
// network that has the most.
func (g *Gate) Enter(c net.Conn) *Seat {
	s := &Seat{gate: g, conn: c}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.at = g.mu.waiting.Add(limits.Network(c), s)
	if g.mu.waiting.Len() > g.limits.Waiting {
		out := g.mu.waiting.Next().Value
		out.stopWaitingLocked()
		g.displaced.Add(1)
		_ = out.conn.Close() // its goroutine detects that and leaves
	}
	return s
}

func (s *Seat) stopWaitingLocked() {
	if s.at != nil {
		s.gate.mu.waiting.Remove(s.at)
		s.at = nil
	}
}

// Admit reports whether the connection, whose other side is a broker, may stay. A second call changes nothing.
func (s *Seat) Admit() bool {
	g := s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case s.admitted:
		return true
	case s.at == nil: // displaced since
		return false
	case g.mu.admitted >= g.limits.Admitted:
		g.refused.Add(1)
		return false
	}
	s.stopWaitingLocked()
	s.admitted = true
	g.mu.admitted++
	return true
}

// Leave releases the seat. A second call changes nothing.
func (s *Seat) Leave() {
	g := s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	s.stopWaitingLocked()
	if s.admitted {
		s.admitted = false
		g.mu.admitted--
	}
}

// Counts are the counters of a gate.
type Counts struct {
	Admitted, Waiting  int   // connections now
	Displaced, Refused int64 // since the start
}

// Counts returns the numbers for metrics.
func (g *Gate) Counts() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Counts{Admitted: g.mu.admitted, Waiting: g.mu.waiting.Len(), Displaced: g.displaced.Load(), Refused: g.refused.Load()}
}

// listener gives each accepted connection a seat, until its Close.
type listener struct {
	net.Listener
	gate *Gate
}

// NewListener puts a gate in front of a listener.
func NewListener(l net.Listener, g *Gate) net.Listener { return &listener{Listener: l, gate: g} }

// Accept implements net.Listener; the connection is a *Conn.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, Seat: l.gate.Enter(c)}, nil
}

// Conn is a connection with its seat.
type Conn struct {
	net.Conn
	Seat *Seat
}

// Close leaves the seat.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.Seat.Leave()
	return err
}

const (
	// linesPerSecond bounds what a flood writes to the log.
	linesPerSecond = 5
	// shownAgain is the time after which the same reason is logged again.
	shownAgain = 30 * time.Second
	// maxReasons bounds the reasons that are remembered.
	maxReasons = 256
)

// Refusals logs why connections were refused.
type Refusals struct {
	log logrus.FieldLogger
	mu  struct {
		sync.Mutex
		second  time.Time // when the current second began
		lines   int       // in it
		omitted int
		shown   map[string]time.Time
		timer   *time.Timer // runs while omitted > 0
		closed  bool
	}
}

// NewRefusals returns a log without lines.
func NewRefusals(log logrus.FieldLogger) *Refusals {
	r := &Refusals{log: log}
	r.mu.shown = map[string]time.Time{}
	return r
}

// Warn logs a refusal. A reason that was logged recently, and a line beyond five in a second, are only counted.
func (r *Refusals) Warn(reason string, fields logrus.Fields, text string) {
	if r.due(reason) {
		r.log.WithFields(fields).Warn(text)
	}
}

func (r *Refusals) due(reason string) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return false
	}
	if at, again := r.mu.shown[reason]; again && now.Sub(at) < shownAgain || !r.allowsLocked(now) {
		if r.mu.omitted++; r.mu.timer == nil {
			r.mu.timer = time.AfterFunc(shownAgain/3, r.report)
		}
		return false
	}
	if len(r.mu.shown) >= maxReasons {
		clear(r.mu.shown)
	}
	r.mu.shown[reason] = now
	return true
}

func (r *Refusals) allowsLocked(now time.Time) bool {
	if now.Sub(r.mu.second) >= time.Second {
		r.mu.second, r.mu.lines = now, 0
	}
	r.mu.lines++
	return r.mu.lines <= linesPerSecond
}

// report logs how many refusals were omitted.
func (r *Refusals) report() {
	r.mu.Lock()
	omitted := r.mu.omitted
	r.mu.omitted, r.mu.timer = 0, nil
	closed := r.mu.closed
	r.mu.Unlock()
	if omitted > 0 && !closed {
		r.log.WithField("omitted", omitted).Warn("further connections from brokers or unauthenticated clients to the ports for brokers were refused")
	}
}

// Close logs the number of omitted refusals, and nothing afterwards.
func (r *Refusals) Close() {
	r.report()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.closed = true
	if r.mu.timer != nil {
		r.mu.timer.Stop()
	}
}
