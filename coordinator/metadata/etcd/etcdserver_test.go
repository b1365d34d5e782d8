package etcd_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestMain runs eight tests at once: they wait for elections, and for the five quiet seconds
// before etcd changes its members. With twelve, a machine that does ten other things elects too slowly.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8")
	flag.Parse()                   // -parallel prevails
	wal.SegmentSizeBytes = 1 << 20 // etcd allocates the file of each member's log in advance
	// etcd keeps idle HTTP connections between members that outlive it for a moment.
	wait.Main(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
}

// attempt bounds one attempt at a request that etcd loses with its leader, without an answer.
const attempt = 30 * time.Second

// options returns those of a member that has a second for an election and a minute for answers:
// a machine that is busy for a moment changes nothing. etcd's own limit of a request grows with
// the election timeout. Rare heartbeats leave a slow machine time for many members.
func options(t *testing.T, name string) etcd.Options {
	log, _ := logtest.NewNullLogger()
	o := etcd.Options{
		Name: name, Dir: filepath.Join(t.TempDir(), "etcd"), ClientAddress: freeAddress(t), PeerAddress: freeAddress(t),
		Heartbeat: 100 * time.Millisecond, Election: time.Second, Log: log,
	}
	etcd.Patient(&o)
	return o
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

// nextPort gives no port twice: tests run alongside each other, and the port of a member that
// is stopped for a while must stay free.
var nextPort = func() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(rand.Uint32N(22_000))
	return n
}()

func start(t *testing.T, o etcd.Options) *etcd.Server {
	s, err := etcd.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

func ready(t *testing.T, s *etcd.Server) { require.NoError(t, s.Wait(wait.Context(t))) }

func client(t *testing.T, s *etcd.Server) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestLoneMemberRestarts(t *testing.T) {
	t.Parallel()
	o := options(t, "n1")
	require.False(t, etcd.Exists(o.Dir))
	s := start(t, o)
	ready(t, s)
	require.True(t, s.Leads())
	put(t, s, "k")
	id := s.MemberID()
	s.Stop()
	require.True(t, etcd.Exists(o.Dir))
	require.Empty(t, s.Err(), "stopping is no failure")

	o.ClusterToken = "ignored from the second start on"
	again := start(t, o)
	ready(t, again)
	require.Equal(t, id, again.MemberID())
	has(t, again, "k")
}

// startThree starts a cluster of three and waits until all are ready.
func startThree(t *testing.T, changes ...func(*etcd.Options)) (members []etcd.Options, servers []*etcd.Server) {
	return startAll(t, three(t, changes...))
}

func startAll(t *testing.T, members []etcd.Options) (_ []etcd.Options, servers []*etcd.Server) {
	for i := range members {
		servers = append(servers, start(t, members[i]))
	}
	t.Cleanup(func() { crashAll(servers...) })
	for _, s := range servers {
		ready(t, s)
	}
	return members, servers
}

func three(t *testing.T, changes ...func(*etcd.Options)) []etcd.Options {
	return several(t, 3, changes...)
}

// several returns the options of a cluster's members; none is started.
func several(t *testing.T, size int, changes ...func(*etcd.Options)) (members []etcd.Options) {
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
	put(t, servers[0], "k")
	plain := members[0].InitialCluster
	for _, on := range []bool{true, false} {
		for _, s := range servers {
			s.Stop()
		}
		for i := range members {
			members[i].TLS, members[i].InitialCluster = etcd.TLS{}, plain
			if on {
				members[i].TLS = etcd.TLS{Cert: ca.File("n.pem"), Key: ca.File("n.key"), CA: ca.File("ca.pem")}
				members[i].InitialCluster = strings.ReplaceAll(plain, "http:", "https:")
			}
		}
		_, servers = startAll(t, members)
	}
	has(t, servers[0], "k")
}

// steady starts the members of a cluster whose leader stays: the election timeout is longer than
// any test. One member is elected at once.
func steady(t *testing.T, size int) (members []etcd.Options, servers []*etcd.Server) {
	t.Helper()
	members = several(t, size, func(o *etcd.Options) { o.Heartbeat, o.Election = time.Second, longElection })
	for i := range members {
		servers = append(servers, start(t, members[i]))
	}
	t.Cleanup(func() { crashAll(servers...) }) // a transfer to a member that has stopped takes an election timeout
	wait.Until(t, func() bool {
		if !servers[0].HasLeader() {
			require.NoError(t, servers[0].Campaign(t.Context()))
		}
		return !slices.ContainsFunc(servers, func(s *etcd.Server) bool { return !s.HasLeader() })
	}, "the members have a leader")
	for _, s := range servers {
		ready(t, s)
	}
	return members, servers
}

// longElection is the longest election timeout that etcd accepts.
const longElection = 50 * time.Second

// leaderOf returns the leader of a cluster and its other members.
func leaderOf(t *testing.T, servers []*etcd.Server) (leader *etcd.Server, rest []*etcd.Server) {
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
	_, servers := steady(t, 3)
	leader, rest := leaderOf(t, servers)
	require.NoError(t, rest[0].TransferLeadership(), "nothing to hand over")
	require.True(t, leader.Leads())
	require.NoError(t, leader.TransferLeadership())
	require.False(t, leader.Leads())
	put(t, leader, "it is a member still")
	leader.Stop()
	require.ErrorIs(t, leader.TransferLeadership(), etcd.ErrStopped)
}

func TestThreeMembersSurviveTheirLeader(t *testing.T) {
	t.Parallel()
	_, servers := startThree(t)
	leader, rest := leaderOf(t, servers)
	leader.Stop()
	put(t, rest[0], "k")
}

// TestWaitEndsWithItsContext: a member without a majority is not ready.
func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	o := options(t, "n1")
	o.InitialCluster = "n1=http://" + o.PeerAddress + ",n2=http://" + freeAddress(t)
	s := start(t, o)
	require.ErrorIs(t, s.Wait(wait.Expiring(t, 100*time.Millisecond)), context.DeadlineExceeded)
	s.Stop()
	require.ErrorIs(t, s.Wait(t.Context()), etcd.ErrStopped)
}

