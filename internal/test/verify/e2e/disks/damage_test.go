package disks

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestDamagedDisks: while all brokers are down a bit decays on each of their
// disks, in another old message each. The leader fetches each unreadable message
// from another broker and serves everything. The next leader does the same. In the
// end all replicas are equal and report no damage.
func TestDamagedDisks(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	old := e2etest.Numbered("old", 2000)
	puts := e2etest.MultiPut(t, c.Brokers[0], e2etest.Topic, old, 20)
	c.Whole(e2etest.Topic)
	require.NoError(t, c.StopAll(e2etest.StartLimit)) // by then everything is in the segments
	for i, name := range e2etest.Names(c) {
		decay(c, name, old[300+500*i])
	}
	require.NoError(t, c.StartAll())
	c.WaitReady()

	s := c.Consume(e2etest.Topic, e2etest.Channel)
	s.WaitDistinct(len(old))
	s.Judge(puts)
	first := c.Leader(e2etest.Topic)

	c.Crash(first)
	second := c.Leader(e2etest.Topic)
	b, err := c.Broker(second)
	require.NoError(t, err)
	c.Post(*b, "/channel/create", url.Values{"topic": {e2etest.Topic}, "channel": {"replay"}, "from": {"earliest"}})
	replay := c.Consume(e2etest.Topic, "replay")
	replay.WaitDistinct(len(old))
	require.Equal(t, e2etest.Checksum(old), replay.Checksum())

	c.Restart(first)
	c.Whole(e2etest.Topic)
	c.Check(e2etest.Topic) // reads all of every replica: the third one is repaired, too
	for _, name := range e2etest.Names(c) {
		require.Contains(t, c.Logged(name), "damaged range")
		require.Contains(t, c.Logged(name), "damaged range repaired")
	}
	v, _ := c.Topic(e2etest.Topic)
	require.Empty(t, v.Partitions[0].Damaged)
}

// TestDamagedEverywhere: the same message has decayed on all disks. It is named,
// never served, and a channel that is moved past it gets the rest.
func TestDamagedEverywhere(t *testing.T) {
	t.Parallel()
	promtool := e2etest.Judged(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	old := e2etest.Numbered("old", 200)
	e2etest.MultiPut(t, c.Brokers[0], e2etest.Topic, old, 20)
	c.Whole(e2etest.Topic)
	w := e2etest.NewWalk(c)
	w.Scrape(8)
	w.Expect()
	f := w.Fail("damage", "a bit of one message decays on the disks of all brokers, which are down; from the start of the last", "n1", func() {
		require.NoError(t, c.StopAll(e2etest.StartLimit))
		for _, name := range e2etest.Names(c) {
			decay(c, name, old[110])
		}
		require.NoError(t, c.StartAll())
		c.WaitReady()
	})
	f.Caused = time.Now()
	s := c.Consume(e2etest.Topic, e2etest.Channel)
	f.Shown("damaged: 1 partition has a damaged place")
	f.Asked(2, "damaged place")
	w.Scrape(8)
	f.Fires("LockstepDamagedPlaces")
	s.WaitDistinct(100)
	c.Until("the damage to be told", func() bool {
		v, _ := c.Topic(e2etest.Topic)
		return len(v.Partitions) == 1 && len(v.Partitions[0].Damaged) > 0
	})
	v, _ := c.Topic(e2etest.Topic)
	d := v.Partitions[0].Damaged[0]
	require.EqualValues(t, 100, d.FirstSequence)
	require.EqualValues(t, 120, d.EndSequence)
	out, err := c.Nsqctl("cluster", "status")
	require.NoError(t, err)
	require.Contains(t, out, "sequences 100 to 120")
	out, err = c.Nsqctl("check", e2etest.Topic, "--wait", "100ms")
	require.Error(t, err)
	require.Contains(t, out, "damaged")
	require.Equal(t, 100, s.Distinct())
	out, err = c.Nsqctl("channel", "seek", e2etest.Topic, e2etest.Channel, "120")
	require.NoError(t, err, out)
	s.WaitDistinct(180)
	f.Noted()
	w.Judge(promtool)
	for _, x := range s.All() {
		require.False(t, x.Body >= old[100] && x.Body < old[120], "a damaged message was served: %s", x.Body)
	}
}

// TestDamageOfAnotherBroker: a message has decayed on the only disk that has it. The page of a broker
// without that replica, and nsqctl, show the place.
func TestDamageOfAnotherBroker(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	c := e2etest.Start(t, 3)
	single := c.OnOneDisk("n3")
	old := e2etest.Numbered("old", 200)
	e2etest.MultiPut(t, c.Brokers[0], single, old, 20)
	w := e2etest.NewWalk(c)
	f := w.Fail("damage-elsewhere", "a bit of a message decays on n3, which alone has it and is down; from its start", "n1", func() {
		require.NoError(t, c.StopAll(e2etest.StartLimit))
		decay(c, "n3", old[110])
		require.NoError(t, c.StartAll())
		c.WaitReady()
	})
	f.Caused = time.Now()
	b, err := c.Broker("n3")
	require.NoError(t, err)
	c.Post(*b, "/channel/create", url.Values{"topic": {single}, "channel": {e2etest.Channel}, "from": {"earliest"}})
	c.Consume(single, e2etest.Channel)
	f.Shown("damaged: 1 partition has a damaged place that no replica could repair yet [" + single + "/0]")
	f.Asked(2, single+"/0")
	var d struct {
		Partitions []struct{ Fault string }
	}
	require.NoError(t, c.Get(f.Looked, "/v1/console/topic?topic="+single, &d))
	require.Equal(t, "damaged", d.Partitions[0].Fault)
	var p struct {
		Partition struct {
			Fault   string
			Damaged []api.DamageView
		}
	}
	require.NoError(t, c.Get(f.Looked, "/v1/console/partition?topic="+single+"&partition=0", &p))
	require.Equal(t, "damaged", p.Partition.Fault)
	require.Len(t, p.Partition.Damaged, 1)
	require.EqualValues(t, "n3", p.Partition.Damaged[0].Node)
	require.EqualValues(t, 120, p.Partition.Damaged[0].EndSequence)
	for name, page := range map[string]string{"topics": "topics", "topic": "topic/" + single, "partition": "topic/" + single + "/partition/0"} {
		w.Camera.Take("http://"+f.Looked.HTTP+"/ui#/"+page, "damage-"+name, 1280, 900, false)
		w.Camera.Take("http://"+f.Looked.HTTP+"/ui#/"+page, "damage-"+name+"-phone", 390, 844, true)
	}
	f.Noted()
}

// decay flips one bit of a message in a segment of a broker that is down.
func decay(c *e2etest.Cluster, name, body string) {
	c.T.Helper()
	b, err := c.Broker(name)
	require.NoError(c.T, err)
	files, err := filepath.Glob(filepath.Join(b.DataDir, "topics", "*", "*", "*.seg"))
	require.NoError(c.T, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(c.T, err)
		if at := bytes.Index(content, []byte(body)); at >= 0 {
			content[at] ^= 1
			require.NoError(c.T, os.WriteFile(file, content, 0o600))
			return
		}
	}
	require.FailNow(c.T, "no segment holds the message", "%s, %s: %s", name, body, strings.Join(files, " "))
}
