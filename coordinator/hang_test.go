package coordinator_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// failover bounds the time from the moment when the leader's disk hangs to the answer of a
// put that a new leader stores: 2 s until the stall counts, an election, and a retry.
const failover = 4 * time.Second

// TestLeaderWhoseDiskHangsIsReplaced: calls to its disk neither succeed nor fail. No put is committed without it, and
// its process answers, so it does not count as dead. Without syncs the call that hangs is a write to the page cache.
//
// The node file answers, for goroutines that wait for its mutex would stop the bubble's time.
func TestLeaderWhoseDiskHangsIsReplaced(t *testing.T) {
	t.Parallel()
	hungDisks(t, func(t *testing.T, noSync, atLeader bool, hangs []vfstest.Call) {
		synctest.Test(t, func(t *testing.T) {
			d := newHungDisk(hangs...)
			d.spares = "node.json"
			testHungDisk(t, noSync, atLeader, d, failover)
		})
	})
}

// hungDisks runs a test with disks that hang in different calls. atLeader: the put that meets the
// hang comes from the leader's own client.
func hungDisks(t *testing.T, test func(t *testing.T, noSync, atLeader bool, hangs []vfstest.Call)) {
	for _, c := range []struct {
		name   string
		noSync bool
		hangs  []vfstest.Call
	}{
		{"sync", false, []vfstest.Call{vfstest.CallSync}},
		{"sync, its writes hang too", false, []vfstest.Call{vfstest.CallSync, vfstest.CallWrite}},
		{"replicated", true, []vfstest.Call{vfstest.CallSync, vfstest.CallWrite}},
	} {
		for _, client := range []string{"of another broker", "of the leader"} {
			t.Run(c.name+", client "+client, func(t *testing.T) {
				test(t, c.noSync, client == "of the leader", c.hangs)
			})
		}
	}
}

// testHungDisk hangs the disk of a leader, and judges the time until another leads.
func testHungDisk(t *testing.T, noSync, atLeader bool, d *hungDisk, within time.Duration) {
	s := newSyncCounter()
	c := newClusterOf(t, cluster{size: 3, noSync: noSync, hook: s.before(d.hook)})
	t.Cleanup(d.back) // or nothing here would end
	for _, topic := range []string{"orders", "idle"} {
		require.NoError(t, c.put("n1", topic, "m0"))
		c.whole(topic)
	}
	c.cached(s, "orders")
	leader := c.leader("orders")
	other := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
	d.hang(leader)
	began := time.Now()
	if atLeader {
		var first sync.WaitGroup
		first.Go(func() { _ = c.put(leader, "orders", "m1") }) // its answer is another test's
		defer first.Wait()
		defer d.back()
		c.eventually(d.met, "nothing meets the disk")
		require.NoError(t, c.put(other, "orders", "m1"))
	} else {
		require.NoError(t, c.put(other, "orders", "m1"))
	}
	took := time.Since(began)
	t.Logf("put after %s", took)
	require.Less(t, took, within)
	require.NotEqual(t, leader, c.leader("orders"))
	require.False(t, c.leads(leader, "orders"))
	for _, at := range []string{other, leader} {
		c.eventually(func() bool { return saidToHang(c.nodes[at].Console.View(), leader) }, "%s does not say that %s hangs", at, leader)
	}
	d.back()
	c.whole("orders")
	c.whole("idle")
	require.NoError(t, c.nodes[leader].Ready())
	require.False(t, saidToHang(c.nodes[other].Console.View(), leader), "it goes on")
	require.NoError(t, c.put(leader, "orders", "m2"))
	for got := map[string]int{}; got["m2"] == 0; {
		for body := range c.drain(leader, "orders", 1) {
			got[body]++
		}
	}
}

// saidToHang reports whether a broker hangs by a view of the cluster.
func saidToHang(v api.ClusterView, broker string) bool {
	return slices.ContainsFunc(v.Brokers, func(b api.BrokerView) bool { return string(b.Name) == broker && b.Hangs })
}

