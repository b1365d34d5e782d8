package etcd_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// opened is a member that Open starts in its own goroutine.
type opened struct {
	t      *testing.T
	data   string
	node   *nodefile.File
	cancel context.CancelFunc
	done   chan struct{}
	server *etcd.Server // valid after done
	err    error
	mu     sync.Mutex
	why    string
	rounds int // of queries after which it waits
}

// dataPath is the directory of a member's node file.
func dataPath(o etcd.Options) string { return filepath.Dir(o.Dir) }

// opening begins to open a member, like a starting process.
func opening(t *testing.T, o etcd.Options) *opened {
	node, err := nodefile.Open(vfs.OS, dataPath(o), "", ident.Node(o.Name))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	m := &opened{t: t, data: dataPath(o), node: node, cancel: cancel, done: make(chan struct{})}
	o.Node = node
	o.Waiting = func(why string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.why = why
		m.rounds++
	}
	go func() { // ends with Open
		defer close(m.done)
		m.server, m.err = etcd.Open(ctx, o)
	}()
	t.Cleanup(m.stop)
	return m
}

// stop ends the member, or its start.
func (m *opened) stop() {
	m.cancel()
	<-m.done
	if m.server != nil {
		m.server.Stop()
	}
}

// up waits until the member votes, and records the start as a broker does.
func (m *opened) up() *etcd.Server {
	m.t.Helper()
	if !wait.Holds(func() bool {
		select {
		case <-m.done:
			return true
		default:
			return false
		}
	}) {
		require.FailNow(m.t, "not open", m.waiting())
	}
	require.NoError(m.t, m.err)
	ready(m.t, m.server)
	require.NoError(m.t, m.server.Promote(wait.Context(m.t)))
	m.settle()
	return m.server
}

// settle raises the boot counter and renews the marks.
func (m *opened) settle() {
	marks, err := nodefile.Mark(m.data)
	require.NoError(m.t, err)
	require.NoError(m.t, m.node.Update(func(r *nodefile.Record) {
		now := r.State().Begin(rand.Text(), lifecycle.DiskState{})
		r.Boot, r.Starts, r.Marks, r.Doubted = now.Boot, now.Starts, marks, false
	}))
}

// waits waits until the member reports why it waits.
func (m *opened) waits(missing string) {
	m.t.Helper()
	wait.Until(m.t, func() bool { return strings.Contains(m.waiting(), missing) }, "it waits: %s", missing)
	m.stillWaits()
}

func (m *opened) stillWaits() {
	m.t.Helper()
	select {
	case <-m.done:
		require.FailNow(m.t, "it does not wait", "%v", m.err)
	default:
	}
}

// goesOnWaiting waits until the member has queried the others several times, in vain.
func (m *opened) goesOnWaiting() {
	m.t.Helper()
	rounds := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.rounds
	}
	before := rounds()
	wait.Until(m.t, func() bool { m.stillWaits(); return rounds() >= before+10 }, "it queries the others again")
}

func (m *opened) waiting() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.why
}

// observe makes a member store the others' states.
func observe(t *testing.T, by *opened, others ...*opened) {
	states := map[string]lifecycle.DiskState{}
	for _, o := range others {
		r := o.node.Record()
		states[string(r.Node)] = r.State()
	}
	require.NoError(t, by.node.Observe(states))
}

// open opens one member whose cluster runs.
func open(t *testing.T, o etcd.Options) *etcd.Server {
	t.Helper()
	m := opening(t, o)
	<-m.done
	require.NoError(t, m.err)
	return m.server
}

// openAll founds a cluster.
func openAll(t *testing.T, members []etcd.Options) (all []*opened) {
	for _, o := range members {
		all = append(all, opening(t, o))
	}
	for _, m := range all {
		m.up()
	}
	return all
}

func put(t *testing.T, s *etcd.Server, key string) {
	t.Helper()
	putBy(t, client(t, s), key)
}

func putBy(t *testing.T, c *clientv3.Client, key string) {
	t.Helper()
	wait.Until(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), attempt)
		defer cancel()
		_, err := c.Put(ctx, key, "v")
		return err == nil
	}, "%s is written", key)
}

