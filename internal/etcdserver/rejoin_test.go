package etcdserver_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/etcdserver"
)

// TestWipedMemberComesBack deletes the directory of one member of three, which
// first hears nobody and takes itself for a founder.
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
	_, err = etcdserver.Start(ctx, members[2])
	require.ErrorIs(t, err, etcdserver.ErrFounded)
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

func TestRejoinLeavesOthersAlone(t *testing.T) {
	lone := options(t, "n1")
	o, err := etcdserver.Rejoin(t.Context(), lone)
	require.NoError(t, err)
	require.Equal(t, lone, o, "nobody to ask")

	founding := options(t, "n1")
	founding.InitialCluster = "n1=http://" + founding.PeerAddress + ",n2=http://" + freeAddress(t)
	o, err = etcdserver.Rejoin(t.Context(), founding)
	require.NoError(t, err)
	require.Equal(t, founding, o, "nobody answers")

	founding.InitialCluster = strings.ReplaceAll(founding.InitialCluster, "n1=", "n3=")
	_, err = etcdserver.Rejoin(t.Context(), founding)
	require.ErrorIs(t, err, etcdserver.ErrOptions)
}
