package e2e

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestWipedDataPath: brokers lose their disks, one after the other, the member
// of etcd included; each comes back empty, as a new member of both, and is
// filled again. At the end no disk is left that saw the first puts (P1).
func TestWipedDataPath(t *testing.T) {
	s := underLoad(t, 2)
	before := s.counters()
	for _, victim := range names(s.cluster) {
		b, err := s.Broker(victim)
		require.NoError(t, err)
		s.kill(victim)
		require.NoError(t, os.RemoveAll(b.DataDir))
		began := time.Now()
		s.restart(victim)
		s.whole(topic)
		t.Logf("%s, wiped: ready and in sync again after %s", victim, time.Since(began).Round(time.Millisecond))
		s.waitProgress(500)
	}
	s.finish(t)
	require.NotEqual(t, before.Swaps+before.Grows, s.counters().Swaps+s.counters().Grows, "nobody was filled again")
}

// TestRestoredDataPath: a broker comes back with a copy of its disk of an
// earlier day, which lacks what it acknowledged since. It counts neither as a
// member of the in-sync sets nor as the member of etcd it was (P1, P8).
func TestRestoredDataPath(t *testing.T) {
	s := underLoad(t, 2)
	for _, victim := range names(s.cluster)[:rounds(2, 3)] {
		b, err := s.Broker(victim)
		require.NoError(t, err)
		s.kill(victim)
		yesterday := fmt.Sprintf("%s.yesterday", b.DataDir)
		require.NoError(t, exec.Command("cp", "-a", b.DataDir, yesterday).Run())
		s.restart(victim)
		s.whole(topic)
		s.waitProgress(500)
		s.kill(victim)
		require.NoError(t, os.RemoveAll(b.DataDir))
		require.NoError(t, os.Rename(yesterday, b.DataDir))
		began := time.Now()
		s.restart(victim)
		s.whole(topic)
		aside, err := filepath.Glob(filepath.Join(b.DataDir, "etcd.restored-*"))
		require.NoError(t, err)
		require.Len(t, aside, 1, "the old member of etcd was started again")
		t.Logf("%s, restored: ready and in sync again after %s", victim, time.Since(began).Round(time.Millisecond))
		s.waitProgress(500)
	}
	s.finish(t)
}

// TestWipedAlone: after the loss of the only copy the topic has no leader, and is not
// empty: no put is answered as if it had been stored.
func TestWipedAlone(t *testing.T) {
	c := start(t, 3)
	c.createWith(topic, channel, "replication_factor", "1")
	require.Equal(t, history.OK, putOnce(c.Brokers[0], topic, "only"))
	holder := c.leader(topic)
	b, err := c.Broker(holder)
	require.NoError(t, err)
	c.kill(holder)
	require.NoError(t, os.RemoveAll(b.DataDir))
	require.NoError(t, c.Start(holder))
	c.until(holder+" registered", func() bool { return c.brokerAlive(holder) })
	pause(2 * time.Second) // what must not happen
	v, ok := c.topic(topic)
	require.True(t, ok)
	require.Empty(t, v.Partitions[0].Leader, "an empty disk leads")
}

// TestLostMetadata: a single broker whose metadata are gone does not begin with empty
// ones, unless nothing shows that it had any. Then it knows no topic, and no
// tombstone either: the files of the topics that it held stay (P1).
func TestLostMetadata(t *testing.T) {
	c := start(t, 1)
	c.create(topic, channel, 1)
	require.Equal(t, history.OK, putOnce(c.Brokers[0], topic, "only"))
	c.kill("n1")
	dir := c.Brokers[0].DataDir
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "etcd")))
	require.NoError(t, c.Start("n1"))
	c.until("refusal", func() bool { return strings.Contains(c.logged("n1"), "the metadata directory of this broker is gone") })
	c.until("the end", func() bool { return len(c.Dead("n1")) == 1 })

	require.NoError(t, os.Remove(filepath.Join(dir, "node.json")))
	c.restart("n1")
	c.create("another", channel, 1) // the watch has delivered what there is
	pause(time.Second)              // what must not happen
	kept, err := filepath.Glob(filepath.Join(dir, "topics", topic+".*", "0"))
	require.NoError(t, err)
	require.Len(t, kept, 1, "the files of a partition went without a tombstone")
}

// createWith makes a topic and its channel with one more argument.
func (c *cluster) createWith(topic, channel, key, value string) {
	c.t.Helper()
	c.post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, key: {value}})
	c.post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {channel}})
}

// brokerAlive says whether some broker sees another one alive.
func (c *cluster) brokerAlive(name string) bool {
	for _, b := range c.Brokers {
		var v edge.ClusterView
		if b.Name == name || c.get(b, "/v1/cluster", &v) != nil {
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