func has(t *testing.T, s *etcd.Server, key string) {
	t.Helper()
	r, err := client(t, s).Get(wait.Context(t), key)
	require.NoError(t, err)
	require.Len(t, r.Kvs, 1, "what was committed is there")
	require.Equal(t, "v", string(r.Kvs[0].Value))
}

// copyOf copies a data path, like an operator's backup; the returned function replaces the
// original by the copy.
func copyOf(t *testing.T, data string) (restore func()) {
	aside := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, etcd.Copy(aside, data))
	return func() {
		require.NoError(t, os.RemoveAll(data))
		require.NoError(t, os.CopyFS(data, os.DirFS(aside)))
	}
}

func TestFoundedByAllTogether(t *testing.T) {
	t.Parallel()
	members := three(t)
	first, second := opening(t, members[0]), opening(t, members[1])
	first.waits("n3")
	second.waits("n3")
	third := opening(t, members[2])
	for _, m := range []*opened{first, second, third} {
		m.up()
	}
	require.Equal(t, first.node.Record().Foundation, third.node.Record().Foundation)
	require.NotNil(t, first.node.Record().Foundation)
}

// TestFoundedWithoutOne: an operator names a member that will come later.
func TestFoundedWithoutOne(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member in only after five quiet seconds")
	}
	members := three(t, func(o *etcd.Options) { o.Absent = []string{"n3"} })
	two := openAll(t, members[:2])
	put(t, two[0].server, "k")
	has(t, opening(t, members[2]).up(), "k")
}

// TestNotFoundedTwice: two of three founded a cluster; one of them loses its disk and starts
// with the third, which has never run. The entries on the second must remain.
func TestNotFoundedTwice(t *testing.T) {
	t.Parallel()
	members := three(t, func(o *etcd.Options) { o.Absent = []string{"n3"} })
	two := openAll(t, members[:2])
	put(t, two[0].server, "k")
	two[0].stop()
	two[1].stop()
	require.NoError(t, os.RemoveAll(dataPath(members[0])))
	for i := range members {
		members[i].Absent = nil
	}
	first, third := opening(t, members[0]), opening(t, members[2])
	first.waits("n2")
	third.waits("n2")
	first.goesOnWaiting()
	third.goesOnWaiting()
	second := opening(t, members[1])
	<-second.done
	require.NoError(t, second.err)
	first.waits("n2 holds metadata")
	third.waits("n2 holds metadata")
}

// TestWipedMemberComesBack deletes the data path of one member of three.
func TestWipedMemberComesBack(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members := three(t)
	all := openAll(t, members)
	put(t, all[0].server, "k")
	old := all[2].server.MemberID()
	all[2].stop()
	require.NoError(t, os.RemoveAll(dataPath(members[2])))
	again := opening(t, members[2]).up()
	require.NotEqual(t, old, again.MemberID())
	has(t, again, "k")
	all[0].stop() // the new one votes: two of three are a majority
	put(t, again, "k2")
}

// TestLostDirectory: only the metadata directory is gone. The node file shows that
// the member has voted.
func TestLostDirectory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members := three(t)
	all := openAll(t, members)
	old := all[2].server.MemberID()
	for _, m := range all {
		m.stop()
	}
	require.NoError(t, os.RemoveAll(members[2].Dir))
	lost, first := opening(t, members[2]), opening(t, members[0])
	lost.waits("the metadata directory of this broker is gone")
	first.up1(t, opening(t, members[1]))
	require.NotEqual(t, old, lost.up().MemberID())
}

// up1 starts two members that need each other.
func (m *opened) up1(t *testing.T, other *opened) {
	t.Helper()
	<-m.done
	other.up()
	m.up()
}

// TestOldCopyDoesNotVote: n1 was restored from a copy; n3 was down when n1 and n2 committed an
// entry that only n2 has now. n1 and n3 are a majority without it.
func TestOldCopyDoesNotVote(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members := three(t)
	all := openAll(t, members)
	restore := copyOf(t, dataPath(members[0]))
	all[2].stop()
	put(t, all[0].server, "k")
	all[0].stop()
	all[1].stop()
	restore()
	first, third := opening(t, members[0]), opening(t, members[2])
	first.waits("the data path is a copy")
	<-third.done
	second := opening(t, members[1])
	second.up()
	has(t, third.up(), "k")
	has(t, first.up(), "k")
}

