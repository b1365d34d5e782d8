package coordinator_test

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// pipes connects the listeners and dialers of one test without sockets, so that the test can run in a bubble of
// testing/synctest. Time passes there only while every goroutine waits: all consequences of one moment come before the
// next tick of any timer, and a minute takes no time. A socket that waits would hold up the bubble's time.
type pipes struct {
	mu    sync.Mutex
	doors []*door // doors[i] listens on port i + 1
}

// listen opens a port that was never used before.
func (p *pipes) listen() *door {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &door{port: len(p.doors) + 1, calls: make(chan net.Conn), closed: make(chan struct{})}
	p.doors = append(p.doors, d)
	return d
}

// dial waits until the listener accepts. The port of a closed one refuses, as TCP does.
func (p *pipes) dial(ctx context.Context, address string) (net.Conn, error) {
	to, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	d := p.doors[to.Port-1]
	p.mu.Unlock()
	near, far := net.Pipe()
	select {
	case d.calls <- far:
		return near, nil
	case <-d.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// door is a net.Listener of pipes.
type door struct {
	port   int
	calls  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case conn := <-d.calls:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: d.port} }
