package coordinator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

func TestPutOnEveryBrokerOfACluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for i, on := range []string{"n1", "n2", "n3"} {
			require.NoError(t, c.put(on, "orders", fmt.Sprintf("m%d", i)))
		}
		c.whole("orders")
		v, ok := c.view("n1", "orders")
		require.True(t, ok)
		require.EqualValues(t, 3, v.Partitions[0].CommittedSequence)
		require.Equal(t, 3, v.ReplicationFactor)
		require.Equal(t, 2, v.MinInSync)
		require.Len(t, c.drain("n2", "orders", 3), 3)
	})
}

// TestEndsOfASilentLeader: a broker that no leader's report reaches says that the committed end is not known,
// and not that nothing is committed.
func TestEndsOfASilentLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		asked := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		v, _ := c.view(asked, "orders")
		require.False(t, v.Partitions[0].EndsUnknown)
		c.net.isolate(leader, asked)
		v, _ = c.view(asked, "orders")
		require.Zero(t, v.Partitions[0].CommittedSequence)
		require.True(t, v.Partitions[0].EndsUnknown)
		c.net.heal()
	})
}

func TestFirstPutOfATopicIsFast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.Less(t, firstPut(c), 300*time.Millisecond)
	})
}

// firstPut is the least time of some first puts to a topic.
func firstPut(c *cluster) time.Duration {
	c.t.Helper()
	best := patience
	for i := range 5 {
		start := time.Now()
		require.NoError(c.t, c.put("n1", fmt.Sprintf("orders%d", i), "first"))
		best = min(best, time.Since(start))
	}
	return best
}

func TestLoneBrokerKeepsWhatItAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		for i := range 10 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		c.kill("n1")
		c.restart("n1")
		require.Len(t, c.drain("n1", "orders", 10), 10)
		require.NoError(t, c.put("n1", "orders", "after"))
	})
}

func TestPutsGoOnWhenTheLeaderDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		leader := c.leader("orders")
		survivor := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.kill(leader)
		start := time.Now()
		for i := 1; i <= 20; i++ {
			require.NoError(t, c.put(survivor, "orders", fmt.Sprintf("m%d", i)))
			if i == 1 {
				t.Logf("first put after the leader's death: %s", time.Since(start))
			}
		}
		require.NotEqual(t, leader, c.leader("orders"))
		c.restart(leader)
		c.whole("orders")
		require.Len(t, c.drain(leader, "orders", 21), 21)
	})
}

func TestPutsGoOnWhenAFollowerDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		leader := c.leader("orders")
		follower := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.kill(follower)
		start := time.Now()
		require.NoError(t, c.put(leader, "orders", "m1"))
		t.Logf("first put after a follower's death: %s", time.Since(start))
		c.restart(follower)
		c.whole("orders")
	})
}

func TestEverythingIsThereAfterAllBrokersDied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for i := range 50 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		names := []string{"n1", "n2", "n3"}
		for _, n := range names {
			c.kill(n)
		}
		for _, n := range names {
			c.restart(n)
		}
		require.NoError(t, c.put("n2", "orders", "after"))
		c.whole("orders")
		require.Len(t, c.drain("n3", "orders", 51), 51)
	})
}

// TestSettingsOfAChannelOutliveAllBrokers: pause, order and policy of a channel were
// answered, so they outlive a crash of all brokers at once.
func TestSettingsOfAChannelOutliveAllBrokers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		for _, body := range []string{"m0", "m1", "m2"} {
			require.NoError(t, c.put("n1", "orders", body))
		}
		c.do("n2", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "2", "dead_letter_topic": "dead"})
		c.do("n3", "channel.order", "orders", "billing", map[string]string{"order": "true"})
		c.do("n1", "channel.pause", "orders", "billing", nil)
		for _, n := range all {
			c.kill(n)
		}
		for _, n := range all {
			c.restart(n)
		}
		c.whole("orders")
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 2, DeadLetterTopic: "dead"})
		s := c.subscribe("n2", "orders", "billing", 10)
		c.counts("orders", "billing", 3, 0, 0)
		require.Empty(t, s.sub.Pull(10, nil), "paused")
		c.do("n3", "channel.unpause", "orders", "billing", nil)
		for range 2 {
			d := s.next()
			require.Equal(t, "m0", string(d.Message.Body))
			require.Empty(t, s.sub.Pull(10, nil), "ordered")
			require.NoError(t, s.sub.Requeue(d.ID, 0))
		}
		require.Equal(t, "m1", string(s.next().Message.Body), "two attempts are enough")
		require.Equal(t, "m0", string(c.subscribe("n1", "dead", "redrive", 1).next().Message.Body))
	})
}

