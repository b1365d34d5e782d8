package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/stretchr/testify/require"
)

// proxy passes bytes on, or holds them back while it is paused.
type proxy struct {
	fabric   *fabric
	listener net.Listener
	target   string
	own      sync.WaitGroup

	mu     sync.Mutex
	cond   *sync.Cond
	paused bool
	closed bool
	conns  []net.Conn
}

// newProxy listens at "to " and the target's address.
func newProxy(t *testing.T, f *fabric, target string) *proxy {
	t.Helper()
	p := &proxy{fabric: f, listener: f.listen("to " + target), target: target}
	p.cond = sync.NewCond(&p.mu)
	p.own.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := p.fabric.dial(context.Background(), p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		p.own.Go(func() { p.pass(in, out) })
		p.own.Go(func() { p.pass(out, in) })
	}
}

func (p *proxy) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		for p.paused && !p.closed {
			p.cond.Wait()
		}
		p.mu.Unlock()
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *proxy) pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = on
	p.cond.Broadcast()
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.cond.Broadcast()
	p.mu.Unlock()
	p.own.Wait()
}

// behindProxies connects two brokers so that nothing passes while both proxies
// are paused: the peer neither speaks nor refuses.
func behindProxies(t *testing.T, times Times) (a, b *broker, pause func(bool)) {
	t.Helper()
	f, set := newFabric(), func(o *Options) { o.Times = times }
	a, b = f.newBroker(t, "a", set), f.newBroker(t, "b", set)
	toA, toB := newProxy(t, f, "a"), newProxy(t, f, "b")
	a.SetPeers(map[ident.Node]string{"b": "to b"})
	b.SetPeers(map[ident.Node]string{"a": "to a"})
	waitUp(a, b)
	return a, b, func(on bool) { toA.pause(on); toB.pause(on) }
}

func TestSilentPeerGoesDownAndComesBackWithNothingLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, pause := behindProxies(t, Times{Heartbeat: 5 * time.Millisecond, Silent: 100 * time.Millisecond, Dead: time.Minute})
		pause(true)
		a.waitPeer("b", 1, false, false)
		b.waitPeer("a", 1, false, false)
		a.forget()
		b.forget()
		require.NoError(t, a.Send("b", Frame{ClassReplica, 1, [][]byte{[]byte("kept")}}), "still connected")
		pause(false)
		a.waitPeer("b", 1, true, false)
		require.Equal(t, "kept", string(b.waitFrames(1)[0].f.Payload))
		require.True(t, b.calls()[0].up, "up is told before the frame that ended the silence")
	})
}

func TestSilentConnectionIsClosedAndDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, pause := behindProxies(t, Times{
			Heartbeat: 5 * time.Millisecond, Silent: 50 * time.Millisecond, Dead: 100 * time.Millisecond,
			Handshake: 100 * time.Millisecond,
		})
		first := a.sender("b")
		pause(true)
		wait.For(t, first.done, "the end of the silent connection")
		require.True(t, errors.Is(first.cause, errSilent) || errors.Is(first.cause, io.EOF), "%v", first.cause)
		wait.Until(t, func() bool { return a.Send("b", Frame{ClassReplica, 1, nil}) != nil }, "a has no connection")
		a.forget()
		b.forget()
		pause(false)
		a.waitPeer("b", 1, true, false)
		b.waitPeer("a", 1, true, false)
		for _, s := range a.calls() {
			require.False(t, s.refused, "a silent process is not a dead one")
		}
	})
}

// TestReaderThatHangsHoldsUpOneConnection: Drained waits for a disk. The transport continues:
// the connection counts as silent, is dialled again, and its frames arrive.
func TestReaderThatHangsHoldsUpOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := Times{Heartbeat: 5 * time.Millisecond, Silent: 50 * time.Millisecond, Dead: 100 * time.Millisecond}
		a, b := newFabric().pair(t, func(o *Options) { o.Times = times })
		disk, hung := make(chan struct{}), make(chan struct{}, 1)
		b.mu.Lock()
		b.drained = func() {
			select {
			case hung <- struct{}{}:
				<-disk
			default: // the first one hangs
			}
		}
		b.mu.Unlock()
		defer close(disk)
		require.NoError(t, a.Send("b", Frame{ClassReplica, 1, nil}))
		b.waitFrames(1)
		wait.Until(t, func() bool {
			_ = a.Send("b", Frame{ClassReplica, 2, nil})
			return len(framesOf(b.calls())) > 1
		}, "frames arrive again")
	})
}

func TestOwnStopIsNotThePeersSilence(t *testing.T) {
	a := &Transport{start: time.Now().Add(-time.Hour)}
	c := &conn{t: a}
	now := a.now()
	c.lastRead.Store(now - int64(time.Minute))
	require.Greater(t, a.silence(c), 30*time.Second)
	a.resumed.Store(now)
	require.Less(t, a.silence(c), 30*time.Second)
}

// swallower is a path that loses large packets: the first write that would need
// one is lost, and all that follows it, for it is never acknowledged.
type swallower struct {
	net.Conn
	limit int
	stuck atomic.Bool
}

func (s *swallower) Write(b []byte) (int, error) {
	if len(b) > s.limit {
		s.stuck.Store(true)
	}
	if s.stuck.Load() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// TestAPathThatLosesLargePacketsIsNone: heartbeats pass one way, appends do not.
func TestAPathThatLosesLargePacketsIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const packet = 1400
		set := func(o *Options) {
			o.Times = Times{Heartbeat: 5 * time.Millisecond, Silent: 100 * time.Millisecond, Dead: 200 * time.Millisecond, Handshake: 200 * time.Millisecond}
		}
		var lossy atomic.Bool
		var dials atomic.Int64
		f := newFabric()
		a := f.newBroker(t, "a", set, func(o *Options) {
			o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				nc, err := f.dial(ctx, address)
				if err != nil {
					return nil, err
				}
				s := &swallower{Conn: nc, limit: 1 << 30}
				if lossy.Load() {
					dials.Add(1)
					s.limit = packet
				}
				return s, nil
			}
		})
		b := f.newBroker(t, "b", set)
		introduce(a, b)
		waitUp(a, b)
		lossy.Store(true)
		a.sender("b").raw.(*swallower).stuck.Store(true)
		a.waitPeer("b", 1, false, false)
		a.forget()
		wait.Until(t, func() bool { return dials.Load() > 3 }, "a dials again and again")
		for _, s := range a.calls() {
			require.False(t, s.up, "up, though no append can arrive")
		}
		lossy.Store(false)
		a.waitPeer("b", 1, true, false)
	})
}
