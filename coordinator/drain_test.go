package coordinator_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// leaderships counts the partitions that a broker leads, as another broker sees it.
func (c *cluster) leaderships(on, of string) (n int) {
	for _, t := range c.nodes[on].Cluster().Topics {
		for _, p := range t.Partitions {
			if p.Leader == ident.Node(of) {
				n++
			}
		}
	}
	return n
}

// drained asks for a drain, or its end.
func (c *cluster) drained(on, node string, args ...string) error {
	q := map[string]string{"node": node}
	for _, a := range args {
		q[a] = "true"
	}
	return c.administer(on, "broker.drain", "", q)
}

// drainOf is the drain of a broker, as another one sees it.
func (c *cluster) drainOf(on, node string) string {
	for _, b := range c.nodes[on].Cluster().Brokers {
		if string(b.Name) == node {
			return b.Drain
		}
	}
	return "no broker " + node
}

// TestDrainedBrokerLeadsNothing: under puts to all brokers, none of which fails. The drain
// outlives a kill of the controller and of the drained broker; new topics prefer others.
func TestDrainedBrokerLeadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"partitions": "12"}))
		stop, stored := c.publishing("orders", "n1", "n3")
		require.ErrorIs(t, c.drained("n1", "n9"), outcome.ErrBrokerNotFound)
		require.NoError(t, c.drained("n1", "n2"))
		c.eventually(func() bool { return c.leaderships("n1", "n2") == 0 }, "it leads still")
		require.ErrorIs(t, func() error { _ = c.drained("n1", "n1"); return c.drained("n1", "n3") }(), outcome.ErrInvalid, "none would be left to lead")
		require.NoError(t, c.drained("n1", "n1", "cancel"))
		require.NoError(t, c.administer("n3", "topic.create", "later", map[string]string{"partitions": "6"}))
		v, _ := c.view("n3", "later")
		for _, p := range v.Partitions {
			require.NotEqual(t, ident.Node("n2"), p.Replicas[0])
			require.Len(t, p.Replicas, 3, "the replication factor does not shrink")
		}

		c.kill("n2")
		c.restart("n2")
		c.arranged("n1", "orders", func(p api.PartitionView) bool { return p.Leader != "n2" })
		require.Equal(t, "leaders", c.drainOf("n1", "n2"), "its own start does not end the drain")
		require.Empty(t, stop())
		require.Positive(t, stored())

		require.NoError(t, c.drained("n3", "n2", "cancel"))
		c.arranged("n1", "orders", func(p api.PartitionView) bool { return p.Leader == p.Replicas[0] })
		require.Equal(t, 4, c.leaderships("n1", "n2"))
		require.Len(t, c.drain("n2", "orders", stored()), stored())
	})
}

// publishing publishes to a topic through some brokers until stop, which returns the errors.
func (c *cluster) publishing(topic string, on ...string) (stop func() []error, stored func() int) {
	var over atomic.Bool
	var count atomic.Int64
	var mu sync.Mutex
	var errs []error
	var puts sync.WaitGroup
	own := *c
	own.nodes = maps.Clone(c.nodes) // the test may restart others
	for _, name := range on {
		puts.Go(func() {
			for i := 0; !over.Load(); i++ {
				if err := own.put(name, topic, fmt.Sprintf("%s-%d", name, i)); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				} else {
					count.Add(1)
				}
				concurrency.Sleep(c.t.Context(), time.Millisecond)
			}
		})
	}
	end := func() []error { over.Store(true); puts.Wait(); return errs }
	c.t.Cleanup(func() { end() })
	return end, func() int { return int(count.Load()) }
}

// TestDrainedBrokerIsFreedOfReplicas: they go to the fourth broker. The drained one may be
// stopped and is not forgotten.
func TestDrainedBrokerIsFreedOfReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "3", "partitions": "8"}))
		for i := range 20 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		plan, err := c.nodes["n3"].Plan(t.Context(), api.Drain{Node: "n2", Replicas: true})
		require.NoError(t, err)
		require.Empty(t, plan.Blocked)
		require.Len(t, plan.Steps, 6, "24 replicas lie on four brokers")
		require.NoError(t, c.drained("n1", "n2", "replicas"))
		free := func(p api.PartitionView) bool { return !slices.Contains(p.Replicas, ident.Node("n2")) }
		c.arranged("n1", "orders", free)
		after := map[ident.Node]int{}
		v, _ := c.view("n1", "orders")
		for _, p := range v.Partitions {
			for _, n := range p.Replicas {
				after[n]++
			}
		}
		for _, b := range plan.Brokers {
			require.Equal(t, after[b.Broker], b.ReplicasAfter, "the plan was another for %s", b.Broker)
		}
		require.ErrorIs(t, c.move("n1", "orders", "0", string(v.Partitions[0].Replicas[0]), "n2"), outcome.ErrInvalid)
		require.NoError(t, c.administer("n1", "cluster.balance", "", nil))
		c.kill("n2")
		time.Sleep(5 * time.Second)
		require.True(t, slices.ContainsFunc(c.nodes["n1"].Cluster().Brokers, func(b api.BrokerView) bool { return b.Name == "n2" }), "it is forgotten")
		c.restart("n2")
		c.arranged("n1", "orders", free)
		require.Equal(t, "replicas", c.drainOf("n1", "n2"))
		require.NoError(t, c.drained("n1", "n2", "cancel"))
		require.Len(t, c.drain("n2", "orders", 20), 20)
	})
}

