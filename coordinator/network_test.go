package coordinator_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// network connects brokers, and cuts them from each other.
type network struct {
	mu struct {
		sync.Mutex
		names map[string]string // by address
		conns map[net.Conn]link
		cut   map[link]bool
	}
	heard  atomic.Pointer[func(frames []byte)] // what is sent
	loses  atomic.Bool                         // nothing that is sent arrives
	resets atomic.Bool                         // a link that is cut refuses connections, as the port of a dead process does
	pipes  pipes
}

// link is one direction between two brokers.
type link struct{ from, to string }

func newNetwork() *network {
	n := &network{}
	n.mu.names, n.mu.conns, n.mu.cut = map[string]string{}, map[net.Conn]link{}, map[link]bool{}
	return n
}

// listen gives a broker an address of its own.
func (n *network) listen(name string) net.Listener {
	l := n.pipes.listen()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.names[l.Addr().String()] = name
	return l
}

var errCut = errors.New("no route to host")

// dialer connects one broker to the others.
func (n *network) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		n.mu.Lock()
		l := link{from, n.mu.names[address]}
		cut := n.mu.cut[l]
		n.mu.Unlock()
		switch {
		case cut && n.resets.Load():
			return nil, syscall.ECONNREFUSED
		case cut:
			return nil, errCut
		}
		conn, err := n.pipes.dial(ctx, address)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.mu.conns[conn] = l
		return overheard{conn, n}, nil
	}
}

// overheard is a connection whose dialer's frames can be listened to.
type overheard struct {
	net.Conn
	network *network
}

func (o overheard) Write(b []byte) (int, error) {
	if heard := o.network.heard.Load(); heard != nil {
		(*heard)(b)
	}
	if o.network.loses.Load() {
		return len(b), nil
	}
	return o.Conn.Write(b)
}

// isolate cuts a broker from others, both ways.
func (n *network) isolate(name string, from ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range from {
		n.mu.cut[link{name, other}], n.mu.cut[link{other, name}] = true, true
	}
	for conn, l := range n.mu.conns {
		if n.mu.cut[l] {
			_ = conn.Close()
			delete(n.mu.conns, conn)
		}
	}
}

// heal connects all brokers again.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.mu.cut)
}
