package disks

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestTwoOfThreeDisksDestroyed: the broker that is left holds everything, and the
// metadata with it. Its member of etcd continues alone on the operator's word, the
// others join with empty disks, and nothing is lost (P1).
func TestTwoOfThreeDisksDestroyed(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 2)
	const messages = 200
	for i := range messages {
		require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[i%3], e2etest.Topic, fmt.Sprintf("m%d", i)))
	}
	c.Whole(e2etest.Topic)
	c.CrashAll()
	const survivor = "n2"
	destroyDisksBut(c, survivor)
	b, err := c.Broker(survivor)
	require.NoError(t, err)
	args := []string{"recover", "metadata", "--data-path", b.DataDir, "--node-name", survivor}
	out, err := c.Nsqctl(args...)
	require.Error(t, err, "without a confirmation: %s", out)
	c.Must(append(args, "--confirm", survivor)...)
	c.Restart(survivor)
	for _, name := range e2etest.Names(c) {
		if name != survivor {
			c.Restart(name)
		}
	}
	c.Whole(e2etest.Topic)
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "after"))
	c.Until("all messages", func() bool { return c.Committed(e2etest.Topic) == messages+1 })
	c.Check(e2etest.Topic)
}

// TestInSyncDisksDestroyed: the third replica was away when the two that were in
// sync lost their disks. No broker leads with what it holds until an operator
// says so, knowing what is lost.
func TestInSyncDisksDestroyed(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	c := e2etest.External(t, e2etest.ExternalEtcd(t).Endpoint, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	survivor := e2etest.Names(c)[0]
	if c.Leader(e2etest.Topic) == survivor {
		survivor = e2etest.Names(c)[1]
	}
	for i := range 100 {
		require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[2], e2etest.Topic, fmt.Sprintf("kept%d", i)))
	}
	c.Crash(survivor)
	for i := range 50 {
		require.Equal(t, judge.OK, e2etest.PutOnce(c.Other(survivor), e2etest.Topic, fmt.Sprintf("lost%d", i)))
	}
	for _, name := range e2etest.Names(c) {
		if name != survivor {
			c.Crash(name)
		}
	}
	destroyDisksBut(c, survivor)
	for _, name := range e2etest.Names(c) {
		c.Restart(name)
	}
	out, err := c.Nsqctl("recover", "topic", e2etest.Topic)
	require.NoError(t, err, out)
	require.Contains(t, out, "led by no broker")
	require.Contains(t, out, survivor+" has the most messages: 0 to 99.")
	t.Log("\n" + out)
	args := []string{"recover", "topic", e2etest.Topic, "--from", survivor, "--confirm"}
	out, err = c.Nsqctl(append(args, "yes")...)
	require.Error(t, err, out)
	c.Must(append(args, e2etest.Topic+"/0")...)
	c.Whole(e2etest.Topic)
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "after"))
	c.Until("what was left, and one more", func() bool { return c.Committed(e2etest.Topic) == 101 })
	c.Check(e2etest.Topic)
}

// destroyDisksBut removes the data paths of all brokers but one; none runs.
func destroyDisksBut(c *e2etest.Cluster, survivor string) {
	c.T.Helper()
	for _, b := range c.Brokers {
		if b.Name != survivor {
			require.NoError(c.T, os.RemoveAll(b.DataDir))
		}
	}
}

// TestOldDiskComesBackAfterARecovery: an operator has recovered a partition without messages
// that were acknowledged; then the disk that has them comes back. Its broker joins with an alarm
// for this partition, the operator saves the messages and gives the replica up.
func TestOldDiskComesBackAfterARecovery(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	promtool := e2etest.Judged(t)
	c := e2etest.External(t, e2etest.ExternalEtcd(t).Endpoint, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	old := c.Leader(e2etest.Topic)
	survivor := e2etest.Names(c)[0]
	if old == survivor {
		survivor = e2etest.Names(c)[1]
	}
	for i := range 100 {
		require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[2], e2etest.Topic, fmt.Sprintf("kept%d", i)))
	}
	c.Crash(survivor)
	const lost = 200
	for i := range lost {
		require.Equal(t, judge.OK, e2etest.PutOnce(c.Other(survivor), e2etest.Topic, fmt.Sprintf("lost%d", i)))
	}
	for _, name := range e2etest.Names(c) {
		if name != survivor {
			c.Crash(name)
		}
	}
	b, err := c.Broker(old)
	require.NoError(t, err)
	kept := b.DataDir + ".kept"
	require.NoError(t, os.Rename(b.DataDir, kept))
	destroyDisksBut(c, survivor)
	for _, name := range e2etest.Names(c) {
		c.Restart(name)
	}
	c.Must("recover", "topic", e2etest.Topic, "--from", survivor, "--confirm", e2etest.Topic+"/0")
	c.Whole(e2etest.Topic)
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "after"))

	c.Crash(old)
	require.NoError(t, os.RemoveAll(b.DataDir))
	require.NoError(t, os.Rename(kept, b.DataDir))
	w := e2etest.NewWalk(c)
	w.Scrape(8)
	f := w.Fail("old-disk", "a disk with messages that an operator gave up comes back", survivor, func() { c.Restart(old) })
	c.Until("an alarm", func() bool {
		w.Scrape(1)
		return strings.Contains(c.Logged(old), "an unclean recovery continued without messages that are here")
	})
	w.Scrape(3)
	f.Shown("on " + old + " refuses what its leader sends: replica: an unclean recovery continued")
	f.Asked(1, "1 partition has fewer in-sync replicas")
	f.Fires("LockstepReplicaAlarm")
	f.Noted()
	w.Judge(promtool)
	out, err := c.Nsqctl("peek", e2etest.Topic, "--node", old, "--uncommitted", "--from", "100", "-n", "1000000", "-o", "json")
	require.NoError(t, err, out)
	require.Equal(t, lost, strings.Count(out, `"body":"lost`), "what was acknowledged is not there any more")
	out, err = c.Nsqctl("recover", "topic", e2etest.Topic, "--discard", old, "--confirm", "yes")
	require.Error(t, err, out)
	c.Must("recover", "topic", e2etest.Topic, "--discard", old, "--confirm", e2etest.Topic+"/0")
	c.Whole(e2etest.Topic)
	c.Until("what was gone on with, and one more", func() bool { return c.Committed(e2etest.Topic) == 101 })
	c.Check(e2etest.Topic)
}
