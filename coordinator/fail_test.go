package coordinator_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/stretchr/testify/require"
)

// TestFailedSyncOfTheLeaderIsAChangeOfLeader: the store of a leader stops permanently at its first failed sync; the others
// do not wait for its session to run out, and the failed broker, restarted, has everything.
func TestFailedSyncOfTheLeaderIsAChangeOfLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Value
		broken.Store("nobody")
		errDisk := errors.New("input/output error")
		c := newClusterOf(t, cluster{size: 3, hook: func(op vfstest.Op) error {
			if op.Call == vfstest.CallSync && strings.HasPrefix(op.Name, broken.Load().(string)+"/") {
				return errDisk
			}
			return nil
		}})
		for _, topic := range []string{"orders", "idle"} {
			require.NoError(t, c.put("n1", topic, "m0"))
			c.whole(topic)
		}
		leader := c.leader("orders")
		failed := c.nodes[leader].Failed()
		broken.Store(leader)
		began := time.Now()
		_ = c.put(leader, "orders", "m1") // in doubt within its process, resolved by the next leader
		require.Less(t, time.Since(began), 2*time.Second, "the session's time was waited for")
		select {
		case err := <-failed:
			require.ErrorIs(t, err, errDisk)
		case <-time.After(patience):
			require.FailNow(t, "the broker does not say that it failed")
		}
		require.Error(t, c.nodes[leader].Broker.Inspector.Health())
		require.Error(t, c.nodes[leader].Ready())
		survivor := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		require.NoError(t, c.put(survivor, "orders", "m2"))
		require.NoError(t, c.put(survivor, "idle", "m1"))
		t.Logf("puts again after %s", time.Since(began))
		require.NotEqual(t, leader, c.leader("orders"))
		c.kill(leader)
		broken.Store("nobody")
		c.restart(leader)
		c.whole("orders")
		c.whole("idle")
	})
}

// TestFailedStoreOfALeaderWithoutMetadata: the leader cannot end its registration. The brokers that it notifies end it.
func TestFailedStoreOfALeaderWithoutMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Value
		broken.Store("nobody")
		c := newClusterOf(t, cluster{size: 3, hook: func(op vfstest.Op) error {
			if op.Call == vfstest.CallSync && strings.HasPrefix(op.Name, broken.Load().(string)+"/") {
				return errors.New("input/output error")
			}
			return nil
		}})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		survivor := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.sessions[leader].Cut()
		broken.Store(leader)
		require.NoError(t, c.put(survivor, "orders", "m1"))
		require.NotEqual(t, leader, c.leader("orders"))
	})
}

// TestStoppedStoreIsNoticedWithoutAPut: the store of a broker stops while it makes a replica. Nobody
// publishes, and the broker gives up at once.
func TestStoppedStoreIsNoticedWithoutAPut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		c := newClusterOf(t, cluster{size: 3, hook: func(op vfstest.Op) error {
			if broken.Load() && op.Call == vfstest.CallSyncDir && strings.HasPrefix(op.Name, "n2/") {
				return errors.New("input/output error")
			}
			return nil
		}})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		broken.Store(true)
		_ = do(t.Context(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "other"}) // refused
		select {
		case <-c.nodes["n2"].Failed():
		case <-time.After(patience):
			require.FailNow(t, "the broker does not say that it failed")
		}
	})
}

// TestFullDiskEndsNoBroker: a topic is created while the disk of a broker has no byte left. The broker
// continues, and makes its replica once there is room.
func TestFullDiskEndsNoBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		c := newClusterOf(t, cluster{size: 3, hook: func(op vfstest.Op) error {
			if full.Load() && op.Call == vfstest.CallWrite && strings.HasPrefix(op.Name, "n2/") && strings.HasSuffix(op.Name, ".tmp") {
				return syscall.ENOSPC
			}
			return nil
		}})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		full.Store(true)
		c.do("n1", "topic.create", "other", "", nil) // two of its three replicas are enough
		require.NoError(t, c.put("n2", "orders", "m1"))
		require.NoError(t, c.put("n2", "other", "m0"))
		full.Store(false)
		c.whole("orders")
		c.whole("other")
		select {
		case err := <-c.nodes["n2"].Failed():
			require.NoError(t, err)
		default:
		}
	})
}

// TestWritesThatFailWithFreeSpace: a disk that is read-only, or whose quota is used up, reports free space. The broker stops at its
// first write, whatever the reason, and the others take the puts of all topics.
func TestWritesThatFailWithFreeSpace(t *testing.T) {
	t.Parallel()
	for _, reason := range []error{syscall.EROFS, syscall.EDQUOT, syscall.ENOSPC} {
		t.Run(reason.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Value
				broken.Store("nobody")
				c := newClusterOf(t, cluster{size: 3, minFree: diskReserve, hook: func(op vfstest.Op) error {
					changes := op.Call == vfstest.CallWrite || op.Call == vfstest.CallCreate || op.Call == vfstest.CallRename
					if changes && strings.HasPrefix(op.Name, broken.Load().(string)+"/") {
						return reason
					}
					return nil
				}})
				before, refused, _ := c.topicsUnderLoad(10, 100*time.Millisecond)
				require.Empty(t, refused)
				leader := c.leader("topic0")
				failed := c.nodes[leader].Failed()
				broken.Store(leader)
				after, _, _ := c.topicsUnderLoad(10, time.Second)
				select {
				case err := <-failed:
					require.ErrorIs(t, err, reason)
				case <-time.After(patience):
					require.FailNow(t, "the broker does not say that it failed")
				}
				c.kill(leader)
				more, refused, _ := c.topicsUnderLoad(10, 100*time.Millisecond)
				require.Empty(t, refused)
				broken.Store("nobody")
				c.restart(leader)
				for topic, n := range before {
					c.whole(topic)
					v, _ := c.view(leader, topic)
					require.GreaterOrEqual(t, int(v.Partitions[0].CommittedSequence), n+after[topic]+more[topic], topic)
				}
			})
		})
	}
}

// TestANodeFileThatCannotBeWritten: the file is written by its own way. The broker serves on, and writes it later.
func TestANodeFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		var refused atomic.Int32
		c := newClusterOf(t, cluster{size: 3, recount: time.Second, hook: func(op vfstest.Op) error {
			if full.Load() && strings.HasPrefix(op.Name, "n2/") && strings.Contains(op.Name, "node.json") {
				refused.Add(1)
				return syscall.ENOSPC
			}
			return nil
		}})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		full.Store(true)
		require.NoError(t, c.put("n2", "other", "m0"))
		time.Sleep(5 * time.Second)
		require.NotZero(t, refused.Load())
		require.NoError(t, c.put("n2", "orders", "m1"))
		full.Store(false)
		c.whole("orders")
		c.kill("n2")
		c.restart("n2")
		c.whole("orders")
		c.whole("other")
	})
}
