package etcdserver_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/etcdserver"
)

// TestWipedMemberComesBack deletes the directory of one member of three.
func TestWipedMemberComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members, servers := startThree(t)
	_, err := client(t, servers[0]).Put(t.Context(), "k", "v")
	require.NoError(t, err)
	old := servers[2].MemberID()
	servers[2].Stop()
	require.NoError(t, os.RemoveAll(members[2].Dir))

	ctx, cancel := context.WithTimeout(t.Context(), 2*deadline)
	defer cancel()
	joined, err := etcdserver.Rejoin(ctx, members[2])
	require.NoError(t, err)
	require.True(t, joined)
	again := start(t, members[2])
	wait(t, again)
	require.NotEqual(t, old, again.MemberID())
	require.NoError(t, again.Promote(ctx))
	r, err := client(t, again).Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(r.Kvs[0].Value))

	servers[0].Stop() // the new one votes: two of three are a majority
	require.Eventually(t, func() bool { _, err := client(t, again).Put(ctx, "k", "w"); return err == nil }, deadline, pollEvery)
}

// TestWipedMemberComesBackElsewhere: a broker that died for good is replaced on
// another host, under its name. While it runs nobody else gets its name.
func TestWipedMemberComesBackElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members, servers := startThree(t)
	moved := options(t, members[2].Name)
	moved.InitialCluster = strings.Replace(members[2].InitialCluster, members[2].PeerAddress, moved.PeerAddress, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*deadline)
	defer cancel()
	_, err := etcdserver.Rejoin(ctx, moved)
	require.ErrorIs(t, err, etcdserver.ErrOptions)
	require.ErrorContains(t, err, "runs at")

	servers[2].Stop()
	joined, err := etcdserver.Rejoin(ctx, moved)
	require.NoError(t, err)
	require.True(t, joined)
	again := start(t, moved)
	wait(t, again)
	require.NoError(t, again.Promote(ctx))
	servers[0].Stop() // the dead one does not count any more
	require.Eventually(t, func() bool { _, err := client(t, again).Put(ctx, "k", "w"); return err == nil }, deadline, pollEvery)
}

// TestMemberThatMovedTellsItsAddress: its directory went with it to another host.
func TestMemberThatMovedTellsItsAddress(t *testing.T) {
	members, servers := startThree(t)
	servers[2].Stop()
	moved := members[2]
	moved.PeerAddress = freeAddress(t)
	moved.InitialCluster = strings.Replace(moved.InitialCluster, members[2].PeerAddress, moved.PeerAddress, 1)
	again := start(t, moved)
	wait(t, again)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	require.NoError(t, again.TellAddress(ctx))
	list, err := client(t, servers[0]).MemberList(ctx)
	require.NoError(t, err)
	for _, m := range list.Members {
		if m.ID == again.MemberID() {
			require.Equal(t, []string{"http://" + moved.PeerAddress}, m.PeerURLs)
		}
	}
	servers[0].Stop()
	require.Eventually(t, func() bool { _, err := client(t, again).Put(ctx, "k", "w"); return err == nil }, deadline, pollEvery)
}

// TestMembersMove: all members get other addresses, one after the other.
func TestMembersMove(t *testing.T) {
	members, servers := startThree(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for i := range members {
		servers[i].Stop()
		old, now := members[i].PeerAddress, freeAddress(t)
		members[i].PeerAddress = now
		for k := range members {
			members[k].InitialCluster = strings.Replace(members[k].InitialCluster, old, now, 1)
		}
		servers[i] = start(t, members[i])
		require.NoError(t, servers[i].Wait(ctx))
		require.NoError(t, servers[i].TellAddress(ctx))
	}
	_, err := client(t, servers[0]).Put(ctx, "k", "v")
	require.NoError(t, err)
}

// TestWipedMemberWaitsForOthers stops all three, deletes the directory of one,
// and starts that one first: as a founder it would take its old identity, and its
// empty log would make a majority with one that lacks what was committed.
func TestWipedMemberWaitsForOthers(t *testing.T) {
	members, servers := startThree(t)
	old := servers[2].MemberID()
	servers[1].Stop()
	_, err := client(t, servers[0]).Put(t.Context(), "k", "v")
	require.NoError(t, err)
	servers[0].Stop()
	servers[2].Stop()
	require.NoError(t, os.RemoveAll(members[2].Dir))

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = etcdserver.Rejoin(ctx, members[2])
	require.ErrorIs(t, err, context.DeadlineExceeded, "nobody answers")

	prepared := make(chan bool, 1)
	go func() { // ends with Rejoin
		joined, err := etcdserver.Rejoin(t.Context(), members[2])
		assert.NoError(t, err)
		prepared <- joined
	}()
	start(t, members[1])
	start(t, members[0])
	require.True(t, <-prepared)
	again := start(t, members[2])
	wait(t, again)
	require.NotEqual(t, old, again.MemberID())
}

// TestWipedMemberBelievesNoOldList: while one of five joins anew, another wakes
// that has slept since the cluster was made, and tells who was to be in it.
func TestWipedMemberBelievesNoOldList(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd lets a member go only after five quiet seconds")
	}
	members, servers := startAll(t, several(t, 5))
	wiped, asleep := 0, 1
	for i := range members { // etcd itself would ask in the order of addresses
		if members[i].PeerAddress < members[asleep].PeerAddress && i != wiped {
			asleep = i
		}
	}
	old := servers[wiped].MemberID()
	serve := oldList(t, members[asleep].PeerAddress)
	servers[asleep].Stop()
	servers[wiped].Stop()
	require.NoError(t, os.RemoveAll(members[wiped].Dir))
	serve()

	ctx, cancel := context.WithTimeout(t.Context(), 2*deadline)
	defer cancel()
	joined, err := etcdserver.Rejoin(ctx, members[wiped])
	require.NoError(t, err)
	require.True(t, joined)
	again := start(t, members[wiped])
	require.NotEqual(t, old, again.MemberID())
	wait(t, again)
	require.NoError(t, again.Promote(ctx))
}

// oldList reads who is in a cluster from the member at a peer address; serve, which
// may be called when that has ended, tells it there as if nobody had run yet.
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

// TestFounderThatIsLate: the others have made the cluster with it, and go on.
func TestFounderThatIsLate(t *testing.T) {
	members := three(t)
	for _, s := range []*etcdserver.Server{start(t, members[0]), start(t, members[1])} {
		wait(t, s)
	}
	joined, err := etcdserver.Rejoin(t.Context(), members[2])
	require.NoError(t, err)
	require.False(t, joined)
	wait(t, start(t, members[2]))
}

func TestFoundersHearEachOther(t *testing.T) {
	members := three(t)
	founders := make(chan etcdserver.Options)
	for _, m := range members {
		go func() { // ends with the loop below
			joined, err := etcdserver.Rejoin(t.Context(), m)
			assert.NoError(t, err)
			assert.False(t, joined)
			founders <- m
		}()
	}
	var servers []*etcdserver.Server
	for range members {
		servers = append(servers, start(t, <-founders))
	}
	for _, s := range servers {
		wait(t, s)
	}
}

func TestRejoinLeavesOthersAlone(t *testing.T) {
	lone := options(t, "n1")
	joined, err := etcdserver.Rejoin(t.Context(), lone)
	require.NoError(t, err)
	require.False(t, joined, "nobody to ask")

	wrong := options(t, "n1")
	wrong.InitialCluster = "n3=http://" + wrong.PeerAddress + ",n2=http://" + freeAddress(t)
	_, err = etcdserver.Rejoin(t.Context(), wrong)
	require.ErrorIs(t, err, etcdserver.ErrOptions)
}
