package etcd_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestRemovedMemberDoesNotCount: one of three members has stopped and is removed; then the
// remaining two are the whole cluster.
func TestRemovedMemberDoesNotCount(t *testing.T) {
	t.Parallel()
	members, servers := startThree(t)
	ctx := wait.Context(t)
	require.NoError(t, servers[0].Remove(ctx, "unknown"))
	require.Error(t, servers[0].Remove(ctx, ident.Node(members[0].Name)), "itself")
	servers[2].Stop()
	wait.Until(t, func() bool {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		return servers[0].Remove(ctx, ident.Node(members[2].Name)) == nil
	}, "the member is removed")
	list, err := client(t, servers[1]).MemberList(ctx)
	require.NoError(t, err)
	require.Len(t, list.Members, 2)
	require.NoError(t, servers[0].Remove(ctx, ident.Node(members[2].Name)), "again")

	removed := start(t, members[2])
	require.ErrorIs(t, removed.Wait(ctx), etcd.ErrRemoved)
	require.ErrorIs(t, <-removed.Err(), etcd.ErrRemoved, "not that its listeners fail")
}

// TestForceNewCluster: two of three directories are permanently lost. The third continues with its
// data, and the others join it as new members.
func TestForceNewCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member in only after five quiet seconds")
	}
	members := three(t)
	all := openAll(t, members)
	ctx := wait.Context(t)
	put(t, all[0].server, "k")
	for i, m := range all {
		m.stop()
		if i > 0 {
			require.NoError(t, os.RemoveAll(dataPath(members[i])))
		}
	}
	o := members[0]
	o.PeerAddress, o.ClientAddress = freeAddress(t), freeAddress(t)
	lone, err := etcd.ForceNewCluster(ctx, o)
	require.NoError(t, err)
	has(t, lone, "k")
	lone.Stop()

	opening(t, members[0]).up()
	again := open(t, members[1])
	ready(t, again)
	require.NoError(t, again.Promote(ctx))

	o.Dir = t.TempDir()
	_, err = etcd.ForceNewCluster(ctx, o)
	require.ErrorIs(t, err, etcd.ErrOptions, "no member there")
}

// TestNewMemberOfAnIdleCluster: a member joins by a snapshot, more than 5,000 entries behind, and nobody writes
// after that. etcd counts what a member has applied only from the next entry on, and refuses all proposals of one
// that seems so far behind, that of its own name too.
func TestNewMemberOfAnIdleCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd lets a member in only after five quiet seconds")
	}
	first, second := options(t, "n1"), options(t, "n2")
	first.InitialCluster = "n1=http://" + first.PeerAddress
	second.InitialCluster = first.InitialCluster + ",n2=http://" + second.PeerAddress
	founder := opening(t, first).up()
	c := client(t, founder)
	var writers sync.WaitGroup
	for w := range 100 {
		writers.Go(func() {
			for t.Context().Err() == nil {
				if r, err := c.Put(t.Context(), fmt.Sprint(w), "v"); err == nil && r.Header.Revision > 6000 {
					return
				}
			}
		})
	}
	writers.Wait()
	m := opening(t, second)
	<-m.done
	require.NoError(t, m.err)
	ready(t, m.server)
}
