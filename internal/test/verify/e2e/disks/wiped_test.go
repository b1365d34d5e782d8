package disks

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestWipedDataPath: brokers lose their disks, one after the other, the member
// of etcd included; each comes back empty, as a new member of both, and is
// filled again. At the end no disk is left that saw the first puts (P1).
func TestWipedDataPath(t *testing.T) {
	t.Parallel()
	s := e2etest.UnderLoad(t, 2)
	before := s.Counters()
	for _, victim := range e2etest.Names(s.Cluster) {
		b, err := s.Broker(victim)
		require.NoError(t, err)
		s.Crash(victim)
		require.NoError(t, os.RemoveAll(b.DataDir))
		began := time.Now()
		s.Restart(victim)
		s.Whole(e2etest.Topic)
		t.Logf("%s, wiped: ready and in sync again after %s", victim, time.Since(began).Round(time.Millisecond))
		s.WaitProgress(500)
	}
	s.Finish(t)
	require.NotEqual(t, before.Swaps+before.Grows, s.Counters().Swaps+s.Counters().Grows, "nobody was filled again")
}

// TestRestoredDataPath: a broker comes back with a copy of its disk of an
// earlier day, which lacks what it acknowledged since. It counts neither as a
// member of the in-sync sets nor as the member of etcd it was (P1, P8).
func TestRestoredDataPath(t *testing.T) {
	t.Parallel()
	s := e2etest.UnderLoad(t, 2)
	for _, victim := range e2etest.Names(s.Cluster)[:e2etest.Rounds(2, 3)] {
		b, err := s.Broker(victim)
		require.NoError(t, err)
		s.Crash(victim)
		yesterday := fmt.Sprintf("%s.yesterday", b.DataDir)
		require.NoError(t, exec.Command("cp", "-a", b.DataDir, yesterday).Run())
		s.Restart(victim)
		s.Whole(e2etest.Topic)
		s.WaitProgress(500)
		s.Crash(victim)
		require.NoError(t, os.RemoveAll(b.DataDir))
		require.NoError(t, os.Rename(yesterday, b.DataDir))
		began := time.Now()
		s.Restart(victim)
		s.Whole(e2etest.Topic)
		aside, err := filepath.Glob(filepath.Join(b.DataDir, "etcd.restored-*"))
		require.NoError(t, err)
		require.Len(t, aside, 1, "the old member of etcd was started again")
		t.Logf("%s, restored: ready and in sync again after %s", victim, time.Since(began).Round(time.Millisecond))
		s.WaitProgress(500)
	}
	s.Finish(t)
}

// TestWipedAlone: after the loss of the only copy the topic has no leader, and is not
// empty: no put is answered as if it had been stored.
func TestWipedAlone(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 3)
	c.CreateWith(e2etest.Topic, e2etest.Channel, "replication_factor", "1")
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "only"))
	holder := c.Leader(e2etest.Topic)
	b, err := c.Broker(holder)
	require.NoError(t, err)
	c.Crash(holder)
	require.NoError(t, os.RemoveAll(b.DataDir))
	require.NoError(t, c.Start(holder))
	c.Until(holder+" registered", func() bool { return brokerAlive(c, holder) })
	e2etest.Pause(2 * time.Second) // what must not happen
	v, ok := c.Topic(e2etest.Topic)
	require.True(t, ok)
	require.Empty(t, v.Partitions[0].Leader, "an empty disk leads")
}

// TestLostMetadata: a single broker whose metadata are gone does not begin with empty
// ones, unless nothing shows that it had any. Then it knows no topic, and no
// tombstone either: the files of the topics that it held stay (P1).
func TestLostMetadata(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 1)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "only"))
	c.Crash("n1")
	dir := c.Brokers[0].DataDir
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "etcd")))
	require.NoError(t, c.Start("n1"))
	c.Until("refusal", func() bool { return strings.Contains(c.Logged("n1"), "the metadata directory of this broker is gone") })
	c.Until("the end", func() bool { return len(c.Dead("n1")) == 1 })

	require.NoError(t, os.Remove(filepath.Join(dir, "node.json")))
	c.Restart("n1")
	c.Create("another", e2etest.Channel, 1) // the watch has delivered what there is
	e2etest.Pause(time.Second)              // what must not happen
	kept, err := filepath.Glob(filepath.Join(dir, "topics", e2etest.Topic+".*", "0"))
	require.NoError(t, err)
	require.Len(t, kept, 1, "the files of a partition went without a tombstone")
}

// brokerAlive says whether some broker sees another one alive.
func brokerAlive(c *e2etest.Cluster, name string) bool {
	for _, b := range c.Brokers {
		var v api.ClusterView
		if b.Name == name || c.Get(b, "/v1/cluster", &v) != nil {
			continue
		}
		for _, x := range v.Brokers {
			if x.Name == ident.Node(name) {
				return x.Alive
			}
		}
	}
	return false
}
