package etcdserver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/internal/etcdserver"
	"github.com/lockstepmq/lockstep/internal/testkit/certs"
)

// etcd keeps idle HTTP connections between members that outlive it for a moment.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
}

const (
	deadline  = 20 * time.Second
	pollEvery = 20 * time.Millisecond
)

func options(t *testing.T, name string) etcdserver.Options {
	log, _ := logtest.NewNullLogger()
	return etcdserver.Options{Name: name, Dir: filepath.Join(t.TempDir(), "etcd"), ClientAddress: freeAddress(t), PeerAddress: freeAddress(t), Log: log}
}

// freeAddress returns a port on which no process listens: etcd advertises its addresses, so it
// cannot choose a port by itself. The port is below those that the system gives to
// connections, of which the running members already make many.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+nextPort.Add(1)%22_000))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	require.FailNow(t, "no port is free")
	return ""
}

// nextPort gives no port twice: tests run beside each other, and the port of a member that
// is stopped for a while must stay free.
var nextPort = func() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(rand.Uint32N(22_000))
	return n
}()

func start(t *testing.T, o etcdserver.Options) *etcdserver.Server {
	s, err := etcdserver.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

func wait(t *testing.T, s *etcdserver.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	require.NoError(t, s.Wait(ctx))
}

func client(t *testing.T, s *etcdserver.Server) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestLoneMemberIsReadySoonAndRestarts(t *testing.T) {
	o := options(t, "n1")
	require.False(t, etcdserver.Exists(o.Dir))
	began := time.Now()
	s := start(t, o)
	wait(t, s)
	t.Logf("ready after %v", time.Since(began))
	require.Less(t, time.Since(began), 3*time.Second, "the target is well below 1 s on an idle machine")
	require.True(t, s.Leads())
	_, err := client(t, s).Put(t.Context(), "k", "v")
	require.NoError(t, err)
	id := s.MemberID()
	s.Stop()
	require.True(t, etcdserver.Exists(o.Dir))
	require.Empty(t, s.Err(), "stopping is no failure")

	o.ClusterToken = "ignored from the second start on"
	again := start(t, o)
	wait(t, again)
	require.Equal(t, id, again.MemberID())
	r, err := client(t, again).Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(r.Kvs[0].Value))
}

func TestStopDoesNotWaitForWatches(t *testing.T) {
	s := start(t, options(t, "n1"))
	wait(t, s)
	watch := client(t, s).Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	<-watch
	began := time.Now()
	s.Stop()
	require.Less(t, time.Since(began), 3*time.Second)
}

// startThree starts a cluster of three and waits until all are ready.
func startThree(t *testing.T, changes ...func(*etcdserver.Options)) (members []etcdserver.Options, servers []*etcdserver.Server) {
	return startAll(t, three(t, changes...))
}

func startAll(t *testing.T, members []etcdserver.Options) (_ []etcdserver.Options, servers []*etcdserver.Server) {
	for i := range members {
		servers = append(servers, start(t, members[i]))
	}
	for _, s := range servers {
		wait(t, s)
	}
	return members, servers
}

func three(t *testing.T, changes ...func(*etcdserver.Options)) []etcdserver.Options {
	return several(t, 3, changes...)
}

// several returns the options of a cluster's members; none is started.
func several(t *testing.T, size int, changes ...func(*etcdserver.Options)) (members []etcdserver.Options) {
	var cluster []string
	for i := range size {
		o := options(t, fmt.Sprintf("n%d", i+1))
		for _, change := range changes {
			change(&o)
		}
		members = append(members, o)
		cluster = append(cluster, o.Name+"=http://"+o.PeerAddress)
	}
	for i := range members {
		members[i].InitialCluster = strings.Join(cluster, ",")
	}
	return members
}

// TestTLSIsTurnedOnAndOff: a cluster's log has the members' addresses with their scheme; all
// members are stopped and started with other settings.
func TestTLSIsTurnedOnAndOff(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	ca.Issue("n")
	members, servers := startThree(t)
	_, err := client(t, servers[0]).Put(t.Context(), "k", "v")
	require.NoError(t, err)
	plain := members[0].InitialCluster
	for _, on := range []bool{true, false} {
		for _, s := range servers {
			s.Stop()
		}
		for i := range members {
			members[i].TLS, members[i].InitialCluster = etcdserver.TLS{}, plain
			if on {
				members[i].TLS = etcdserver.TLS{Cert: ca.File("n.pem"), Key: ca.File("n.key"), CA: ca.File("ca.pem")}
				members[i].InitialCluster = strings.ReplaceAll(plain, "http:", "https:")
			}
		}
		_, servers = startAll(t, members)
	}
	r, err := client(t, servers[0]).Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(r.Kvs[0].Value))
}

