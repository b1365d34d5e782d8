package world

import (
	"context"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// network connects machines in place of sockets. Each direction of a connection is a stream of segments that arrive after a latency
// from the seed, in order. A cut link delivers nothing until it heals, as TCP does while a path is down.
type network struct {
	mu        sync.Mutex
	random    *rand.Rand
	listeners map[string]*listener             // by address
	conns     map[int]*conn                    // by number: the order of a map of pointers would depend on addresses
	trace     func(format string, args ...any) // nil = nothing is traced
	made      int                              // connections, both ends counted
	down      map[path]bool                    // directions that deliver nothing
	off       map[string]bool
	slow      time.Duration // added to every latency
}

// path is one direction between two machines.
type path struct{ from, to string }

const (
	latencyMin = 30 * time.Microsecond
	latencyMax = 400 * time.Microsecond
	windowSize = 256 << 10 // bytes that a writer may be ahead of its reader
)

func newNetwork(random *rand.Rand) *network {
	return &network{random: random, listeners: map[string]*listener{}, conns: map[int]*conn{}, down: map[path]bool{}, off: map[string]bool{}}
}

// latency draws the time that a segment takes.
func (n *network) latencyLocked() time.Duration {
	d := latencyMin + time.Duration(n.random.Int64N(int64(latencyMax-latencyMin))) + n.slow
	if n.random.IntN(200) == 0 {
		d += time.Duration(n.random.Int64N(int64(20 * time.Millisecond)))
	}
	return d
}

// listen opens the port of a machine.
func (n *network) listen(machine string, a *net.TCPAddr) *listener {
	l := &listener{n: n, machine: machine, address: a, incoming: make(chan *conn, 128), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[a.String()] = l
	return l
}

// dialer returns the dial function of a machine.
func (n *network) dialer(machine string, local net.IP) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return n.dial(ctx, machine, local, address)
	}
}

func (n *network) dial(ctx context.Context, machine string, local net.IP, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	d := 2 * n.latencyLocked()
	n.mu.Unlock()
	if !concurrency.Sleep(ctx, d) {
		return nil, ctx.Err()
	}
	for {
		n.mu.Lock()
		if l == nil || !l.openLocked() {
			l = n.listeners[address] // its process may have been replaced
		}
		blocked := l != nil && (n.down[path{machine, l.machine}] || n.down[path{l.machine, machine}] || n.off[l.machine])
		if !blocked {
			break // with the lock
		}
		n.mu.Unlock()
		if !concurrency.Sleep(ctx, 50*time.Millisecond) { // the next SYN
			return nil, ctx.Err()
		}
	}
	defer n.mu.Unlock()
	if l == nil || !l.openLocked() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	port := 20000 + n.random.IntN(40000)
	near := &conn{n: n, local: &net.TCPAddr{IP: local, Port: port}, remote: l.address, from: machine, to: l.machine}
	far := &conn{n: n, local: l.address, remote: near.local, from: l.machine, to: machine}
	near.peer, far.peer = far, near
	near.changed, far.changed = make(chan struct{}), make(chan struct{})
	select {
	case l.incoming <- far:
	default:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	near.number, far.number = n.made, n.made+1
	n.made += 2
	n.conns[near.number], n.conns[far.number] = near, far
	return near, nil
}

// cut stops both directions between two machines, or one of them.
func (n *network) cut(from, to string, both bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[path{from, to}] = true
	if both {
		n.down[path{to, from}] = true
	}
}

// heal restores all paths. Bytes that were sent in between arrive now.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		if n.down[path{c.from, c.to}] {
			c.wakeLocked()
			c.peer.wakeLocked()
		}
	}
	clear(n.down)
}

// reset ends all connections of a machine, as the end of its process does, and closes its ports.
func (n *network) reset(machine string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a, l := range n.listeners {
		if l.machine == machine {
			l.closeLocked()
			delete(n.listeners, a)
		}
	}
	for _, c := range n.conns {
		if c.from == machine || c.to == machine {
			c.resetLocked()
		}
	}
}

// turnOff makes a machine silent: nothing leaves it and nothing arrives; turnOn ends it.
func (n *network) turnOff(machine string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.off[machine] = true
}

func (n *network) turnOn(machine string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.off, machine)
	for _, c := range n.conns {
		if c.from == machine || c.to == machine {
			c.wakeLocked()
		}
	}
}

// listener implements net.Listener.
type listener struct {
	n        *network
	machine  string
	address  *net.TCPAddr
	incoming chan *conn
	closed   chan struct{}
}

func (l *listener) openLocked() bool {
	select {
	case <-l.closed:
		return false
	default:
		return true
	}
}

