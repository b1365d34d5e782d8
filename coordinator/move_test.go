package coordinator_test

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"runtime"
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
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// administer asks one broker for an operation.
func (c *cluster) administer(on, verb, topic string, args map[string]string) error {
	return do(context.Background(), c.nodes[on], operation{Verb: verb, Topic: topic, Args: args})
}

// arranged waits until every partition of a topic has its replicas in sync, no move in progress, and satisfies ok.
func (c *cluster) arranged(on, topic string, ok func(api.PartitionView) bool) {
	c.t.Helper()
	c.eventually(func() bool {
		v, found := c.view(on, topic)
		for _, p := range v.Partitions {
			found = found && len(p.Target) == 0 && len(p.Replicas) == v.ReplicationFactor && len(p.ISR) == v.ReplicationFactor &&
				p.MinInSync == v.MinInSync && p.Leader != "" && ok(p)
		}
		return found
	}, "%s is not arranged", topic)
}

// movable makes a topic of one partition and 20 messages on three brokers of four,
// and names its preferred leader and the broker that has none of it.
func (c *cluster) movable(topic string) (leader, without string) {
	c.t.Helper()
	require.NoError(c.t, c.administer("n1", "topic.create", topic, map[string]string{"replication_factor": "3"}))
	for i := range 20 {
		require.NoError(c.t, c.put("n1", topic, fmt.Sprintf("m%d", i)))
	}
	v, _ := c.view("n1", topic)
	for name := range c.nodes {
		if !slices.Contains(v.Partitions[0].Replicas, ident.Node(name)) {
			without = name
		}
	}
	return string(v.Partitions[0].Replicas[0]), without
}

// move asks for a partition's replica to go from one broker to another.
func (c *cluster) move(on, topic, partition, from, to string) error {
	return c.administer(on, "topic.move", topic, map[string]string{"partition": partition, "from": from, "to": to})
}

// trash lists the folders in a broker's trash.
func (c *cluster) trash(of string) []string {
	names, _ := c.disks[of].List("/data/trash")
	return names
}

// TestReplicaIsMoved: the leader's replica goes to the broker that had none, in
// the same place, so that the leadership goes with it; the old one is trashed.
func TestReplicaIsMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		from, to := c.movable("orders")
		v, _ := c.view("n1", "orders")
		require.ErrorIs(t, c.move("n2", "orders", "1", from, to), outcome.ErrInvalid)
		require.ErrorIs(t, c.move("n2", "orders", "0", from, string(v.Partitions[0].Replicas[1])), outcome.ErrInvalid, "it has one already")
		require.ErrorIs(t, c.move("n2", "orders", "0", from, "n9"), outcome.ErrBrokerNotFound)
		require.ErrorIs(t, c.move("n2", "orders", "0", "n9", from), outcome.ErrBrokerNotFound)
		require.NoError(t, c.move("n2", "orders", "0", from, to))
		want := slices.Clone(v.Partitions[0].Replicas)
		want[0] = ident.Node(to)
		c.arranged("n2", "orders", func(p api.PartitionView) bool { return slices.Equal(p.Replicas, want) && p.Leader == want[0] })
		require.NoError(t, c.move("n2", "orders", "0", from, to), "asked again")
		c.eventually(func() bool { return len(c.trash(from)) > 0 }, "its files stay")
		c.kill(from)
		require.Len(t, c.drain(to, "orders", 20), 20)
	})
}

// TestReplicaIsMovedWhileItsBrokerIsDown: the broker finds and trashes its old replica when it is back.
func TestReplicaIsMovedWhileItsBrokerIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		from, to := c.movable("orders")
		c.kill(from)
		require.NoError(t, c.move(to, "orders", "0", from, to))
		c.arranged(to, "orders", func(p api.PartitionView) bool { return !slices.Contains(p.Replicas, ident.Node(from)) })
		require.Empty(t, c.trash(from))
		c.restart(from)
		c.eventually(func() bool { return len(c.trash(from)) == 1 }, "its files stay")
	})
}