// TestOldSnapshotDoesNotVote: like the snapshot of a machine the copy has no marks; n2 saw the
// later life of n1, and answers in time.
func TestOldSnapshotDoesNotVote(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members := three(t)
	all := openAll(t, members)
	restore := copyOf(t, dataPath(members[0]))
	all[2].stop()
	put(t, all[0].server, "k")
	all[0].settle()
	observe(t, all[1], all[0], all[2])
	all[0].stop()
	all[1].stop()
	restore()
	node, err := nodefile.Open(vfs.OS, dataPath(members[0]), "", "n1")
	require.NoError(t, err)
	marks, err := nodefile.Mark(dataPath(members[0]))
	require.NoError(t, err)
	require.NoError(t, node.Update(func(r *nodefile.Record) { r.Marks = marks }))

	second := opening(t, members[1])
	<-second.done
	first, third := opening(t, members[0]), opening(t, members[2])
	first.waits("n2 saw boot counter")
	third.up()
	second.up()
	has(t, first.up(), "k")
}

// TestForkIsNotJoined: n1 runs on an older state of its disk than n2 saw. Both say it, and the remedy.
func TestForkIsNotJoined(t *testing.T) {
	t.Parallel()
	members := three(t)
	all := openAll(t, members)
	observe(t, all[1], all[0], all[2])
	all[1].stop()
	require.NoError(t, all[0].node.Update(func(r *nodefile.Record) { r.Boot-- }))
	opening(t, members[1]).waits("n1 runs on an old copy of its disk")
	why := all[0].server.Missing(t.Context())
	require.Contains(t, why, "n2 at http://"+members[1].PeerAddress+": it waits, because this broker runs on an old copy of its disk")
	require.Contains(t, why, "stop this broker")
}

// TestForkThatPassedIsNotJoined: n1 lived on with n3 on an old state of its disk, until its boot counter was that of the
// later life that n2 saw, and beyond. n2 does not start, neither alongside n1 nor alongside n3 alone, and n1 not alongside n2.
func TestForkThatPassedIsNotJoined(t *testing.T) {
	t.Parallel()
	members := three(t)
	all := openAll(t, members)
	was := all[0].node.Record()
	all[0].settle() // its later life
	observe(t, all[1], all[0], all[2])
	all[1].stop()
	require.NoError(t, all[0].node.Update(func(r *nodefile.Record) { r.Boot, r.Starts = was.Boot, was.Starts }))
	all[0].settle()
	all[0].settle()
	observe(t, all[2], all[0], all[1])

	second := opening(t, members[1])
	second.waits("n1 runs on an old copy of its disk: this broker saw its boot counter at 2 in another start, it has 3 now. The metadata has two histories")
	all[0].stop()
	second.waits("n1 ran on an old copy of its disk: this broker saw its boot counter at 2, n3 saw it at 3 in another start. The metadata has two histories")
	opening(t, members[0]).waits("n2 saw boot counter 2 of this broker in another start, its data path has 3: the data path is an old copy. The metadata has two histories")
}

// TestOtherFoundation: members of two foundations do not start together.
func TestOtherFoundation(t *testing.T) {
	t.Parallel()
	members := three(t)
	all := openAll(t, members)
	all[1].stop()
	require.NoError(t, all[1].node.Update(func(r *nodefile.Record) {
		r.Foundation = &lifecycle.Foundation{ID: "another", Founders: r.Foundation.Founders}
	}))
	refused := opening(t, members[1])
	<-refused.done
	require.ErrorIs(t, refused.err, etcd.ErrRefused)
	require.ErrorContains(t, refused.err, "belongs to another foundation")
}

// TestTwin: a copied configuration starts on another host while the member runs.
func TestTwin(t *testing.T) {
	t.Parallel()
	members := three(t)
	all := openAll(t, members)
	twin := members[1]
	twin.Dir = filepath.Join(t.TempDir(), "etcd")
	twin.PeerAddress, twin.ClientAddress = freeAddress(t), freeAddress(t)
	refused := opening(t, twin)
	<-refused.done
	require.ErrorIs(t, refused.err, etcd.ErrOptions)
	require.ErrorContains(t, refused.err, "n2 runs at")
	put(t, all[1].server, "the member that runs goes on")
}