func (l *listener) closeLocked() {
	if l.openLocked() {
		close(l.closed)
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.closeLocked()
	if l.n.listeners[l.address.String()] == l {
		delete(l.n.listeners, l.address.String())
	}
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.address }

// segment is what one Write sent.
type segment struct {
	data []byte
	due  time.Time
	fin  bool
}

// conn is one end of a connection. The network's lock protects its fields.
type conn struct {
	n              *network
	number         int
	peer           *conn
	local, remote  *net.TCPAddr
	from, to       string // machines: this end's, the other's
	in             []segment
	waiting        int // bytes of in
	closed, broken bool
	finished       bool // this end has sent its end
	readBy         time.Time
	writeBy        time.Time
	changed        chan struct{} // closed and replaced when a waiting Read or Write has to look again
}

func (c *conn) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *conn) resetLocked() {
	for _, e := range []*conn{c, c.peer} {
		if !e.broken {
			e.broken = true
			e.in, e.waiting = nil, 0
			e.wakeLocked()
			delete(e.n.conns, e.number)
		}
	}
}

// arrives reports whether what the peer sent reaches this end now.
func (c *conn) arrivesLocked() bool {
	return !c.n.down[path{c.to, c.from}] && !c.n.off[c.from] && !c.n.off[c.to]
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	for {
		c.n.mu.Lock()
		wait := time.Duration(-1)
		now := time.Now()
		switch {
		case c.closed:
			c.n.mu.Unlock()
			return 0, net.ErrClosed
		case c.broken:
			c.n.mu.Unlock()
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		case !c.readBy.IsZero() && !now.Before(c.readBy):
			c.n.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(c.in) > 0 && c.arrivesLocked():
			s := &c.in[0]
			if wait = s.due.Sub(now); wait > 0 {
				break
			}
			if s.fin {
				c.n.mu.Unlock()
				return 0, io.EOF
			}
			k := copy(b, s.data)
			c.waiting -= k
			if s.data = s.data[k:]; len(s.data) == 0 {
				c.in = c.in[1:]
			}
			c.peer.wakeLocked()
			c.n.mu.Unlock()
			return k, nil
		}
		changed := c.changed
		if !c.readBy.IsZero() && (wait < 0 || c.readBy.Sub(now) < wait) {
			wait = c.readBy.Sub(now)
		}
		c.n.mu.Unlock()
		pauseUntil(changed, wait)
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (sent int, err error) {
	for {
		c.n.mu.Lock()
		now := time.Now()
		switch {
		case c.closed, c.finished:
			c.n.mu.Unlock()
			return sent, net.ErrClosed
		case c.broken || c.peer.closed:
			c.n.mu.Unlock()
			return sent, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
		case !c.writeBy.IsZero() && !now.Before(c.writeBy):
			c.n.mu.Unlock()
			return sent, os.ErrDeadlineExceeded
		}
		if room := windowSize - c.peer.waiting; room > 0 {
			k := min(room, len(b)-sent)
			c.sendLocked(segment{data: append([]byte(nil), b[sent:sent+k]...)})
			sent += k
			if sent == len(b) {
				c.n.mu.Unlock()
				return sent, nil
			}
		}
		wait := time.Duration(-1)
		if !c.writeBy.IsZero() {
			wait = c.writeBy.Sub(now)
		}
		changed := c.changed
		c.n.mu.Unlock()
		pauseUntil(changed, wait)
	}
}

// sendLocked gives the peer a segment, not before the one sent last.
func (c *conn) sendLocked(s segment) {
	s.due = time.Now().Add(c.n.latencyLocked())
	if c.n.trace != nil {
		c.n.trace("%s to %s %d bytes %08x, arrives %s", c.from, c.remote, len(s.data), crc32.ChecksumIEEE(s.data), s.due.Format("05.000000000"))
	}
	if k := len(c.peer.in); k > 0 && c.peer.in[k-1].due.After(s.due) {
		s.due = c.peer.in[k-1].due
	}
	c.peer.in = append(c.peer.in, s)
	c.peer.waiting += len(s.data)
	c.peer.wakeLocked()
}

// CloseWrite ends this direction.
func (c *conn) CloseWrite() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if !c.finished && !c.closed && !c.broken {
		c.finished = true
		c.sendLocked(segment{fin: true})
	}
	return nil
}

// Close implements net.Conn. The peer reads what was sent, then the end.
func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return nil
	}
	if !c.finished && !c.broken {
		c.finished = true
		c.sendLocked(segment{fin: true})
	}
	c.closed = true
	c.in, c.waiting = nil, 0
	c.wakeLocked()
	c.peer.wakeLocked()
	delete(c.n.conns, c.number)
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.readBy = t
	c.wakeLocked()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.writeBy = t
	c.wakeLocked()
	return nil
}

// pauseUntil waits for a channel, at most for d if that is not negative.
func pauseUntil(changed <-chan struct{}, d time.Duration) {
	if d < 0 {
		<-changed
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

// setSlow adds to every latency.
func (n *network) setSlow(by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow = by
}