// hungDisk is a hook under which calls of one broker's disk do not return.
type hungDisk struct {
	calls  []vfstest.Call
	spares string // a part of the names of files that answer; "" = none
	broker atomic.Pointer[string]
	some   atomic.Bool
	wakes  chan struct{}
	back   func() // the disk answers again
}

func newHungDisk(calls ...vfstest.Call) *hungDisk {
	d := &hungDisk{calls: calls, wakes: make(chan struct{})}
	d.back = sync.OnceFunc(func() { d.broker.Store(nil); close(d.wakes) })
	return d
}

// hang lets the calls of a broker's disk hang from now on.
func (d *hungDisk) hang(broker string) { d.broker.Store(&broker) }

// met reports whether a call hangs, or has.
func (d *hungDisk) met() bool { return d.some.Load() }

func (d *hungDisk) hook(op vfstest.Op) error {
	broker := d.broker.Load()
	if broker == nil || !strings.HasPrefix(op.Name, *broker) || d.spares != "" && strings.Contains(op.Name, d.spares) {
		return nil
	}
	for _, c := range d.calls {
		if op.Call == c {
			d.some.Store(true)
			<-d.wakes
		}
	}
	return nil
}

// TestLeaderWhoseCoreLoopHangsIsReplaced: a pass does not end. The broker answers for itself
// all the while, and keeps its registration. With a linger the loop's own goroutine runs the
// pass, and no other one waits for the mutex: that would stop the bubble's time.
func TestLeaderWhoseCoreLoopHangsIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, linger: time.Millisecond})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		other := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		hung, wakes := make(chan struct{}), make(chan struct{})
		back := sync.OnceFunc(func() { close(wakes) })
		t.Cleanup(back)
		d := queue.NewDraft(2)
		_ = d.AddMessage(queue.Message{Body: []byte("m1")})
		c.nodes[leader].Gateway.Publish("orders", api.AnyPartition, nil, d.Draft(ident.RequestID{}), answered(func(api.PutResult) {
			close(hung) // answers are given in the pass
			<-wakes
		}))
		<-hung
		began := time.Now()
		require.NoError(t, c.put(other, "orders", "m2"))
		took := time.Since(began)
		t.Logf("put after %s", took)
		require.Less(t, took, failover)
		back()
		c.whole("orders")
		require.Len(t, c.drain(leader, "orders", 3), 3)
	})
}

// TestDisksThatAllHangMoveNothing: all disks hang at once, as with shared storage. New leaders would not help. When the
// disks answer again, the old leaders continue. The node file answers, as in TestLeaderWhoseDiskHangsIsReplaced.
func TestDisksThatAllHangMoveNothing(t *testing.T) {
	t.Parallel()
	for _, noSync := range []bool{false, true} {
		t.Run(map[bool]string{false: "sync", true: "replicated"}[noSync], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s := newHungDisk(vfstest.CallSync, vfstest.CallWrite), newSyncCounter()
				d.spares = "node.json"
				c := newClusterOf(t, cluster{size: 3, noSync: noSync, hook: s.before(d.hook)})
				t.Cleanup(d.back)
				require.NoError(t, c.put("n1", "orders", "m0"))
				c.whole("orders")
				c.cached(s, "orders")
				before := map[string]ident.Incarnation{}
				for name, b := range c.nodes {
					before[name] = b.Incarnation()
				}
				d.hang("n") // all names begin with it
				var put sync.WaitGroup
				put.Go(func() { _ = c.put("n1", "orders", "m1") })
				c.eventually(d.met, "nothing meets the disk")
				for end := time.Now().Add(failover - time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					for name := range c.nodes {
						_, err := c.meta.Get(t.Context(), metadata.Keys{Cluster: "test"}.Live(ident.Node(name)))
						require.NoError(t, err, "%s gave its leaderships up", name)
					}
				}
				d.back()
				put.Wait()
				require.NoError(t, c.put("n2", "orders", "m2"))
				c.whole("orders")
				for name, b := range c.nodes {
					require.Equal(t, before[name], b.Incarnation(), "%s registered again", name)
				}
			})
		})
	}
}
