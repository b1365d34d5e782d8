package coordinator_test

import (
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/stretchr/testify/require"
)

// TestBrokerReceivesChangesWhileItTrashesATopic: a topic's folders go to the trash
// slowly. The broker still receives other changes.
func TestBrokerReceivesChangesWhileItTrashesATopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		trashing, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		var armed atomic.Bool
		c := newClusterOf(t, cluster{size: 3, hook: func(op vfstest.Op) error {
			if armed.Load() && strings.HasPrefix(op.Name, "n2") && op.Call == vfstest.CallRename && path.Ext(op.Name) == "" {
				once.Do(func() { close(trashing) })
				<-goOn
			}
			return nil
		}})
		t.Cleanup(sync.OnceFunc(func() { close(goOn) }))
		c.do("n1", "topic.create", "old", "", map[string]string{"partitions": "4"})
		other := c.without("n2") // or its store might wait for the lock of one that is trashed
		c.whole("old")
		armed.Store(true)
		c.do("n1", "topic.delete", "old", "", nil)
		<-trashing
		c.do("n1", "topic.pause", other, "", nil)
		c.eventually(func() bool { return c.nodes["n2"].Paused(other) }, "n2 hears nothing")
	})
}

// without makes a topic that has no replica on a broker.
func (c *cluster) without(broker ident.Node) string {
	c.t.Helper()
	for i := 0; ; i++ {
		topic := fmt.Sprint("other", i)
		c.do("n1", "topic.create", topic, "", map[string]string{"replication_factor": "1"})
		if v, _ := c.view("n1", topic); v.Partitions[0].Replicas[0] != broker {
			return topic
		}
	}
}

// TestBrokerReceivesChangesWhileItMakesReplicas: a topic of many partitions was created
// while the broker was down. The broker creates many replicas at once, because it receives no
// other change until all of them are there. TestPromiseBrokerReceivesChangesWhileItMakesReplicas has the time.
func TestBrokerReceivesChangesWhileItMakesReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const atOnce = 16
		var armed atomic.Bool
		var syncing atomic.Int32
		enough := make(chan struct{})
		c := newClusterOf(t, cluster{size: 3, hook: func(op vfstest.Op) error {
			if armed.Load() && strings.HasPrefix(op.Name, "n3") && op.Call == vfstest.CallSyncDir && strings.Contains(path.Dir(op.Name), "/topics/big.") {
				if syncing.Add(1) == atOnce {
					close(enough)
				}
				<-enough // one after the other would block here
			}
			return nil
		}})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		c.kill("n3")
		c.do("n1", "topic.create", "big", "", map[string]string{"partitions": "64"})
		armed.Store(true)
		c.restart("n3")
		c.do("n1", "topic.create", "new", "", map[string]string{"replication_factor": "1"})
		c.eventually(func() bool { _, ok := c.nodes["n3"].Topic("new"); return ok }, "n3 hears nothing")
	})
}
