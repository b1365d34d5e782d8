package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// network has the fake brokers that serve in memory, by address. A test in a bubble of
// testing/synctest uses no sockets: a goroutine that waits for one stops the bubble's time.
var network struct {
	sync.Mutex
	listeners map[string]*memoryListener
	last      int
}

// memoryListener implements net.Listener.
type memoryListener struct {
	at    string
	conns chan net.Conn
	over  chan struct{}
	close func()
}

// listenMemory serves an address, or a new one for "".
func listenMemory(at string) net.Listener {
	network.Lock()
	defer network.Unlock()
	if at == "" {
		network.last++
		at = fmt.Sprintf("127.0.0.1:%d", network.last)
	}
	if network.listeners == nil {
		network.listeners = map[string]*memoryListener{}
	}
	l := &memoryListener{at: at, conns: make(chan net.Conn), over: make(chan struct{})}
	l.close = sync.OnceFunc(func() {
		network.Lock()
		delete(network.listeners, at)
		network.Unlock()
		close(l.over)
	})
	network.listeners[at] = l
	return l
}

func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.at) }
func (l *memoryListener) Close() error   { l.close(); return nil }

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// dialMemory is a Dialer.
func dialMemory(ctx context.Context, _, address string) (net.Conn, error) {
	network.Lock()
	l := network.listeners[address]
	network.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	one, other := newStream(), newStream()
	select {
	case l.conns <- &memoryConn{in: one, out: other}:
		return &memoryConn{in: other, out: one}, nil
	case <-l.over:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

// memoryConn is one end of a connection. Unlike net.Pipe it has buffers, as sockets do: a write does not
// wait for the reader.
type memoryConn struct{ in, out *stream }

func (c *memoryConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *memoryConn) Write(p []byte) (int, error) { return c.out.write(p) }
func (c *memoryConn) CloseWrite() error           { c.out.change(func(s *stream) { s.ended = true }); return nil }

func (c *memoryConn) Close() error {
	c.in.change(func(s *stream) { s.closed = true })
	return c.CloseWrite()
}

func (c *memoryConn) LocalAddr() net.Addr                { return memoryAddr("") }
func (c *memoryConn) RemoteAddr() net.Addr               { return memoryAddr("") }
func (c *memoryConn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *memoryConn) SetWriteDeadline(_ time.Time) error { return nil } // writes do not wait

func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.in.change(func(s *stream) { s.until = t })
	return nil
}

// stream is one direction of a connection.
type stream struct {
	mu      sync.Mutex
	data    []byte
	ended   bool          // by the writer: the reader reads on to the end
	closed  bool          // by the reader
	until   time.Time     // the reader's deadline; 0 = none
	changed chan struct{} // closed at each change
}

func newStream() *stream { return &stream{changed: make(chan struct{})} }

func (s *stream) change(f func(*stream)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeLocked(f)
}

func (s *stream) changeLocked(f func(*stream)) {
	f(s)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.closed {
		return 0, syscall.EPIPE
	}
	s.changeLocked(func(*stream) { s.data = append(s.data, p...) })
	return len(p), nil
}

func (s *stream) read(p []byte) (int, error) {
	for {
		n, changed, until, err := s.take(p)
		if changed == nil {
			return n, err
		}
		var expired <-chan time.Time
		if !until.IsZero() {
			timer := time.NewTimer(time.Until(until))
			defer timer.Stop()
			expired = timer.C
		}
		select {
		case <-changed:
		case <-expired:
		}
	}
}

// take reads what is there. A channel instead says when to try again.
func (s *stream) take(p []byte) (n int, changed <-chan struct{}, until time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return 0, nil, until, net.ErrClosed
	case !s.until.IsZero() && !time.Now().Before(s.until):
		return 0, nil, until, os.ErrDeadlineExceeded
	case len(s.data) > 0:
		n = copy(p, s.data)
		s.data = s.data[n:]
		return n, nil, until, nil
	case s.ended:
		return 0, nil, until, io.EOF
	}
	return 0, s.changed, s.until, nil
}