// TestDrainIsPaced: a broker's leaderships go one after the other, so that few puts wait at any moment, and soon:
// of 50 three in two seconds. The planned stop of a broker waits for no turn.
func TestDrainIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var transfers []time.Time
		note := func(_ context.Context, puts []metadata.Put) {
			mu.Lock()
			defer mu.Unlock()
			for _, p := range puts {
				if strings.Contains(p.Key, "/partitions/") {
					transfers = append(transfers, time.Now())
				}
			}
		}
		c := newClusterOf(t, cluster{size: 3, wrap: func(_ string, s metadata.Store) metadata.Store { return hookedMeta{Store: s, txn: note} }})
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"partitions": "50"}))
		c.arranged("n1", "orders", func(p api.PartitionView) bool { return p.Leader == p.Replicas[0] })
		led := c.leaderships("n1", "n2")
		require.Greater(t, led, 10)
		transfers = nil

		require.NoError(t, c.drained("n1", "n2"))
		c.eventually(func() bool { return c.leaderships("n1", "n2") == 0 }, "it leads still")
		require.Len(t, transfers, led)
		for i, at := range transfers[3:] {
			require.GreaterOrEqual(t, at.Sub(transfers[i]), 1900*time.Millisecond, "4 of 50 within two seconds")
		}
		require.Less(t, transfers[led-1].Sub(transfers[0]), 20*time.Second)

		began := time.Now()
		require.Greater(t, c.leaderships("n1", "n3"), 10)
		c.nodes["n3"].TransferLeadership(t.Context())
		require.Less(t, time.Since(began), time.Second)
	})
}

// TestPlansAreCarriedOut: what is shown before a balance, a move and a decommission is what the controller does.
func TestPlansAreCarriedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		from, to := c.movable("orders")
		require.NoError(t, c.administer("n1", "topic.create", "other", map[string]string{"replication_factor": "2", "partitions": "6"}))
		for _, op := range []api.Operation{
			api.MoveReplica{Topic: "orders", From: ident.Node(from), To: ident.Node(to)},
			api.Balance{},
			api.Decommission{Node: "n4"},
		} {
			before, _ := c.view("n1", "orders")
			plan, err := c.nodes["n2"].Plan(t.Context(), op)
			require.NoError(t, err)
			now, _ := c.view("n1", "orders")
			require.Equal(t, before, now, "%T: a plan changes nothing", op)
			require.NoError(t, c.nodes["n1"].Do(t.Context(), op))
			c.eventually(func() bool {
				for _, s := range plan.Steps {
					v, _ := c.view("n1", s.Topic)
					p := v.Partitions[s.Partition]
					if len(p.Target) > 0 || len(p.ISR) != v.ReplicationFactor || !slices.Equal(p.Replicas, s.ReplicasAfter) || p.Leader != s.LeaderAfter {
						return false
					}
				}
				return true
			}, "%T goes another way than %v", op, plan.Steps)
			again, err := c.nodes["n1"].Plan(t.Context(), op)
			if _, move := op.(api.MoveReplica); !move || err == nil {
				require.NoError(t, err)
				require.Empty(t, again.Steps, "%T is done", op)
			}
		}
		plan, err := c.nodes["n1"].Plan(t.Context(), api.Decommission{Node: "n3"})
		require.NoError(t, err)
		require.Contains(t, strings.Join(plan.Blocked, "\n"), "orders/0 keeps its replica on n3", "two brokers would stay for three replicas")
		for _, op := range []api.Operation{api.Decommission{Node: "n9"}, api.Drain{Node: "n9"}} {
			_, err = c.nodes["n1"].Plan(t.Context(), op)
			require.ErrorIs(t, err, outcome.ErrBrokerNotFound, "%T", op)
		}
		require.ErrorIs(t, c.nodes["n1"].Do(t.Context(), api.Decommission{Node: "n9"}), outcome.ErrBrokerNotFound)
		_, err = c.nodes["n1"].Plan(t.Context(), api.PauseTopic{Topic: "orders"})
		require.ErrorIs(t, err, outcome.ErrInvalid)
	})
}

// TestDrainsAtTheSameTimeLeaveALeader: each of three finds the other brokers free, and one is refused.
func TestDrainsAtTheSameTimeLeaveALeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var arrived atomic.Int32
		all := make(chan struct{})
		together := func(ctx context.Context, puts []metadata.Put) {
			if !strings.Contains(puts[0].Key, "/nodes/") || !strings.Contains(string(puts[0].Value), string(metadata.DrainLeaders)) {
				return
			}
			if arrived.Add(1) == 3 {
				close(all)
			}
			select {
			case <-all:
			case <-ctx.Done():
			}
		}
		c := newClusterOf(t, cluster{size: 3, wrap: func(_ string, s metadata.Store) metadata.Store { return hookedMeta{Store: s, txn: together} }})
		names := slices.Sorted(maps.Keys(c.nodes))
		errs := make([]error, len(names))
		var asked sync.WaitGroup
		for i, n := range names {
			asked.Go(func() { errs[i] = c.drained(n, n) })
		}
		asked.Wait()
		refused := 0
		for _, err := range errs {
			if err != nil {
				require.ErrorIs(t, err, outcome.ErrInvalid)
				refused++
			}
		}
		require.Equal(t, 1, refused, "%v", errs)
	})
}
