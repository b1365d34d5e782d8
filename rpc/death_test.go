package rpc

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// fabric is a network without sockets, for tests with synctest's clock. An address at
// which nobody listens refuses.
type fabric struct {
	mu        sync.Mutex
	listeners map[string]*fabricListener
}

// fabricListener is the net.Listener of one address.
type fabricListener struct {
	fabric  *fabric
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (f *fabric) listen(address string) net.Listener {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &fabricListener{fabric: f, address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	f.listeners[address] = l
	return l
}

func (f *fabric) dial(ctx context.Context, address string) (net.Conn, error) {
	f.mu.Lock()
	l := f.listeners[address]
	f.mu.Unlock()
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	if l == nil {
		return nil, refused
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *fabricListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *fabricListener) Close() error {
	l.once.Do(func() {
		l.fabric.mu.Lock()
		defer l.fabric.mu.Unlock()
		delete(l.fabric.listeners, l.address)
		close(l.closed)
	})
	return nil
}

func (l *fabricListener) Addr() net.Addr { return &net.UnixAddr{Name: l.address} }

func newFabric() *fabric { return &fabric{listeners: map[string]*fabricListener{}} }

// start starts a broker that listens at its own name, with the default times, and gives it peers.
func (f *fabric) start(t *testing.T, node ident.Node, run ident.Incarnation, peers map[ident.Node]string) *broker {
	b := f.newBroker(t, node, func(o *Options) { o.Self.Incarnation = run })
	b.SetPeers(peers)
	return b
}

// newBroker makes a broker of incarnation 1 that listens at its own name, with the default times.
func (f *fabric) newBroker(t *testing.T, node ident.Node, change ...func(*Options)) *broker {
	log, hook := logtest.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	r := newRecorder(t)
	o := Options{Self: Hello{Cluster: "test", Node: node, Incarnation: 1}, Listen: f.listen(string(node)), Dial: f.dial, Handler: r, Log: log}
	for _, c := range change {
		c(&o)
	}
	b := &broker{New(o), r, node, string(node), hook}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func (f *fabric) pair(t *testing.T, change ...func(*Options)) (*broker, *broker) {
	t.Helper()
	a, b := f.newBroker(t, "a", change...), f.newBroker(t, "b", change...)
	introduce(a, b)
	waitUp(a, b)
	return a, b
}

// kill ends a broker as a crash does: when its connections end, nobody listens any more.
func (f *fabric) kill(t *testing.T, b *broker) {
	f.mu.Lock()
	l := f.listeners[b.address]
	f.mu.Unlock()
	require.NoError(t, l.Close())
	require.NoError(t, b.Close())
}

// TestDeathIsKnownSoon: a peer dies, is away for long, comes back, and dies again. Its
// absence has made the pauses between redials long. A connection that stood for Times.Dead
// is dialled again at once nonetheless, and a shorter one after the least pause: the
// refusal, and so the death, is known within 20 ms.
func TestDeathIsKnownSoon(t *testing.T) {
	times := Options{}.withDefaults().Times
	for name, tt := range map[string]struct{ lives, within time.Duration }{
		"after a long life":  {2 * times.Dead, 0},
		"after a short life": {times.Dead / 10, times.BackoffMin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				a := f.start(t, "a", 1, map[ident.Node]string{"b": "b"})
				defer a.Close()
				for run := ident.Incarnation(2); run < 7; run++ {
					time.Sleep(20 * times.BackoffMax)
					b := f.start(t, "b", run, map[ident.Node]string{"a": "a"})
					a.waitPeer("b", run, true, false)
					time.Sleep(tt.lives)
					died := time.Now()
					f.kill(t, b)
					a.waitPeer("b", run, false, true)
					require.LessOrEqual(t, time.Since(died), tt.within)
				}
			})
		})
	}
}