// TestReplicaIsMovedBackWhileItIsTrashed: it is recreated after that, and filled.
func TestReplicaIsMovedBackWhileItIsTrashed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		trashing, goOn := make(chan string, 1), make(chan struct{})
		var once sync.Once
		var folder atomic.Pointer[string] // that is being trashed
		var touched atomic.Bool
		back := make(chan struct{})
		movedBack := sync.OnceFunc(func() { close(back) })
		written := func(puts []metadata.Put) {
			broker, _, _ := strings.Cut(*cmp.Or(folder.Load(), new(string)), "/")
			for _, p := range puts {
				s, err := metadata.DecodePartition(metadata.Entry{Key: p.Key, Value: p.Value})
				if err == nil && slices.Contains(s.Replicas, ident.Node(broker)) {
					movedBack()
				}
			}
		}
		c := newClusterOf(t, cluster{size: 4, wrap: func(_ string, s metadata.Store) metadata.Store { return afterTxn{s, written} }, hook: func(op vfstest.Op) error {
			if op.Call == vfstest.CallRename && path.Ext(op.Name) == "" {
				once.Do(func() {
					folder.Store(&op.Name)
					trashing <- op.Name
					<-goOn
					folder.Store(nil)
				})
			} else if f := folder.Load(); f != nil && strings.HasPrefix(op.Name, *f) {
				touched.Store(true)
			}
			return nil
		}})
		release := sync.OnceFunc(func() { close(goOn) })
		t.Cleanup(release)
		from, to := c.movable("orders")
		require.NoError(t, c.move(to, "orders", "0", from, to))
		require.Contains(t, <-trashing, from+"/")
		require.NoError(t, c.move(to, "orders", "0", to, from))
		<-back
		for !waitsFor("replicas.(*Local).open") && !touched.Load() { // a wait for a mutex, which stops the bubble's time
			runtime.Gosched()
		}
		require.False(t, touched.Load(), "it is opened while it is trashed")
		release()
		c.arranged(to, "orders", func(p api.PartitionView) bool { return slices.Contains(p.Replicas, ident.Node(from)) })
		require.Len(t, c.drain(from, "orders", 20), 20)
	})
}

// waitsFor reports whether a goroutine waits for a mutex in a function.
func waitsFor(function string) bool {
	stacks := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "[sync.Mutex.Lock") && strings.Contains(stack, function) {
			return true
		}
	}
	return false
}

// TestReplicationOfATopicIsChanged: up, with a higher minimum; and down again.
func TestReplicationOfATopicIsChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "1", "partitions": "2"}))
		set := func(factor, minimum string) error {
			return c.administer("n3", "topic.replication", "orders", map[string]string{"replication_factor": factor, "min_in_sync": minimum})
		}
		require.ErrorIs(t, set("", ""), outcome.ErrInvalid)
		require.ErrorIs(t, set("", "2"), outcome.ErrInvalid, "more than there are replicas")
		require.ErrorIs(t, set("4", ""), outcome.ErrInvalid, "more than there are brokers")
		require.ErrorIs(t, c.administer("n3", "topic.replication", "nothing", map[string]string{"min_in_sync": "1"}), outcome.ErrTopicNotFound)
		require.NoError(t, set("3", "3"))
		c.arranged("n1", "orders", func(p api.PartitionView) bool { return p.MinInSync == 3 })
		for i := range 20 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		require.ErrorIs(t, set("2", ""), outcome.ErrInvalid, "below the minimum")
		require.NoError(t, set("1", "1"))
		c.arranged("n1", "orders", func(p api.PartitionView) bool { return len(p.Replicas) == 1 })
		require.Len(t, c.drain("n2", "orders", 20), 20)
	})
}

// TestBalanceUsesABrokerThatCameLater: replicas and leaders of three brokers are spread over four.
func TestBalanceUsesABrokerThatCameLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		require.NoError(t, do(context.Background(), c.nodes["n1"], operation{Verb: "broker.decommission", Args: map[string]string{"node": "n4"}}))
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "3", "partitions": "8"}))
		require.NoError(t, do(context.Background(), c.nodes["n1"], operation{Verb: "broker.decommission", Args: map[string]string{"node": "n4", "cancel": "true"}}))
		c.eventually(func() bool {
			return !slices.ContainsFunc(c.nodes["n2"].Cluster().Brokers, func(v api.BrokerView) bool { return v.Leaving })
		}, "it stays")
		require.NoError(t, c.administer("n2", "cluster.balance", "", nil))
		c.arranged("n3", "orders", func(api.PartitionView) bool { return true })
		v, _ := c.view("n3", "orders")
		replicas, leads := map[ident.Node]int{}, map[ident.Node]int{}
		for _, p := range v.Partitions {
			leads[p.Replicas[0]]++
			for _, n := range p.Replicas {
				replicas[n]++
			}
		}
		require.Equal(t, map[ident.Node]int{"n1": 6, "n2": 6, "n3": 6, "n4": 6}, replicas)
		require.Equal(t, map[ident.Node]int{"n1": 2, "n2": 2, "n3": 2, "n4": 2}, leads)
	})
}

