package coordinator_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// slowList makes the listing of a topic's channels wait.
type slowList struct {
	hookedMeta
	wait func(ctx context.Context)
}

func (s slowList) List(ctx context.Context, prefix string) ([]metadata.Entry, int64, error) {
	if strings.Contains(prefix, "/channels/") {
		s.wait(ctx)
	}
	return s.hookedMeta.List(ctx, prefix)
}

// TestDeleteOfATopicThatIsMadeAgainAtOnce: producers create the topic again before the
// broker that deletes it has removed the channels' keys.
func TestDeleteOfATopicThatIsMadeAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deleted, again := make(chan struct{}), make(chan struct{})
		var once sync.Once
		wait := func(ctx context.Context) {
			once.Do(func() { close(deleted) })
			select {
			case <-again:
			case <-ctx.Done():
			}
		}
		c := newClusterOf(t, cluster{size: 3, wrap: func(name string, s metadata.Store) metadata.Store {
			if name != "n1" {
				return s
			}
			return slowList{hookedMeta{Store: s}, wait}
		}})
		require.NoError(t, c.put("n1", "orders", "old"))
		old, _ := c.nodes["n1"].Topic("orders")
		result := make(chan error, 1)
		began := time.Now()
		go func() {
			result <- do(context.Background(), c.nodes["n1"], operation{Verb: "topic.delete", Topic: "orders"})
		}()
		<-deleted
		c.eventually(func() bool { now, ok := c.nodes["n2"].Topic("orders"); return !ok || now.ID != old.ID }, "deleted")
		require.NoError(t, c.put("n2", "orders", "new")) // a producer continues
		c.eventually(func() bool { now, ok := c.nodes["n1"].Topic("orders"); return ok && now.ID != old.ID }, "made again")
		close(again)
		err := <-result
		t.Logf("the delete took %s", time.Since(began))
		require.NoError(t, err, "the topic was deleted")
	})
}

// TestSubscriptionsThatWaitDoNotTakeAllCalls: a topic is without its minimum, and its
// consumers wait for channels. Other topics are created.
func TestSubscriptionsThatWaitDoNotTakeAllCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "bad", "", map[string]string{"partitions": "96", "min_in_sync": "3"})
		c.leader("bad")
		create := func(name string) time.Duration {
			began := time.Now()
			err := do(context.Background(), c.nodes["n1"], operation{Verb: "topic.create", Topic: name, Args: map[string]string{"replication_factor": "2"}})
			t.Logf("%s: %v", name, err)
			return time.Since(began)
		}
		c.kill("n3")
		c.eventually(func() bool {
			v, _ := c.view("n1", "bad")
			for _, p := range v.Partitions {
				if p.Leader == "n3" || p.Leader == "" {
					return false
				}
			}
			return len(v.Partitions) == 96
		}, "elected")
		t.Logf("before: %s", create("before"))
		var done sync.WaitGroup
		var running atomic.Int32
		for i := range 8 {
			done.Go(func() {
				running.Add(1)
				_ = c.nodes["n1"].CreateChannel(context.Background(), "bad", fmt.Sprint("c", i), "", false)
			})
		}
		defer done.Wait()
		c.eventually(func() bool { return len(c.nodes["n1"].Channels("bad")) == 8 }, "keys")
		took := create("good")
		t.Logf("while eight consumers wait for another topic's channels: %s", took)
		require.Less(t, took, 2*time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		require.NoError(t, c.nodes["n1"].CreateChannel(ctx, "good", "mine", "", false))
	})
}

// TestQueueOfADeletedTopicDoesNotLead: with any events in the loop's queue at the end of a
// replica, its channels do not serve afterwards.
func TestQueueOfADeletedTopicDoesNotLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		zombies := 0
		for i := range 20 {
			name := fmt.Sprint("orders", i)
			require.NoError(t, c.put("n1", name, "m"))
			leader := c.leader(name)
			topic, _ := c.nodes[leader].Topic(name)
			q, _ := c.nodes[leader].Queue(topic.Partition(0))
			ctx, stop := context.WithCancel(context.Background())
			var puts sync.WaitGroup
			for range 4 {
				puts.Go(func() {
					for ctx.Err() == nil {
						d := queue.NewDraft(1)
						_ = d.AddMessage(queue.Message{Body: []byte("x")})
						done := make(fates, 1)
						c.nodes[leader].ProposePut(topic.Partition(0), d.Draft(ident.RequestID{}), done)
						if (<-done).Outcome != outcome.Committed {
							return
						}
					}
				})
			}
			c.do(leader, "topic.delete", name, "", nil)
			c.eventually(func() bool { _, ok := c.nodes[leader].Queue(topic.Partition(0)); return !ok }, "gone")
			stop()
			puts.Wait()
			_, err := q.CreateChannel(context.Background(), "late#ephemeral", nsqd.ChannelOptions{})
			if !errors.Is(err, nsqd.ErrNotLeader) {
				zombies++
			}
		}
		require.Zero(t, zombies, "of 20 deleted partitions still lead")
	})
}

type fates chan outcome.Completion

func (f fates) Complete(c outcome.Completion) { f <- c }

// TestChannelBelowTheMinimum: if a channel cannot be created in time because replicas are
// missing, the answer is to try again, on the leader as elsewhere.
func TestChannelBelowTheMinimum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"min_in_sync": "3"})
		c.leader("orders")
		c.kill("n3")
		c.eventually(func() bool { l := c.leader("orders"); return l == "n1" || l == "n2" }, "elected")
		for _, name := range []string{"n1", "n2"} {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			require.ErrorIs(t, c.nodes[name].CreateChannel(ctx, "orders", "billing", "", false), outcome.ErrUnavailable, name)
			cancel()
		}
	})
}

// TestProducersOfATopicThatCannotBeMade: many wait for the same topic, for which there
// are too few brokers. They are refused together, not one after the other.
func TestProducersOfATopicThatCannotBeMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, hold: time.Second})
		c.kill("n2")
		c.kill("n3")
		c.eventually(func() bool { // they are dead
			return !slices.ContainsFunc(c.nodes["n1"].Cluster().Brokers, func(v api.BrokerView) bool { return v.Alive && v.Name != "n1" })
		}, "dead")
		began := time.Now()
		var done sync.WaitGroup
		for range 16 {
			done.Go(func() {
				if err := c.nodes["n1"].Gateway.Admit(t.Context(), "orders", 1); err == nil {
					t.Error("it was made")
				}
			})
		}
		done.Wait()
		require.Less(t, time.Since(began), 9*time.Second) // the put limit
	})
}
