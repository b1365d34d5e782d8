package etcdserver_test

import (
	"context"
	"os"
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
	o, err := etcdserver.Rejoin(ctx, members[2])
	require.NoError(t, err)
	require.True(t, o.Join)
	again := start(t, o)
	wait(t, again)
	require.NotEqual(t, old, again.MemberID())
	require.NoError(t, again.Promote(ctx))
	r, err := client(t, again).Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(r.Kvs[0].Value))

	servers[0].Stop() // the new one votes: two of three are a majority
	require.Eventually(t, func() bool { _, err := client(t, again).Put(ctx, "k", "w"); return err == nil }, deadline, pollEvery)
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

	prepared := make(chan etcdserver.Options, 1)
	go func() { // ends with Rejoin
		o, err := etcdserver.Rejoin(t.Context(), members[2])
		assert.NoError(t, err)
		prepared <- o
	}()
	start(t, members[1])
	start(t, members[0])
	o := <-prepared
	require.True(t, o.Join)
	again := start(t, o)
	wait(t, again)
	require.NotEqual(t, old, again.MemberID())
}

func TestFoundersHearEachOther(t *testing.T) {
	members := three(t)
	founders := make(chan etcdserver.Options)
	for _, m := range members {
		go func() { // ends with the loop below
			o, err := etcdserver.Rejoin(t.Context(), m)
			assert.NoError(t, err)
			assert.Equal(t, m, o)
			founders <- o
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
	o, err := etcdserver.Rejoin(t.Context(), lone)
	require.NoError(t, err)
	require.Equal(t, lone, o, "nobody to ask")

	wrong := options(t, "n1")
	wrong.InitialCluster = "n3=http://" + wrong.PeerAddress + ",n2=http://" + freeAddress(t)
	_, err = etcdserver.Rejoin(t.Context(), wrong)
	require.ErrorIs(t, err, etcdserver.ErrOptions)
}
