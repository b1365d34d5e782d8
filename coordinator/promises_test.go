package coordinator_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// The tests of this file hold a promise in the machine's time. All but the first have slow or hung disks,
// and goroutines that wait for a mutex. Such a wait stops the time of a bubble.

// TestPromiseFirstPutOfATopicIsFast: TestFirstPutOfATopicIsFast judges the waits alone.
func TestPromiseFirstPutOfATopicIsFast(t *testing.T) {
	best := firstPut(newCluster(t, 3))
	t.Logf("first put of a new topic: %s", best)
	require.Less(t, best, env.Within(t, 900*time.Millisecond), "three times the goal")
}

// slowSyncDir is a hook under which syncs of folders take a time, once they are armed, on the
// brokers whose names begin so.
func slowSyncDir(armed *atomic.Bool, brokers string, takes time.Duration) vfstest.Hook {
	return func(op vfstest.Op) error {
		if armed.Load() && op.Call == vfstest.CallSyncDir && strings.HasPrefix(op.Name, brokers) {
			time.Sleep(takes)
		}
		return nil
	}
}

// TestPromiseFailoverWhileATopicIsTrashed: how long a put waits for a new leader while the survivors delete a topic of
// many partitions on disks whose directory syncs take some milliseconds.
func TestPromiseFailoverWhileATopicIsTrashed(t *testing.T) {
	var armed atomic.Bool
	c := newClusterOf(t, cluster{size: 3, hook: slowSyncDir(&armed, "n", 4*time.Millisecond)})
	require.NoError(t, c.put("n1", "orders", "m0"))
	c.do("n1", "topic.create", "old", "", map[string]string{"partitions": "256"})
	c.whole("orders")
	leader := c.leader("orders")
	on := followers[leader][0]
	armed.Store(true)
	c.do(on, "topic.delete", "old", "", nil)
	c.expire(leader) // its lease runs out
	began := time.Now()
	require.NoError(t, c.put(on, "orders", "m1"))
	took := time.Since(began)
	t.Log("put after ", took)
	require.Less(t, took, env.Within(t, time.Second))
}

// TestPromiseBrokerReceivesChangesWhileItMakesReplicas: a topic of many partitions was created
// while the broker was down. The broker receives other changes while it creates its replicas.
func TestPromiseBrokerReceivesChangesWhileItMakesReplicas(t *testing.T) {
	var armed atomic.Bool
	c := newClusterOf(t, cluster{size: 3, hook: slowSyncDir(&armed, "n3", 4*time.Millisecond)})
	require.NoError(t, c.put("n1", "orders", "m0"))
	c.whole("orders")
	c.kill("n3")
	c.do("n1", "topic.create", "big", "", map[string]string{"partitions": "256"})
	armed.Store(true)
	c.restart("n3")
	began := time.Now()
	c.do("n1", "topic.create", "new", "", map[string]string{"replication_factor": "1"})
	c.eventually(func() bool { _, ok := c.nodes["n3"].Topic("new"); return ok }, "n3 hears nothing")
	took := time.Since(began)
	t.Log("heard after ", took)
	require.Less(t, took, env.Within(t, time.Second))
}

// TestPromiseManyTopicsAtOnce: as TestManyTopicsAtOnce, on slow disks.
func TestPromiseManyTopicsAtOnce(t *testing.T) {
	var armed atomic.Bool
	armed.Store(true)
	manyTopicsAtOnce(newClusterOf(t, cluster{size: 3, hook: slowSyncDir(&armed, "n", time.Millisecond)}))
}

// TestPromiseLeaderWhoseDiskHangsIsReplaced: as TestLeaderWhoseDiskHangsIsReplaced, with the node file.
func TestPromiseLeaderWhoseDiskHangsIsReplaced(t *testing.T) {
	hungDisks(t, func(t *testing.T, noSync, atLeader bool, hangs []vfstest.Call) {
		t.Parallel() // with each other alone: each waits for its own cluster to notice the hang
		testHungDisk(t, noSync, atLeader, newHungDisk(hangs...), env.Within(t, failover))
	})
}