// TestReplicaIsMovedBackBeforeItIsTrashed: the key is asked whether the replica may
// go, and names this broker again. It continues where it was.
func TestReplicaIsMovedBackBeforeItIsTrashed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		c := newClusterOf(t, cluster{size: 4, wrap: func(name string, s metadata.Store) metadata.Store {
			return hookedMeta{Store: s, get: func(ctx context.Context, key string) error {
				if away(ctx, s, key, name) {
					once.Do(func() { close(asked) })
					select {
					case <-goOn:
					case <-ctx.Done():
					}
				}
				return nil
			}}
		}})
		release := sync.OnceFunc(func() { close(goOn) })
		t.Cleanup(release)
		from, to := c.movable("orders")
		require.NoError(t, c.move(to, "orders", "0", from, to))
		<-asked
		require.NoError(t, c.put(to, "orders", "m20"))
		require.NoError(t, c.move(to, "orders", "0", to, from))
		c.eventually(func() bool {
			v, _ := c.view(from, "orders")
			return slices.Contains(v.Partitions[0].Replicas, ident.Node(from))
		}, "it is not moved back")
		release()
		c.arranged(to, "orders", func(p api.PartitionView) bool { return slices.Contains(p.Replicas, ident.Node(from)) })
		require.Len(t, c.drain(from, "orders", 21), 21)
	})
}

// TestReplicaIsMuteBeforeItsKeyIsRead: a replica is trashed when the partition's key, read linearizably, does not name
// it. If it acknowledged after the read and was then moved back, the leader would count bytes that are being trashed.
// So the read waits until the pass that is in progress has ended.
func TestReplicaIsMuteBeforeItsKeyIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		// With a linger no pass runs inline, on the reader of a connection, which would be held up too.
		c := newClusterOf(t, cluster{size: 3, linger: time.Millisecond, wrap: func(name string, s metadata.Store) metadata.Store {
			return hookedMeta{Store: s, get: func(ctx context.Context, key string) error {
				if away(ctx, s, key, name) {
					reads.Add(1)
				}
				return nil
			}}
		}})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		topic, _ := c.nodes[leader].Topic("orders")

		answering, goOn := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(goOn) })
		t.Cleanup(release)
		d := queue.NewDraft(2)
		_ = d.AddMessage(queue.Message{Body: []byte("m1")})
		c.nodes[leader].ProposePut(topic.Partition(0), d.Draft(ident.RequestID{Producer: 1, N: 1}), completerFunc(func(outcome.Completion) {
			close(answering) // the pass continues when this returns
			<-goOn
		}))
		<-answering
		c.moveByHand(topic.Partition(0), leader)
		synctest.Wait()
		require.Zero(t, reads.Load(), "the key is read during a pass")
		release()
		c.eventually(func() bool { return len(c.trash(leader)) == 1 }, "its files stay")
		require.Positive(t, reads.Load())
	})
}

// completerFunc is called with the outcome of a put, in the core loop's pass.
type completerFunc func(outcome.Completion)

func (f completerFunc) Complete(c outcome.Completion) { f(c) }

// moveByHand removes a broker from a partition's replicas and gives the leadership to another member, in one write.
func (c *cluster) moveByHand(p ident.Partition, from string) {
	c.t.Helper()
	e, err := c.meta.Get(c.t.Context(), metadata.Keys{Cluster: "test"}.Partition(p))
	require.NoError(c.t, err)
	s, err := metadata.DecodePartition(e)
	require.NoError(c.t, err)
	s.Replicas = slices.DeleteFunc(s.Replicas, func(n ident.Node) bool { return n == ident.Node(from) })
	s.ISR = slices.DeleteFunc(s.ISR, func(m ident.Member) bool { return m.Node == ident.Node(from) })
	s.Leader, s.Epoch = s.Replicas[0], s.Epoch+1
	s.LeaderIncarnation = c.nodes[string(s.Leader)].Incarnation()
	c.overwrite(e, metadata.Put{Key: e.Key, Value: metadata.Encode(s)})
}

// away reports whether a key is that of a partition whose replica, on the broker
// that no longer leads it, is elsewhere.
func away(ctx context.Context, s metadata.Store, key, broker string) bool {
	if !strings.Contains(key, "/partitions/") {
		return false
	}
	e, err := s.Get(ctx, key)
	if err != nil {
		return false
	}
	p, err := metadata.DecodePartition(e)
	return err == nil && p.Epoch > 1 && !slices.Contains(p.Replicas, ident.Node(broker))
}