// TestNameIsTaken: no process answers at the member's address, but its broker is registered in
// the cluster.
func TestNameIsTaken(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members := three(t)
	all := openAll(t, members)
	all[1].stop()
	moved := members[1]
	moved.Dir = filepath.Join(t.TempDir(), "etcd")
	moved.NameTaken = func(context.Context, *clientv3.Client) error { return etcd.ErrOptions }
	refused := opening(t, moved)
	<-refused.done
	require.ErrorIs(t, refused.err, etcd.ErrOptions)
	list, err := client(t, all[0].server).MemberList(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Members, 3, "nothing was changed")
}

// TestWipedMemberComesBackElsewhere: a broker that died permanently is replaced on another host,
// under its name. While it runs no other broker gets its name.
func TestWipedMemberComesBackElsewhere(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members := three(t)
	all := openAll(t, members)
	moved := options(t, members[2].Name)
	moved.InitialCluster = strings.Replace(members[2].InitialCluster, members[2].PeerAddress, moved.PeerAddress, 1)
	refused := opening(t, moved)
	<-refused.done
	require.ErrorIs(t, refused.err, etcd.ErrOptions)
	require.ErrorContains(t, refused.err, "runs at")

	all[2].stop()
	again := opening(t, moved).up()
	all[0].stop() // the dead member does not count any more
	put(t, again, "k")
}

// TestMemberThatMovedPublishesItsAddress: its directory moved with it to another host.
func TestMemberThatMovedPublishesItsAddress(t *testing.T) {
	t.Parallel()
	members, servers := startThree(t)
	servers[2].Stop()
	moved := members[2]
	moved.PeerAddress = freeAddress(t)
	moved.InitialCluster = strings.Replace(moved.InitialCluster, members[2].PeerAddress, moved.PeerAddress, 1)
	again := start(t, moved)
	ready(t, again)
	ctx := wait.Context(t)
	require.NoError(t, again.PublishAddress(ctx))
	list, err := client(t, servers[0]).MemberList(ctx)
	require.NoError(t, err)
	for _, m := range list.Members {
		if m.ID == again.MemberID() {
			require.Equal(t, []string{"http://" + moved.PeerAddress}, m.PeerURLs)
		}
	}
	servers[0].Stop()
	put(t, again, "k")
}

// TestMemberPublishesItsAddressUnderTLS: a broker that was tried alone, on loopback, is restarted as one of several,
// which use TLS. Another one joins before the first has published its new address.
func TestMemberPublishesItsAddressUnderTLS(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	ca.Issue("n")
	alone := options(t, "n1")
	alone.InitialCluster = "n1=http://" + alone.PeerAddress
	first := opening(t, alone)
	put(t, first.up(), "k")
	first.stop()

	members := []etcd.Options{alone, options(t, "n2")}
	members[0].PeerAddress = freeAddress(t)
	for i := range members {
		members[i].InitialCluster = "n1=https://" + members[0].PeerAddress + ",n2=https://" + members[1].PeerAddress
		members[i].TLS = etcd.TLS{Cert: ca.File("n.pem"), Key: ca.File("n.key"), CA: ca.File("ca.pem")}
	}
	again, second := opening(t, members[0]), opening(t, members[1])
	second.up()
	ctx := wait.Context(t)
	require.NoError(t, again.up().PublishAddress(ctx))
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{second.server.Local()}, DialTimeout: wait.Limit, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer c.Close()
	list, err := c.MemberList(ctx)
	require.NoError(t, err)
	var urls []string
	for _, m := range list.Members {
		urls = append(urls, m.PeerURLs...)
	}
	require.ElementsMatch(t, []string{"https://" + members[0].PeerAddress, "https://" + members[1].PeerAddress}, urls)
}

// TestMembersMove: all members get other addresses, one after the other.
func TestMembersMove(t *testing.T) {
	t.Parallel()
	members := three(t)
	all := openAll(t, members)
	ctx := wait.Context(t)
	for i := range members {
		all[i].stop()
		old, now := members[i].PeerAddress, freeAddress(t)
		members[i].PeerAddress = now
		for k := range members {
			members[k].InitialCluster = strings.Replace(members[k].InitialCluster, old, now, 1)
		}
		all[i] = opening(t, members[i])
		require.NoError(t, all[i].up().PublishAddress(ctx))
	}
	put(t, all[0].server, "k")
}