func TestBrokerWithoutItsRegistrationStopsLeading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		leader := c.leader("orders")
		for range 2 {
			before := c.nodes[leader].Incarnation()
			c.expire(leader)
			c.eventually(func() bool { return c.nodes[leader].Incarnation() != before }, "no new registration")
		}
		for i := 1; i <= 5; i++ {
			require.NoError(t, c.put(leader, "orders", fmt.Sprintf("m%d", i)))
		}
		c.whole("orders")
		require.Len(t, c.drain(leader, "orders", 6), 6)
	})
}

// TestBrokerThatReceivesNothingElseStopsLeading: a leader is partitioned from all other
// brokers. The end of its registration is the only notification that reaches it.
func TestBrokerThatReceivesNothingElseStopsLeading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		leader := c.leader("orders")
		orders, _ := c.nodes[leader].Topic("orders")
		others := map[string][]string{"n1": {"n2", "n3"}, "n2": {"n3", "n1"}, "n3": {"n1", "n2"}}[leader]
		c.net.isolate(leader, others...)
		c.sessions[leader].Cut()
		require.True(t, c.nodes[leader].Leads(orders.Partition(0)))
		c.expire(leader)
		c.eventually(func() bool { return !c.nodes[leader].Leads(orders.Partition(0)) }, "it goes on")
		c.sessions[leader].Heal()
		c.net.heal()
		require.NoError(t, c.put(leader, "orders", "m1"))
	})
}

func TestStopHandsLeadershipsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		leader := c.leader("orders")
		stop, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.nodes[leader].TransferLeadership(stop)
		require.NoError(t, stop.Err())
		require.NotEqual(t, leader, c.leader("orders"))
		require.NoError(t, c.put(leader, "orders", "m1"), "its edges still serve")
		c.nodes[leader].Stop(stop)
		delete(c.nodes, leader)
		require.NoError(t, c.put(c.leader("orders"), "orders", "m2"))
	})
}

func TestTopicsAreDeletedOnAllBrokers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		ctx := context.Background()
		require.NoError(t, c.put("n1", "orders", "old"))
		old, _ := c.nodes["n1"].Topic("orders")
		require.NoError(t, do(ctx, c.nodes["n2"], operation{Verb: "topic.delete", Topic: "orders"}))
		c.eventually(func() bool {
			for _, b := range c.nodes {
				if _, ok := b.Topic("orders"); ok {
					return false
				}
				if _, ok := b.Queue(old.Partition(0)); ok {
					return false
				}
			}
			return true
		}, "the topic stays")
		require.NoError(t, do(ctx, c.nodes["n3"], operation{Verb: "topic.delete", Topic: "orders"}), "scripts ask every broker")
		require.NoError(t, do(ctx, c.nodes["n3"], operation{Verb: "topic.delete", Topic: "orders", Accept: ofNSQAdmin}), "nsqadmin, too")
		require.ErrorIs(t, do(ctx, c.nodes["n3"], operation{Verb: "topic.delete", Topic: "other"}), outcome.ErrTopicNotFound)

		require.NoError(t, c.put("n1", "orders", "new"))
		again, _ := c.nodes["n1"].Topic("orders")
		require.NotEqual(t, old.ID, again.ID)
		require.NoError(t, do(ctx, c.nodes["n3"], operation{Verb: "topic.delete", Topic: "orders", Accept: ofNSQAdmin}), "the same, after a producer was faster")
		require.Equal(t, map[string]int{"new": 1}, c.drain("n2", "orders", 1))
		require.NoError(t, do(ctx, c.nodes["n3"], operation{Verb: "topic.delete", Topic: "orders"}), "an operator means the topic that is there")
		require.NotContains(t, c.nodes["n3"].Topics(), "orders")
	})
}

func TestFolderOfATopicDeletedWhileAwayIsTrashed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		ctx := context.Background()
		require.NoError(t, c.put("n1", "orders", "old"))
		c.whole("orders")
		away := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[c.leader("orders")]
		c.kill(away)
		require.NoError(t, do(ctx, c.nodes[c.leader("orders")], operation{Verb: "topic.delete", Topic: "orders"}))
		c.restart(away)
		c.eventually(func() bool {
			names, err := c.disks[away].List("/data/trash")
			return err == nil && len(names) == 1
		}, "nothing in the trash")
	})
}

func TestConcurrentCreatorsConverge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		errs := make(chan error)
		for _, n := range []string{"n1", "n2", "n3"} {
			go func() { errs <- c.put(n, "orders", n) }()
		}
		for range 3 {
			require.NoError(t, <-errs)
		}
		require.Len(t, c.drain("n1", "orders", 3), 3)
	})
}

