package e2e

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestAdministration: with four brokers, and producers at all of them, a replica
// is moved, replication is changed, a broker is decommissioned and stopped. The
// cluster forgets it, its member of etcd too: three are left, of which one may
// die. Clients of other brokers notice none of it.
func TestAdministration(t *testing.T) {
	c := start(t, 4)
	partitions := rounds(24, 100)
	c.create(topic, channel, partitions)
	s := c.loaded(2)

	v, _ := c.topic(topic)
	have := v.Partitions[5].Replicas
	to := names(c)[slices.IndexFunc(names(c), func(n string) bool { return !slices.Contains(have, ident.Node(n)) })]
	c.must("topic", "move", topic, "--partition", "5", "--from", string(have[0]), "--to", to, "--wait", "30s")
	v, _ = c.topic(topic)
	require.EqualValues(t, to, v.Partitions[5].Replicas[0])

	c.must("topic", "replication", topic, "--min-in-sync", "3", "--wait", "30s")
	c.must("topic", "replication", topic, "--replication-factor", "4", "--wait", "60s")
	v, _ = c.topic(topic)
	require.Len(t, v.Partitions[0].ISR, 4)
	require.Equal(t, 3, v.Partitions[0].MinInSync)
	c.must("topic", "replication", topic, "--replication-factor", "3", "--min-in-sync", "2", "--wait", "60s")

	const leaving = "n3"
	began, moved := time.Now(), c.replicasOn(leaving)
	c.must("cluster", "decommission", leaving, "--wait", "60s")
	took := time.Since(began)
	t.Logf("%d replicas moved in %s, %.0f a second", moved, took.Round(time.Millisecond), float64(moved)/took.Seconds())
	s.down.begin(leaving)
	require.NoError(t, c.Stop(leaving, 20*time.Second))
	var view edge.ClusterView
	c.until("the cluster forgets "+leaving, func() bool {
		return c.get(c.Brokers[0], "/v1/cluster", &view) == nil && len(view.Brokers) == 3
	})
	require.Equal(t, meta.Level, view.Level, "the feature level that all brokers have")
	require.NoError(t, c.Start(leaving))
	c.until(leaving+" is refused", func() bool { return slices.Contains(c.Dead(), leaving) })
	require.Contains(t, tail(filepath.Join(c.dir, leaving+".log"), 2<<10), "start it with an empty data path")
	c.kill("n4")
	c.createWith("later", channel, "replication_factor", "2") // two of three members of etcd are a majority, two of four are none
	require.Equal(t, history.OK, putOnce(c.Brokers[0], "later", "stored"))
	c.restart("n4")
	c.must("cluster", "balance", "--wait", "60s")
	s.finish(t)
}

// must runs nsqctl.
func (c *cluster) must(args ...string) {
	c.t.Helper()
	out, err := c.nsqctl(args...)
	require.NoError(c.t, err, "nsqctl %v: %s", args, out)
}

// replicasOn counts a broker's replicas.
func (c *cluster) replicasOn(name string) (n int) {
	for _, t := range c.topics() {
		for _, p := range t.Partitions {
			if slices.Contains(p.Replicas, ident.Node(name)) {
				n++
			}
		}
	}
	return n
}

// TestOneOfTwoBrokersIsDecommissioned: the one that stays has the metadata for itself.
func TestOneOfTwoBrokersIsDecommissioned(t *testing.T) {
	c := start(t, 2)
	c.create(topic, channel, 1)
	c.must("topic", "replication", topic, "--replication-factor", "1", "--min-in-sync", "1", "--wait", "30s")
	c.must("cluster", "decommission", "n2", "--wait", "30s")
	require.NoError(t, c.Stop("n2", 20*time.Second))
	var view edge.ClusterView
	c.until("the cluster forgets n2", func() bool { return c.get(c.Brokers[0], "/v1/cluster", &view) == nil && len(view.Brokers) == 1 })
	require.NoError(t, c.Stop("n1", 20*time.Second))
	c.restart("n1")
	c.createWith("later", channel, "replication_factor", "1")
	require.Equal(t, history.OK, putOnce(c.Brokers[0], "later", "stored"))
}