// leaderOf returns the leader of a cluster and its other members.
func leaderOf(t *testing.T, servers []*etcdserver.Server) (leader *etcdserver.Server, rest []*etcdserver.Server) {
	for _, s := range servers {
		if s.Leads() {
			leader = s
		} else {
			rest = append(rest, s)
		}
	}
	require.NotNil(t, leader)
	return leader, rest
}

func TestTransferLeadership(t *testing.T) {
	t.Parallel()
	_, servers := startThree(t)
	leader, rest := leaderOf(t, servers)
	require.NoError(t, rest[0].TransferLeadership(), "nothing to hand over")
	require.True(t, leader.Leads())
	require.NoError(t, leader.TransferLeadership())
	require.False(t, leader.Leads())
	_, err := client(t, leader).Put(t.Context(), "k", "v")
	require.NoError(t, err, "it is a member still")
	leader.Stop()
	require.ErrorIs(t, leader.TransferLeadership(), etcdserver.ErrStopped)
}

func TestThreeMembersSurviveTheirLeader(t *testing.T) {
	t.Parallel()
	_, servers := startThree(t)
	leader, rest := leaderOf(t, servers)
	leader.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	c := client(t, rest[0])
	require.Eventually(t, func() bool { _, err := c.Put(ctx, "k", "v"); return err == nil }, deadline, pollEvery)
}

func TestWaitSaysWhatIsMissing(t *testing.T) {
	o := options(t, "n1")
	o.InitialCluster = "n1=http://" + o.PeerAddress + ",n2=http://" + freeAddress(t)
	s := start(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Wait(ctx), context.DeadlineExceeded)
	s.Stop()
	require.ErrorIs(t, s.Wait(t.Context()), etcdserver.ErrStopped)
}

func TestBadOptions(t *testing.T) {
	for what, spoil := range map[string]func(*etcdserver.Options){
		"no name":         func(o *etcdserver.Options) { o.Name = "" },
		"no directory":    func(o *etcdserver.Options) { o.Dir = "" },
		"no port":         func(o *etcdserver.Options) { o.ClientAddress = "127.0.0.1" },
		"no peer address": func(o *etcdserver.Options) { o.PeerAddress = "" },
		"another member":  func(o *etcdserver.Options) { o.InitialCluster = "n2=http://127.0.0.1:1" },
		"not a URL":       func(o *etcdserver.Options) { o.InitialCluster = "n1=127.0.0.1" },
	} {
		o := options(t, "n1")
		spoil(&o)
		_, err := etcdserver.Start(t.Context(), o)
		require.ErrorIs(t, err, etcdserver.ErrOptions, what)
	}
}

func TestAddressInUse(t *testing.T) {
	o := options(t, "n1")
	l, err := net.Listen("tcp", o.ClientAddress)
	require.NoError(t, err)
	defer l.Close()
	_, err = etcdserver.Start(t.Context(), o)
	require.Error(t, err)
}

// TestLoginIsRequiredAgain: a member with required log-ins restarts on its directory with the
// same user.
func TestLoginIsRequiredAgain(t *testing.T) {
	t.Parallel()
	o := options(t, "n1")
	for range 2 {
		s := start(t, o)
		wait(t, s)
		require.NoError(t, s.RequireLogin(t.Context(), "lockstep", "s3cret"))
		s.Stop()
	}
	s := start(t, o)
	wait(t, s)
	require.ErrorIs(t, s.RequireLogin(t.Context(), "lockstep", "another"), etcdserver.ErrLogin)
	require.ErrorIs(t, s.RequireLogin(t.Context(), "nobody", "s3cret"), etcdserver.ErrLogin)
	_, err := client(t, s).Put(t.Context(), "k", "v")
	require.Error(t, err, "there was no log-in")
}