func TestTopicIsNotMadeWithFewerReplicasThanConfigured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		err := do(context.Background(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "orders", Args: map[string]string{"replication_factor": "3"}})
		require.ErrorIs(t, err, outcome.ErrInvalid)
		err = do(context.Background(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "orders",
			Args: map[string]string{"replication_factor": "1", "min_in_sync": "2"}})
		require.ErrorIs(t, err, outcome.ErrInvalid)
	})
}

func TestChannelsOfATopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		ctx := context.Background()
		do := func(verb, channel string) error {
			return do(ctx, c.nodes["n2"], operation{Verb: verb, Topic: "orders", Channel: channel})
		}
		require.NoError(t, c.put("n1", "orders", "m0"))
		require.NoError(t, do("channel.create", "first"))
		require.NoError(t, do("channel.create", "second"))
		require.Equal(t, []string{"first", "second"}, c.nodes["n2"].Channels("orders"))
		stats := c.nodes[c.leader("orders")].Broker.Inspector.Topics("orders", "", false)
		require.Len(t, stats, 1)
		require.EqualValues(t, 1, stats[0].Channels[0].Depth, "the first channel has what was there")
		require.EqualValues(t, 0, stats[0].Channels[1].Depth, "the second begins at the end")

		require.NoError(t, do("channel.pause", "first"))
		require.NoError(t, do("channel.unpause", "first"))
		require.NoError(t, do("channel.delete", "first"))
		require.ErrorIs(t, do("channel.delete", "third"), outcome.ErrChannelNotFound)
		require.Equal(t, []string{"second"}, c.nodes["n2"].Channels("orders"))
	})
}

func TestLookupNamesTheLeaderAndASurvivor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		_, producers, err := c.nodes["n3"].Lookup(context.Background(), "orders")
		require.NoError(t, err)
		require.Len(t, producers, 2)
		_, _, err = c.nodes["n3"].Lookup(context.Background(), "other")
		require.ErrorIs(t, err, outcome.ErrTopicNotFound)
	})
}

func TestRestoredDataPathIsANewMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		away := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		before := c.digest(away, "orders").Store
		c.kill(away)
		yesterday := c.disks[away].CrashClone(rand.New(rand.NewPCG(1, 1)))
		c.restart(away)
		c.whole("orders")
		require.Equal(t, before, c.digest(away, "orders").Store, "a restart keeps the store")
		require.NoError(t, c.put(leader, "orders", "m1"))
		c.whole("orders")
		c.kill(away)
		c.disks[away] = yesterday
		c.restart(away)
		c.whole("orders")
		require.NotEqual(t, before, c.digest(away, "orders").Store, "what it acknowledged is missing there")
		require.Len(t, c.drain(away, "orders", 2), 2)
	})
}

func TestClusterWithoutTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		view, err := json.Marshal(newCluster(t, 1).nodes["n1"].Cluster())
		require.NoError(t, err)
		require.Contains(t, string(view), `"topics":[]`)
	})
}

// TestSnapshotOfARunningBrokerIsANewMember: the copy was taken in the same run in which
// the writes that it lacks were made.
func TestSnapshotOfARunningBrokerIsANewMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, recount: 10 * time.Millisecond})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		before := c.digest(leader, "orders").Store
		snapshot := c.disks[leader].CrashClone(rand.New(rand.NewPCG(1, 1)))
		require.NoError(t, c.put(leader, "orders", "m1"))
		counter := func() int64 {
			e, err := c.meta.Get(context.Background(), metadata.Keys{Cluster: "test"}.Node(ident.Node(leader)))
			require.NoError(t, err)
			return e.Mod
		}
		then := counter()
		c.eventually(func() bool { return counter() > then+2 }, "it is not counted")
		c.kill(leader)
		c.disks[leader] = snapshot
		c.restart(leader)
		c.whole("orders")
		require.NotEqual(t, before, c.digest(leader, "orders").Store)
		require.Len(t, c.drain(leader, "orders", 2), 2)
	})
}

// TestTwoProcessesOfOneBroker: the later one keeps the registration; they do not take it from each other endlessly.
func TestTwoProcessesOfOneBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		first := c.nodes["n1"]
		defer first.Close()
		c.disks["n1"] = c.disks["n1"].CrashClone(rand.New(rand.NewPCG(1, 1)))
		c.restart("n1")
		second := c.nodes["n1"].Incarnation()
		select {
		case err := <-first.Failed():
			require.ErrorContains(t, err, "another process was started")
		case <-time.After(patience):
			t.Fatal("both go on")
		}
		c.whole("orders")
		require.Equal(t, second, c.nodes["n1"].Incarnation())
	})
}

func TestWipedBrokerIsFilledAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for i := range 20 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		leader := c.leader("orders")
		c.kill(leader)
		c.wipe(leader)
		c.restart(leader)
		c.whole("orders")
		require.Len(t, c.drain(leader, "orders", 20), 20)
	})
}
