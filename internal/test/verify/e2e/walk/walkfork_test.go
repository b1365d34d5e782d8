package walk

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// TestWalkOfAFork: n1 is started first of all brokers, on an older snapshot of its disk without the marks of a copy. The
// others saw its later state: they wait until n1 has an empty data path, and nothing is lost.
func TestWalkOfAFork(t *testing.T) {
	e2etest.Walking(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	n1 := c.Brokers[0]

	snapshot := n1.DataDir + ".snapshot"
	c.Crash("n1")
	require.NoError(t, exec.Command("cp", "-a", n1.DataDir, snapshot).Run())
	c.Restart("n1")
	c.Whole(e2etest.Topic)
	e2etest.MultiPut(t, n1, e2etest.Topic, e2etest.Numbered("new", 500), 20)
	f := w.Fail("fork", "n1 is started on an older snapshot of its disk, before n2 and n3", "n1", func() {
		c.CrashAll()
		require.NoError(t, errors.Join(os.RemoveAll(n1.DataDir), os.Rename(snapshot, n1.DataDir)))
		unmark(t, n1.DataDir, "n1")
		require.NoError(t, c.Start("n1"))
		waits(c, "n1", "1 of 3 members of the metadata run, 2 are needed")
		require.NoError(t, errors.Join(c.Start("n2"), c.Start("n3")))
	})
	noPage(f, "this broker runs on an old copy of its disk")
	f.Noted()
	g := &e2etest.Failure{W: w, Name: "fork-n2", Row: "the same, looked at on n2", Looked: c.Brokers[1], Caused: f.Caused}
	noPage(g, "n1 runs on an old copy of its disk")
	g.Noted()
	waits(c, "n3", "n1 runs on an old copy of its disk")

	c.Crash("n1")
	require.NoError(t, os.RemoveAll(n1.DataDir))
	require.NoError(t, c.Start("n1"))
	for _, name := range e2etest.Names(c) {
		c.ReadyAgain(name)
	}
	c.Whole(e2etest.Topic)
	require.EqualValues(t, 500, c.Committed(e2etest.Topic), "the messages that the snapshot lacks")
	c.Check(e2etest.Topic)
}

// TestWalkOfTwoHistories: n1 is started on an older snapshot of its disk while n2, the only other broker that saw its later
// state, is down. With n3 it runs until its boot counter has passed that state. When n2 starts, both histories stay
// apart, and an operator may keep either.
func TestWalkOfTwoHistories(t *testing.T) {
	e2etest.Walking(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	n1, n2 := c.Brokers[0], c.Brokers[1]
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.Nsqctl("topic", "describe", e2etest.Topic)
			t.Log(out)
		}
	})
	put := func(topic string, names ...string) {
		for _, name := range names {
			c.Down.Begin(name)
			require.NoError(t, c.Start(name))
		}
		for _, name := range names {
			c.ReadyAgain(name)
		}
		e2etest.MultiPut(t, n1, topic, e2etest.Numbered(names[1], 500), 20)
	}

	snapshot := n1.DataDir + ".snapshot"
	c.CrashAll()
	require.NoError(t, exec.Command("cp", "-a", n1.DataDir, snapshot).Run())
	put(e2etest.Topic, "n1", "n2")
	c.Until("n2 to see the later life of n1", func() bool { return record(t, n2).Seen["n1"].Boot > read(t, snapshot, "n1").Boot+1 })
	c.Crash("n1")
	c.Crash("n2")
	require.NoError(t, errors.Join(os.RemoveAll(n1.DataDir), os.Rename(snapshot, n1.DataDir)))
	unmark(t, n1.DataDir, "n1")
	put(e2etest.Topic, "n1", "n3")
	for record(t, n1).Boot <= record(t, n2).Seen["n1"].Boot {
		c.Crash("n1")
		c.Restart("n1")
	}
	f := w.Fail("two-histories", "n1 runs with n3 on an older snapshot of its disk; n2, which saw its later state, is started when n1 has passed it", "n2", func() {
		require.NoError(t, c.Start("n2"))
	})
	noPage(f, "n1 runs on an old copy of its disk")
	noPage(f, "The metadata has two histories")
	f.Noted()
	e2etest.MultiPut(t, n1, e2etest.Topic, e2etest.Numbered("on", 10), 10) // n1 and n3 continue
	c.Crash("n1")
	require.NoError(t, c.Start("n1"))
	waits(c, "n1", "the data path is an old copy. The metadata has two histories")
	waits(c, "n2", "n1 ran on an old copy of its disk")

	c.Crash("n2")
	aside := n2.DataDir + ".aside"
	require.NoError(t, os.Rename(n2.DataDir, aside))
	require.NoError(t, c.Start("n2"))
	for _, name := range e2etest.Names(c) {
		c.ReadyAgain(name)
	}
	c.Whole(e2etest.Topic)
	require.EqualValues(t, 510, c.Committed(e2etest.Topic), "the history of n1 and n3 is kept")
	c.Check(e2etest.Topic)

	c.CrashAll()
	for _, b := range c.Brokers {
		require.NoError(t, os.RemoveAll(b.DataDir))
	}
	require.NoError(t, os.Rename(aside, n2.DataDir))
	out, err := c.Nsqctl("recover", "metadata", "--data-path", n2.DataDir, "--node-name", "n2", "--confirm", "n2")
	require.NoError(t, err, out)
	require.NoError(t, c.Start("n2"))
	require.NoError(t, errors.Join(c.Start("n1"), c.Start("n3")))
	for _, name := range e2etest.Names(c) {
		c.ReadyAgain(name)
	}
	recovered(c, "n2")
	require.EqualValues(t, 500, c.Committed(e2etest.Topic), "the history of n2 is kept")
	c.Check(e2etest.Topic)
	for _, name := range e2etest.Names(c) {
		require.NotContains(t, c.Logged(name), "panic")
	}
}

// recovered waits until all replicas are in sync. Partitions for which that takes longer are recovered from a
// broker's replica: its metadata may lack their last changes (docs/operations/failures.md, "Two histories").
func recovered(c *e2etest.Cluster, from string) {
	c.T.Helper()
	patience := time.Now().Add(20 * time.Second)
	c.Until("all replicas in sync", func() bool {
		v, ok := c.Topic(e2etest.Topic)
		if !ok || clusters.InSync(v) || time.Now().Before(patience) {
			return ok && clusters.InSync(v)
		}
		for _, p := range v.Partitions {
			number := strconv.Itoa(int(p.Partition))
			out, err := c.Nsqctl("recover", "topic", e2etest.Topic, "--partition", number, "--from", from, "--confirm", e2etest.Topic+"/"+number)
			c.T.Logf("recover topic, partition %s: %s %v", number, out, err)
		}
		patience = time.Now().Add(20 * time.Second)
		return false
	})
}

// record reads the node file of a broker.
func record(t *testing.T, b devcluster.Broker) nodefile.Record {
	return read(t, b.DataDir, ident.Node(b.Name))
}

func read(t *testing.T, dir string, name ident.Node) nodefile.Record {
	t.Helper()
	node, err := nodefile.Open(vfs.OS, dir, "", name)
	require.NoError(t, err)
	return node.Record()
}

// unmark removes the marks of a copy from a data path. The snapshot of a whole machine has none.
func unmark(t *testing.T, dir string, name ident.Node) {
	t.Helper()
	node, err := nodefile.Open(vfs.OS, dir, "", name)
	require.NoError(t, err)
	marks, err := nodefile.Mark(dir)
	require.NoError(t, err)
	require.NoError(t, node.Update(func(r *nodefile.Record) { r.Marks = marks }))
}
