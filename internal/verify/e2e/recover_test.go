package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestTwoOfThreeDisksDestroyed: the broker that is left holds everything, and the
// metadata with it. Its member of etcd goes on alone on the operator's word, the
// others join with empty disks, and nothing is lost (P1).
func TestTwoOfThreeDisksDestroyed(t *testing.T) {
	c := start(t, 3)
	c.create(topic, channel, 2)
	const messages = 200
	for i := range messages {
		require.Equal(t, history.OK, putOnce(c.Brokers[i%3], topic, fmt.Sprintf("m%d", i)))
	}
	c.whole(topic)
	c.killAll()
	const survivor = "n2"
	c.destroyDisksBut(survivor)
	b, err := c.Broker(survivor)
	require.NoError(t, err)
	args := []string{"recover", "metadata", "--data-path", b.DataDir, "--node-name", survivor}
	out, err := c.nsqctl(args...)
	require.Error(t, err, "without a confirmation: %s", out)
	c.must(append(args, "--confirm", survivor)...)
	c.restart(survivor)
	for _, name := range names(c) {
		if name != survivor {
			c.restart(name)
		}
	}
	c.whole(topic)
	require.Equal(t, history.OK, putOnce(c.Brokers[0], topic, "after"))
	c.until("all messages", func() bool { return c.committed(topic) == messages+1 })
	c.check(topic)
}

// TestInSyncDisksDestroyed: the third replica was away when the two that were in
// sync lost their disks. No broker leads with what it holds until an operator
// says so, knowing what is lost.
func TestInSyncDisksDestroyed(t *testing.T) {
	processes(t)
	c := external(t, externalEtcd(t).endpoint, 3)
	c.create(topic, channel, 1)
	survivor := names(c)[0]
	if c.leader(topic) == survivor {
		survivor = names(c)[1]
	}
	for i := range 100 {
		require.Equal(t, history.OK, putOnce(c.Brokers[2], topic, fmt.Sprintf("kept%d", i)))
	}
	c.kill(survivor)
	for i := range 50 {
		require.Equal(t, history.OK, putOnce(c.other(survivor), topic, fmt.Sprintf("lost%d", i)))
	}
	for _, name := range names(c) {
		if name != survivor {
			c.kill(name)
		}
	}
	c.destroyDisksBut(survivor)
	for _, name := range names(c) {
		c.restart(name)
	}
	out, err := c.nsqctl("recover", "topic", topic)
	require.NoError(t, err, out)
	require.Contains(t, out, "led by no broker")
	require.Contains(t, out, survivor+" holds the most: messages 0 to 99.")
	t.Log("\n" + out)
	args := []string{"recover", "topic", topic, "--from", survivor, "--confirm"}
	out, err = c.nsqctl(append(args, "yes")...)
	require.Error(t, err, out)
	c.must(append(args, topic+"/0")...)
	c.whole(topic)
	require.Equal(t, history.OK, putOnce(c.Brokers[0], topic, "after"))
	c.until("what was left, and one more", func() bool { return c.committed(topic) == 101 })
	c.check(topic)
}

// destroyDisksBut removes the data paths of all brokers but one; none runs.
func (c *cluster) destroyDisksBut(survivor string) {
	c.t.Helper()
	for _, b := range c.Brokers {
		if b.Name != survivor {
			require.NoError(c.t, os.RemoveAll(b.DataDir))
		}
	}
}

// committed counts the messages of a topic.
func (c *cluster) committed(topic string) (n uint64) {
	v, _ := c.topic(topic)
	for _, p := range v.Partitions {
		n += uint64(p.CommittedSequence)
	}
	return n
}

// TestOldDiskComesBackAfterARecovery: an operator has recovered a partition without messages
// that were acknowledged; then the disk that has them comes back. Its broker joins with an alarm
// for this partition, the operator saves the messages and gives the replica up.
func TestOldDiskComesBackAfterARecovery(t *testing.T) {
	processes(t)
	promtool := judged(t)
	c := external(t, externalEtcd(t).endpoint, 3)
	c.create(topic, channel, 1)
	old := c.leader(topic)
	survivor := names(c)[0]
	if old == survivor {
		survivor = names(c)[1]
	}
	for i := range 100 {
		require.Equal(t, history.OK, putOnce(c.Brokers[2], topic, fmt.Sprintf("kept%d", i)))
	}
	c.kill(survivor)
	const lost = 200
	for i := range lost {
		require.Equal(t, history.OK, putOnce(c.other(survivor), topic, fmt.Sprintf("lost%d", i)))
	}
	for _, name := range names(c) {
		if name != survivor {
			c.kill(name)
		}
	}
	b, err := c.Broker(old)
	require.NoError(t, err)
	kept := b.DataDir + ".kept"
	require.NoError(t, os.Rename(b.DataDir, kept))
	c.destroyDisksBut(survivor)
	for _, name := range names(c) {
		c.restart(name)
	}
	c.must("recover", "topic", topic, "--from", survivor, "--confirm", topic+"/0")
	c.whole(topic)
	require.Equal(t, history.OK, putOnce(c.Brokers[0], topic, "after"))

	c.kill(old)
	require.NoError(t, os.RemoveAll(b.DataDir))
	require.NoError(t, os.Rename(kept, b.DataDir))
	w := newWalk(c)
	w.scrape(8)
	f := w.fail("old-disk", "a disk with messages that an operator gave up comes back", survivor, func() { c.restart(old) })
	c.until("an alarm", func() bool {
		w.scrape(1)
		return strings.Contains(c.logged(old), "an unclean recovery went on without messages that are here")
	})
	w.scrape(3)
	f.shown("on " + old + " refuses what its leader sends: replica: an unclean recovery went on")
	f.asked(1, "1 partition has fewer in-sync replicas")
	f.fires("LockstepReplicaAlarm")
	f.noted()
	w.judge(promtool)
	out, err := c.nsqctl("peek", topic, "--node", old, "--uncommitted", "--from", "100", "-n", "1000000", "-o", "json")
	require.NoError(t, err, out)
	require.Equal(t, lost, strings.Count(out, `"body":"lost`), "what was acknowledged is not there any more")
	out, err = c.nsqctl("recover", "topic", topic, "--discard", old, "--confirm", "yes")
	require.Error(t, err, out)
	c.must("recover", "topic", topic, "--discard", old, "--confirm", topic+"/0")
	c.whole(topic)
	c.until("what was gone on with, and one more", func() bool { return c.committed(topic) == 101 })
	c.check(topic)
}
