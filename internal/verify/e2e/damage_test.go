package e2e

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestDamagedDisks: while all brokers are down a bit decays on each of their
// disks, in another old message each. The leader fetches each unreadable message
// from another broker and serves everything. The next leader does the same. In the
// end all replicas are equal and report no damage.
func TestDamagedDisks(t *testing.T) {
	c := start(t, 3)
	c.create(topic, channel, 1)
	old := numbered("old", 2000)
	puts := multiPut(t, c.Brokers[0], topic, old, 20)
	c.whole(topic)
	require.NoError(t, c.StopAll(startLimit)) // by then everything is in the segments
	for i, name := range names(c) {
		c.decay(name, old[300+500*i])
	}
	require.NoError(t, c.StartAll())
	c.ready()

	s := c.consume(topic, channel)
	s.waitDistinct(len(old))
	// The leadership may go back to the preferred broker meanwhile.
	limits := history.Limits{Redelivered: anyNumber}
	require.Empty(t, history.Check(history.History{Puts: puts, Deliveries: s.all()}, limits).Faults)
	first := c.leader(topic)

	c.kill(first)
	second := c.leader(topic)
	b, err := c.Broker(second)
	require.NoError(t, err)
	c.post(*b, "/channel/create", url.Values{"topic": {topic}, "channel": {"replay"}, "from": {"earliest"}})
	replay := c.consume(topic, "replay")
	replay.waitDistinct(len(old))
	require.Equal(t, checksum(old), replay.checksum())

	c.restart(first)
	c.whole(topic)
	c.check(topic) // reads all of every replica: the third one is repaired, too
	for _, name := range names(c) {
		require.Contains(t, c.logged(name), "DAMAGED")
		require.Contains(t, c.logged(name), "MENDED")
	}
	v, _ := c.topic(topic)
	require.Empty(t, v.Partitions[0].Damaged)
}

// TestDamagedEverywhere: the same message has decayed on all disks. It is named,
// never served, and a channel that is moved past it gets the rest.
func TestDamagedEverywhere(t *testing.T) {
	promtool := judged(t)
	c := start(t, 3)
	c.create(topic, channel, 1)
	old := numbered("old", 200)
	multiPut(t, c.Brokers[0], topic, old, 20)
	c.whole(topic)
	w := newWalk(c)
	w.scrape(8)
	w.expect()
	f := w.fail("damage", "a bit of one message decays on the disks of all brokers, which are down; from the start of the last", "n1", func() {
		require.NoError(t, c.StopAll(startLimit))
		for _, name := range names(c) {
			c.decay(name, old[110])
		}
		require.NoError(t, c.StartAll())
		c.ready()
	})
	f.caused = time.Now()
	s := c.consume(topic, channel)
	f.shown("damaged: 1 partition has a damaged place")
	f.asked(2, "damaged place")
	w.scrape(8)
	f.fires("LockstepDamagedPlaces")
	s.waitDistinct(100)
	c.until("the damage to be told", func() bool {
		v, _ := c.topic(topic)
		return len(v.Partitions) == 1 && len(v.Partitions[0].Damaged) > 0
	})
	v, _ := c.topic(topic)
	d := v.Partitions[0].Damaged[0]
	require.EqualValues(t, 100, d.FirstSequence)
	require.EqualValues(t, 120, d.EndSequence)
	out, err := c.nsqctl("cluster", "status")
	require.NoError(t, err)
	require.Contains(t, out, "sequences 100 to 120")
	out, err = c.nsqctl("check", topic, "--wait", "100ms")
	require.Error(t, err)
	require.Contains(t, out, "damaged")
	require.Equal(t, 100, s.distinct())
	out, err = c.nsqctl("channel", "seek", topic, channel, "120")
	require.NoError(t, err, out)
	s.waitDistinct(180)
	f.noted()
	w.judge(promtool)
	for _, x := range s.all() {
		require.False(t, x.Body >= old[100] && x.Body < old[120], "a damaged message was served: %s", x.Body)
	}
}

// TestDamageOfAnotherBroker: a message has decayed on the only disk that has it. The page of a broker
// without that replica, and nsqctl, show the place.
func TestDamageOfAnotherBroker(t *testing.T) {
	processes(t)
	c := start(t, 3)
	single := c.onOneDisk("n3")
	old := numbered("old", 200)
	multiPut(t, c.Brokers[0], single, old, 20)
	w := newWalk(c)
	f := w.fail("damage-elsewhere", "a bit of a message decays on n3, which alone has it and is down; from its start", "n1", func() {
		require.NoError(t, c.StopAll(startLimit))
		c.decay("n3", old[110])
		require.NoError(t, c.StartAll())
		c.ready()
	})
	f.caused = time.Now()
	b, err := c.Broker("n3")
	require.NoError(t, err)
	c.post(*b, "/channel/create", url.Values{"topic": {single}, "channel": {channel}, "from": {"earliest"}})
	c.consume(single, channel)
	f.shown("damaged: 1 partition has a damaged place that no replica could repair yet [" + single + "/0]")
	f.asked(2, single+"/0")
	var d struct {
		Partitions []struct{ Fault string }
	}
	require.NoError(t, c.get(f.looked, "/v1/console/topic?topic="+single, &d))
	require.Equal(t, "damaged", d.Partitions[0].Fault)
	var p struct {
		Partition struct {
			Fault   string
			Damaged []edge.DamageView
		}
	}
	require.NoError(t, c.get(f.looked, "/v1/console/partition?topic="+single+"&partition=0", &p))
	require.Equal(t, "damaged", p.Partition.Fault)
	require.Len(t, p.Partition.Damaged, 1)
	require.EqualValues(t, "n3", p.Partition.Damaged[0].Node)
	require.EqualValues(t, 120, p.Partition.Damaged[0].EndSequence)
	for name, page := range map[string]string{"topics": "topics", "topic": "topic/" + single, "partition": "topic/" + single + "/partition/0"} {
		w.camera.take("http://"+f.looked.HTTP+"/ui#/"+page, "damage-"+name, 1280, 900, false)
		w.camera.take("http://"+f.looked.HTTP+"/ui#/"+page, "damage-"+name+"-phone", 390, 844, true)
	}
	f.noted()
}

// decay flips one bit of a message in a segment of a broker that is down.
func (c *cluster) decay(name, body string) {
	c.t.Helper()
	b, err := c.Broker(name)
	require.NoError(c.t, err)
	files, err := filepath.Glob(filepath.Join(b.DataDir, "topics", "*", "*", "*.seg"))
	require.NoError(c.t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(c.t, err)
		if at := bytes.Index(content, []byte(body)); at >= 0 {
			content[at] ^= 1
			require.NoError(c.t, os.WriteFile(file, content, 0o600))
			return
		}
	}
	require.FailNow(c.t, "no segment holds the message", "%s, %s: %s", name, body, strings.Join(files, " "))
}

// logged is what a broker has written to its log.
func (c *cluster) logged(name string) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, name+".log"))
	require.NoError(c.t, err)
	return string(text)
}