func TestBadOptions(t *testing.T) {
	for what, spoil := range map[string]func(*etcd.Options){
		"no name":         func(o *etcd.Options) { o.Name = "" },
		"no directory":    func(o *etcd.Options) { o.Dir = "" },
		"no port":         func(o *etcd.Options) { o.ClientAddress = "127.0.0.1" },
		"no peer address": func(o *etcd.Options) { o.PeerAddress = "" },
		"another member":  func(o *etcd.Options) { o.InitialCluster = "n2=http://127.0.0.1:1" },
		"not a URL":       func(o *etcd.Options) { o.InitialCluster = "n1=127.0.0.1" },
	} {
		o := options(t, "n1")
		spoil(&o)
		_, err := etcd.Start(t.Context(), o)
		require.ErrorIs(t, err, etcd.ErrOptions, what)
	}
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	o := options(t, "n1")
	l, err := net.Listen("tcp", o.ClientAddress)
	require.NoError(t, err)
	defer l.Close()
	_, err = etcd.Start(t.Context(), o)
	require.Error(t, err)
}

// TestLoginIsRequiredAgain: a member with required log-ins restarts on its directory with the
// same user.
func TestLoginIsRequiredAgain(t *testing.T) {
	t.Parallel()
	o := options(t, "n1")
	for range 2 {
		s := start(t, o)
		ready(t, s)
		require.NoError(t, s.RequireLogin(t.Context(), "lockstep", "s3cret"))
		s.Stop()
	}
	s := start(t, o)
	ready(t, s)
	require.ErrorIs(t, s.RequireLogin(t.Context(), "lockstep", "another"), etcd.ErrLogin)
	require.ErrorIs(t, s.RequireLogin(t.Context(), "nobody", "s3cret"), etcd.ErrLogin)
	_, err := client(t, s).Put(t.Context(), "k", "v")
	require.Error(t, err, "there was no log-in")
}