// TestWipedMemberWaitsForOthers stops all three, deletes the directory of one, and starts that
// one first. As a founder it would use its old identity, and its empty log would make a
// majority with a member that lacks committed entries.
func TestWipedMemberWaitsForOthers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members := three(t)
	all := openAll(t, members)
	old := all[2].server.MemberID()
	all[1].stop()
	put(t, all[0].server, "k")
	all[0].stop()
	all[2].stop()
	require.NoError(t, os.RemoveAll(dataPath(members[2])))

	wiped := opening(t, members[2])
	wiped.waits("n1, n2")
	first, second := opening(t, members[1]), opening(t, members[0])
	first.up()
	second.up()
	again := wiped.up()
	require.NotEqual(t, old, again.MemberID())
	has(t, again, "k")
}

// TestWipedMemberBelievesNoOldList: while one of five joins as a new member, another one
// starts that was stopped since the founding. It answers with the original list of members.
func TestWipedMemberBelievesNoOldList(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members := several(t, 5)
	all := openAll(t, members)
	wiped, asleep := 0, 1
	for i := range members { // etcd itself would query in the order of addresses
		if members[i].PeerAddress < members[asleep].PeerAddress && i != wiped {
			asleep = i
		}
	}
	old := all[wiped].server.MemberID()
	serve := oldList(t, members[asleep].PeerAddress)
	all[asleep].stop()
	all[wiped].stop()
	require.NoError(t, os.RemoveAll(dataPath(members[wiped])))
	serve()
	require.NotEqual(t, old, opening(t, members[wiped]).up().MemberID())
}

// oldList reads the list of members at a peer address. serve, which may be called when that
// member has ended, answers with the list there as if no member had run yet.
func oldList(t *testing.T, address string) (serve func()) {
	resp, err := http.Get("http://" + address + "/members")
	require.NoError(t, err)
	defer resp.Body.Close()
	var list []map[string]json.RawMessage
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&list))
	for _, m := range list {
		delete(m, "clientURLs")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /members", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Etcd-Cluster-ID", resp.Header.Get("X-Etcd-Cluster-ID"))
		_ = json.NewEncoder(w).Encode(list)
	})
	return func() {
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		s := httptest.NewUnstartedServer(mux)
		_ = s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
	}
}

// TestFounderThatIsLate: the three agreed to found; the third cannot start yet, and starts
// when the others have gone on for a while.
func TestFounderThatIsLate(t *testing.T) {
	t.Parallel()
	members := three(t)
	taken, err := net.Listen("tcp", members[2].ClientAddress)
	require.NoError(t, err)
	first, second, third := opening(t, members[0]), opening(t, members[1]), opening(t, members[2])
	<-third.done
	require.Error(t, third.err)
	first.up()
	second.up()
	put(t, first.server, "k")
	require.NoError(t, taken.Close())
	again := opening(t, members[2]).up()
	has(t, again, "k")
	list, err := client(t, first.server).MemberList(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Members, 3, "it has the identity that it was founded with")
}

func TestOpenUnderTLS(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	ca.Issue("n")
	members := three(t, func(o *etcd.Options) {
		o.TLS = etcd.TLS{Cert: ca.File("n.pem"), Key: ca.File("n.key"), CA: ca.File("ca.pem")}
	})
	for i := range members {
		members[i].InitialCluster = strings.ReplaceAll(members[i].InitialCluster, "http:", "https:")
	}
	openAll(t, members)
}

func TestOpenOnlyMember(t *testing.T) {
	t.Parallel()
	lone := options(t, "n1")
	m := opening(t, lone)
	put(t, m.up(), "k")
	m.stop()
	m = opening(t, lone)
	has(t, m.up(), "k")
	m.stop()
	require.NoError(t, os.RemoveAll(lone.Dir))
	m = opening(t, lone)
	<-m.done
	require.ErrorIs(t, m.err, etcd.ErrRefused, "its metadata is gone: a new one would be empty")

	wrong := options(t, "n1")
	wrong.InitialCluster = "n3=http://" + wrong.PeerAddress + ",n2=http://" + freeAddress(t)
	m = opening(t, wrong)
	<-m.done
	require.ErrorIs(t, m.err, etcd.ErrOptions)
}
