package topics

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestAdministration: with four brokers, and producers at all of them, a replica
// is moved, replication is changed, a broker is decommissioned and stopped. The
// cluster forgets it, its member of etcd too: three are left, of which one may
// die. Clients of other brokers notice none of it.
func TestAdministration(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 4)
	partitions := e2etest.Rounds(24, 100)
	c.Create(e2etest.Topic, e2etest.Channel, partitions)
	s := c.Loaded(2)

	v, _ := c.Topic(e2etest.Topic)
	have := v.Partitions[5].Replicas
	to := e2etest.Names(c)[slices.IndexFunc(e2etest.Names(c), func(n string) bool { return !slices.Contains(have, ident.Node(n)) })]
	c.Must("topic", "move", e2etest.Topic, "--partition", "5", "--from", string(have[0]), "--to", to, "--wait", "30s")
	v, _ = c.Topic(e2etest.Topic)
	require.EqualValues(t, to, v.Partitions[5].Replicas[0])

	c.Must("topic", "replication", e2etest.Topic, "--min-in-sync", "3", "--wait", "30s")
	c.Must("topic", "replication", e2etest.Topic, "--replication-factor", "4", "--wait", "60s")
	v, _ = c.Topic(e2etest.Topic)
	require.Len(t, v.Partitions[0].ISR, 4)
	require.Equal(t, 3, v.Partitions[0].MinInSync)
	c.Must("topic", "replication", e2etest.Topic, "--replication-factor", "3", "--min-in-sync", "2", "--wait", "60s")

	const leaving = "n3"
	began, moved := time.Now(), c.ReplicasOn(leaving)
	c.Must("cluster", "decommission", leaving, "--wait", "60s")
	took := time.Since(began)
	t.Logf("%d replicas moved in %s, %.0f a second", moved, took.Round(time.Millisecond), float64(moved)/took.Seconds())
	s.Down.Begin(leaving)
	require.NoError(t, c.Stop(leaving, 20*time.Second))
	var view api.ClusterView
	c.Until("the cluster forgets "+leaving, func() bool {
		return c.Get(c.Brokers[0], "/v1/cluster", &view) == nil && len(view.Brokers) == 3
	})
	require.Equal(t, metadata.Level, view.Level, "the feature level that all brokers have")
	require.NoError(t, c.Start(leaving))
	c.Until(leaving+" is refused", func() bool { return slices.Contains(c.Dead(), leaving) })
	require.Contains(t, e2etest.Tail(filepath.Join(c.Dir, leaving+".log"), 2<<10), "start it with an empty data path")
	c.Crash("n4")
	c.CreateWith("later", e2etest.Channel, "replication_factor", "2") // two of three members of etcd are a majority, two of four are none
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], "later", "stored"))
	c.Restart("n4")
	c.Must("cluster", "balance", "--wait", "60s")
	s.Finish(t)
}

// TestOneOfTwoBrokersIsDecommissioned: the one that stays has the metadata for itself.
func TestOneOfTwoBrokersIsDecommissioned(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 2)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	c.Must("topic", "replication", e2etest.Topic, "--replication-factor", "1", "--min-in-sync", "1", "--wait", "30s")
	c.Must("cluster", "decommission", "n2", "--wait", "30s")
	require.NoError(t, c.Stop("n2", 20*time.Second))
	var view api.ClusterView
	c.Until("the cluster forgets n2", func() bool { return c.Get(c.Brokers[0], "/v1/cluster", &view) == nil && len(view.Brokers) == 1 })
	require.NoError(t, c.Stop("n1", 20*time.Second))
	c.Restart("n1")
	c.CreateWith("later", e2etest.Channel, "replication_factor", "1")
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], "later", "stored"))
}
