package coordinator_test

import (
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/testkit/env"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/stretchr/testify/require"
)

// TestBrokerReceivesChangesWhileItTrashesATopic: a topic's folders go to the trash
// slowly. The broker receives other changes meanwhile.
func TestBrokerReceivesChangesWhileItTrashesATopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		trashing, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		var armed atomic.Bool
		c := newClusterOf(t, cluster{size: 3, hook: func(op vfs.Op) error {
			if armed.Load() && strings.HasPrefix(op.Name, "n2") && op.Call == vfs.CallRename && path.Ext(op.Name) == "" {
				once.Do(func() { close(trashing) })
				<-goOn
			}
			return nil
		}})
		release := sync.OnceFunc(func() { close(goOn) })
		t.Cleanup(release)
		c.do("n1", "topic.create", "old", "", map[string]string{"partitions": "4"})
		c.whole("old")
		armed.Store(true)
		c.do("n1", "topic.delete", "old", "", nil)
		<-trashing
		c.do("n1", "topic.create", "new", "", map[string]string{"replication_factor": "1"})
		c.eventually(func() bool { _, ok := c.nodes["n2"].Topic("new"); return ok }, "n2 hears nothing")
	})
}

// TestFailoverWhileATopicIsTrashed: how long a put waits for a new leader while
// the survivors delete a topic of many partitions on disks whose directory syncs take
// some milliseconds. It has no bubble: the watch may wait for a lock that is held over such a sync, and the bubble's time would stop.
func TestFailoverWhileATopicIsTrashed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		c := newClusterOf(t, cluster{size: 3, hook: func(op vfs.Op) error {
			if armed.Load() && op.Call == vfs.CallSyncDir {
				<-time.After(4 * time.Millisecond)
			}
			return nil
		}})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.do("n1", "topic.create", "old", "", map[string]string{"partitions": "256"})
		c.whole("orders")
		leader := c.leader("orders")
		on := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		armed.Store(true)
		c.do(on, "topic.delete", "old", "", nil)
		c.expire(leader) // its lease runs out
		began := time.Now()
		require.NoError(t, c.put(on, "orders", "m1"))
		t.Log(fmt.Sprint("put after ", time.Since(began)))
		require.Less(t, time.Since(began), env.Within(t, time.Second))
	})
}

// TestBrokerReceivesChangesWhileItMakesReplicas: a topic of many partitions was created
// while the broker was down. The broker receives other changes while it creates its replicas.
func TestBrokerReceivesChangesWhileItMakesReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		c := newClusterOf(t, cluster{size: 3, hook: func(op vfs.Op) error {
			if armed.Load() && strings.HasPrefix(op.Name, "n3") && op.Call == vfs.CallSyncDir {
				<-time.After(4 * time.Millisecond)
			}
			return nil
		}})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		c.kill("n3")
		c.do("n1", "topic.create", "big", "", map[string]string{"partitions": "256"})
		armed.Store(true)
		c.restart("n3")
		began := time.Now()
		c.do("n1", "topic.create", "new", "", map[string]string{"replication_factor": "1"})
		c.eventually(func() bool { _, ok := c.nodes["n3"].Topic("new"); return ok }, "n3 hears nothing")
		t.Log(fmt.Sprint("heard after ", time.Since(began)))
		require.Less(t, time.Since(began), env.Within(t, time.Second))
	})
}
