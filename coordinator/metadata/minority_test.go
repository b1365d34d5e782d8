package metadata_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestMemberWithoutMajorityIsNotRead: a member that lost its cluster still holds an old state.
// The majority may have written another leader since, or a deletion. A read that no majority
// confirms fails.
func TestMemberWithoutMajorityIsNotRead(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	s := p.open(t)
	write(t, s, "1")
	reads := map[string]func(context.Context) error{
		"get":     func(ctx context.Context) error { _, err := s.Get(ctx, "/a"); return err },
		"get all": func(ctx context.Context) error { _, err := s.GetAll(ctx, []string{"/a"}); return err },
		"list":    func(ctx context.Context) error { _, _, err := s.List(ctx, "/"); return err },
	}
	for what, read := range reads {
		wait.Until(t, func() bool { return read(wait.Context(t)) == nil }, "%s is answered", what)
	}
	p.cut()
	for what, read := range reads {
		require.ErrorIs(t, read(wait.Expiring(t, 100*time.Millisecond)), metadata.ErrUnavailable, what)
	}
}

// TestWatchLeavesAMemberWithoutLeader: a member that lost its cluster sends no changes, while
// the connection to it stands. The watch does not stay with the member: it ends, and begins
// again with the whole state as soon as a member with a leader answers.
func TestWatchLeavesAMemberWithoutLeader(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	s := p.open(t)
	f := follow(t, s, "/")
	write(t, s, "1")
	f.until(func(state map[string]string) bool { return state["/a"] == "1" })
	write(t, s, "2")
	f.until(func(state map[string]string) bool { return state["/a"] == "2" }) // by the watch, not the list
	before := f.resets

	leaderless := p.leaderless(t)
	p.cut()
	require.ErrorIs(t, <-leaderless, rpctypes.ErrNoLeader)
	p.heal()
	write(t, s, "3")
	f.until(func(state map[string]string) bool { return state["/a"] == "3" })
	require.Greater(t, f.resets, before, "the watch stayed with a member that had no leader")
}

// write changes the key as soon as there is a leader.
func write(t *testing.T, s metadata.Store, value string) {
	t.Helper()
	put(t, s, "/a", value, 0)
}

// pair is an etcd of two members that can be cut from each other: then neither has a
// majority. Clients reach the first.
type pair struct {
	members [2]*etcd.Server
	wires   [2]*wire // to the members' peer addresses
}

func startPair(t *testing.T) *pair {
	p := &pair{}
	log, _ := logtest.NewNullLogger()
	options := make([]etcd.Options, len(p.members))
	for i := range options {
		options[i] = etcd.Options{
			Name: fmt.Sprintf("n%d", i+1), Dir: t.TempDir(), ClientAddress: freeAddress(t), PeerAddress: freeAddress(t), Log: log,
			Heartbeat: 100 * time.Millisecond, Election: time.Second,
		}
		p.wires[i] = newWire(t, options[i].PeerAddress)
	}
	cluster := fmt.Sprintf("n1=http://%s,n2=http://%s", p.wires[0].address(), p.wires[1].address())
	for i, o := range options {
		o.InitialCluster = cluster
		var err error
		p.members[i], err = etcd.Start(t.Context(), o)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		p.heal()
		var stopped sync.WaitGroup // together: each waits a second for the other's connections
		for _, m := range p.members {
			stopped.Go(m.Stop)
		}
		stopped.Wait()
	})
	for _, m := range p.members {
		require.NoError(t, m.Wait(wait.Context(t)))
	}
	return p
}

// open connects a store to the first member.
func (p *pair) open(t *testing.T) metadata.Store {
	s, err := metadata.DialEtcd(wait.Context(t), metadata.Config{Endpoints: p.members[0].Endpoints()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// leaderless gives the error by which the first member ends a watch that requires a leader.
func (p *pair) leaderless(t *testing.T) <-chan error {
	c, err := clientv3.New(clientv3.Config{Endpoints: p.members[0].Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	var watch clientv3.WatchChan
	wait.Until(t, func() bool {
		watch = c.Watch(clientv3.WithRequireLeader(wait.Context(t)), "/", clientv3.WithCreatedNotify())
		return (<-watch).Created
	}, "the watch begins")
	ended := make(chan error, 1)
	go func() { // ends with the watch
		var err error
		for r := range watch {
			err = r.Err()
		}
		ended <- err
	}()
	return ended
}

func (p *pair) cut() {
	for _, w := range p.wires {
		w.cut(true)
	}
}

func (p *pair) heal() {
	for _, w := range p.wires {
		w.cut(false)
	}
}

// wire passes on the bytes that come to its own address, unless it is cut.
type wire struct {
	net.Listener
	target string
	done   sync.WaitGroup
	mu     struct {
		sync.Mutex
		isCut bool
		conns []net.Conn
	}
}

func newWire(t *testing.T, target string) *wire {
	l, err := net.Listen("tcp", freeAddress(t))
	require.NoError(t, err)
	w := &wire{Listener: l, target: target}
	w.done.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.cut(true)
		w.done.Wait()
	})
	return w
}

func (w *wire) address() string { return w.Addr().String() }

// accept ends with the listener.
func (w *wire) accept() {
	for {
		near, err := w.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.target)
		if err != nil || !w.keep(near, far) {
			_ = near.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			w.done.Go(func() { // ends with either connection
				_, _ = io.Copy(way[0], way[1])
				_, _ = way[0].Close(), way[1].Close()
			})
		}
	}
}

// keep notes the two ends of a connection; false, and far is closed, if the wire is cut.
func (w *wire) keep(near, far net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.isCut {
		_ = far.Close()
		return false
	}
	w.mu.conns = append(w.mu.conns, near, far)
	return true
}

// cut ends all connections and lets no other be made, until the wire is whole again.
func (w *wire) cut(isCut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.isCut = isCut
	if !isCut {
		return
	}
	for _, c := range w.mu.conns {
		_ = c.Close()
	}
	w.mu.conns = nil
}
