package coordinator_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// graced starts brokers that keep deleted topics.
func graced(t testing.TB, o cluster) *cluster {
	o.deleteGrace = cmp.Or(o.deleteGrace, time.Hour)
	return newClusterOf(t, o)
}

// folders are the folders of partitions on a broker's disk.
func (c *cluster) folders(of string) (all []string) {
	topics, _ := c.disks[of].List("/data/topics")
	for _, topic := range topics {
		names, _ := c.disks[of].List("/data/topics/" + topic)
		all = append(all, names...)
	}
	return all
}

// trashed waits until a topic lies in the trash and the grace has begun, and gives its key.
func (c *cluster) trashed(topic string) (found metadata.TrashState) {
	c.t.Helper()
	c.eventually(func() bool {
		entries, _, err := c.meta.List(context.Background(), metadata.Keys{Cluster: "test"}.Trashes())
		require.NoError(c.t, err)
		for _, e := range entries {
			if s, err := metadata.DecodeTrash(e); err == nil && s.Name == topic && s.SeenMS != 0 {
				found = s
				return true
			}
		}
		return false
	}, "%s is not in the trash", topic)
	return found
}

func (c *cluster) undelete(on, topic string) error {
	c.t.Helper()
	return do(context.Background(), c.nodes[on], operation{Verb: "topic.undelete", Topic: topic})
}

// filled makes a topic with two channels: billing has finished 5 of 20 messages, and defers one;
// audit is paused, has a policy, and has finished none.
func (c *cluster) filled(topic string) {
	c.t.Helper()
	c.do("n1", "topic.create", topic, "", map[string]string{"message_ttl": "10h", "max_bytes": "1000000"})
	for _, channel := range []string{"billing", "audit"} {
		c.do("n1", "channel.create", topic, channel, nil)
	}
	c.do("n1", "channel.policy", topic, "audit", map[string]string{"max_attempts": "7", "dead_letter_topic": "dead"})
	c.do("n1", "channel.pause", topic, "audit", nil)
	for i := range 19 {
		require.NoError(c.t, c.put("n1", topic, fmt.Sprintf("m%d", i)))
	}
	c.putMessage("n1", topic, nil, queue.Message{Body: []byte("late"), DeliverAt: time.Now().Add(5 * time.Hour).UnixNano()})
	s := c.subscribe("n2", topic, "billing", 5)
	s.finish(s.take(5)...)
	s.sub.Close(true)
	c.asFilled(topic)
}

// asFilled waits until the topic is as filled has left it.
func (c *cluster) asFilled(topic string) {
	c.t.Helper()
	c.counts(topic, "billing", 14, 0, 1)
	c.counts(topic, "audit", 19, 0, 1)
	c.knowPolicy(topic, "audit", api.ChannelPolicy{MaxAttempts: 7, DeadLetterTopic: "dead"})
	s, _ := c.stats(topic, "audit")
	require.True(c.t, s.Paused)
	v, ok := c.view("n3", topic)
	require.True(c.t, ok)
	require.EqualValues(c.t, 1_000_000, v.MaxBytes)
	require.Equal(c.t, (10 * time.Hour).Milliseconds(), v.TTLMS)
}

// TestTopicIsUndeleted: everything is as it was, also when all brokers died, and the topic continues as ever.
func TestTopicIsUndeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, die := range []bool{false, true} {
			c := graced(t, cluster{size: 3})
			c.filled("orders")
			before := c.digest("n1", "orders")
			consumer := c.subscribe("n3", "orders", "billing", 1)
			consumer.next()
			c.do("n2", "topic.delete", "orders", "", nil)
			select {
			case <-consumer.sub.Closed():
			case <-time.After(patience):
				require.Fail(t, "the consumer of a deleted topic stays")
			}
			c.trashed("orders")
			for _, n := range all {
				require.NotContains(t, c.nodes[n].Topics(), "orders")
				for _, node := range c.nodes[n].Nodes() {
					require.NotContains(t, node.Topics, "orders")
				}
				for _, s := range c.nodes[n].Broker.Inspector.Topics("", "", true) {
					require.NotEqual(t, "orders", s.TopicName)
				}
			}
			list := c.nodes["n3"].Trash()
			require.Len(t, list, 1)
			require.Equal(t, "orders", list[0].Topic)
			require.EqualValues(t, 20, list[0].Messages)
			require.EqualValues(t, before.Committed, list[0].Bytes)
			require.Equal(t, 2, list[0].Channels)
			require.False(t, list[0].Incomplete)
			require.Positive(t, list[0].RemainingMS)
			if die {
				for _, n := range all {
					c.kill(n)
				}
				for _, n := range all {
					c.restart(n)
				}
			}
			require.NoError(t, c.undelete("n3", "orders"))
			require.ErrorIs(t, c.undelete("n1", "orders"), outcome.ErrTopicNotFound, "it is not in the trash any more")
			c.whole("orders")
			c.asFilled("orders")
			require.NoError(t, c.put("n1", "orders", "after"))
			s := c.subscribe("n1", "orders", "billing", 100)
			require.Len(t, s.take(15), 15)
		}
	})
}

// TestTrashWithoutALeader: while the leader of a deleted topic is away its size is unknown, not 0.
func TestTrashWithoutALeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := graced(t, cluster{size: 3})
		c.do("n1", "topic.create", "orders", "", map[string]string{"replication_factor": "1", "min_in_sync": "1"})
		require.NoError(t, c.put("n1", "orders", "m0"))
		leader := c.leader("orders")
		other := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.do(other, "topic.delete", "orders", "", nil)
		c.trashed("orders")
		list := c.nodes[other].Trash()
		require.Len(t, list, 1)
		require.False(t, list[0].Incomplete)
		require.Positive(t, list[0].Bytes)
		c.kill(leader)
		list = c.nodes[other].Trash()
		require.Len(t, list, 1)
		require.True(t, list[0].Incomplete)
		c.restart(leader)
		c.eventually(func() bool { list = c.nodes[other].Trash(); return !list[0].Incomplete }, "its size stays unknown")
		require.EqualValues(t, 1, list[0].Messages)
	})
}

// TestBrokersThatWereAway: one misses the deletion, one the undelete, one both.
func TestBrokersThatWereAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := graced(t, cluster{size: 3})
		c.filled("orders")
		c.kill("n3")
		c.do("n1", "topic.delete", "orders", "", nil)
		c.trashed("orders")
		c.restart("n3")
		c.eventually(func() bool { return len(c.nodes["n3"].Trash()) == 1 }, "it does not know the trash")
		c.kill("n2")
		require.NoError(t, c.undelete("n3", "orders"))
		require.NoError(t, c.put("n1", "orders", "one"))
		c.restart("n2")
		c.whole("orders")
		c.kill("n1")
		c.do("n2", "topic.delete", "orders", "", nil)
		require.NoError(t, c.undelete("n3", "orders"))
		require.NoError(t, c.put("n3", "orders", "two"))
		c.restart("n1")
		c.whole("orders")
		c.counts("orders", "billing", 16, 0, 1)
	})
}

// TestDeletedAgain: a deletion soon after another one is that one, repeated on another broker, only while nothing
// has brought the topic back but a put. Each deletion and each undelete is an event.
func TestDeletedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorders := map[string]*events.Recorder{"n1": events.New(), "n2": events.New(), "n3": events.New()}
		c := graced(t, cluster{size: 3, events: recorders})
		require.NoError(t, c.put("n1", "orders", "m"))
		c.whole("orders")
		for _, on := range []string{"n1", "n1", "n2", "n3"} {
			c.do(on, "topic.delete", "orders", "", nil)
			require.Len(t, c.nodes[on].Trash(), 1, "deleted again on %s", on)
			require.NotContains(t, c.nodes[on].Topics(), "orders", "deleted again on %s", on)
			c.do("n2", "topic.delete", "orders", "", nil) // as nsqadmin does
			require.NoError(t, c.undelete("n1", "orders"))
		}
		all := consoles(t, c)
		count := func(code string) (n int) {
			for _, e := range all["n1"].Events(t.Context(), console.EventsOf{Kinds: []string{events.Topic}, Topic: "orders"}).Events {
				if e.Code == code {
					n++
				}
			}
			return n
		}
		c.eventually(func() bool { return count("undeleted") == 4 && count("deleted") == 4 }, "each deletion is an event, and each undelete")

		c.do("n1", "topic.delete", "orders", "", nil)
		c.eventually(func() bool { return !slices.Contains(c.nodes["n2"].Topics(), "orders") }, "n2 hears of it: before that a put is refused")
		require.NoError(t, c.put("n2", "orders", "new"))
		require.NoError(t, do(t.Context(), c.nodes["n3"], operation{Verb: "topic.delete", Topic: "orders", Accept: ofNSQAdmin}))
		require.Contains(t, c.nodes["n3"].Topics(), "orders", "the same deletion, repeated: it takes no newer message")
		c.do("n1", "topic.create", "orders", "", nil) // an operator wants it, or its deletion
		require.NoError(t, do(t.Context(), c.nodes["n3"], operation{Verb: "topic.delete", Topic: "orders", Accept: ofNSQAdmin, Args: map[string]string{"now": "true"}}))
		require.NotContains(t, c.nodes["n3"].Topics(), "orders")
	})
}

// TestNameOfADeletedTopicIsFree: a new topic has the name. It is another: it takes nothing
// of the deleted one, and the deleted one comes back when the new one is deleted, by its id.
func TestNameOfADeletedTopicIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := graced(t, cluster{size: 3, tombstoneGrace: time.Millisecond})
		c.filled("orders")
		c.do("n1", "topic.delete", "orders", "", nil)
		old := c.trashed("orders")
		c.do("n2", "topic.create", "orders", "", nil) // made by a put, its deletion would be the one before, repeated
		require.NoError(t, c.put("n2", "orders", "new"))
		require.ErrorIs(t, c.undelete("n3", "orders"), outcome.ErrConflict)
		require.ErrorContains(t, c.undelete("n3", "orders"), old.Topic.ID.String())
		require.Equal(t, map[string]int{"new": 1}, c.drain("n1", "orders", 1))
		v, _ := c.view("n1", "orders")
		require.NotEqual(t, old.Topic.ID, v.ID)
		require.Zero(t, v.MaxBytes)

		c.do("n1", "topic.delete", "orders", "", nil)
		require.Len(t, c.nodes["n1"].Trash(), 2)
		require.NoError(t, do(t.Context(), c.nodes["n2"], operation{Verb: "topic.undelete", Topic: "orders", Args: map[string]string{"id": old.Topic.ID.String()}}))
		c.asFilled("orders")
		require.Len(t, c.nodes["n2"].Trash(), 1)
		c.do("n2", "topic.purge", "orders", "", nil)
		require.Empty(t, c.nodes["n2"].Trash())
		c.whole("orders")
		c.asFilled("orders")
	})
}

// TestTopicInTheTrashTakesNoPuts: also not from an edge that has not seen the deletion.
func TestTopicInTheTrashTakesNoPuts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := graced(t, cluster{size: 3})
		require.NoError(t, c.put("n1", "orders", "m0"))
		leader := c.leader("orders")
		topic, _ := c.nodes[leader].Topic("orders")
		c.do(leader, "topic.delete", "orders", "", nil)
		d := queue.NewDraft(4)
		_ = d.AddMessage(queue.Message{Body: []byte("late")})
		done := make(chan outcome.Outcome, 1)
		c.nodes[leader].ProposePut(topic.Partition(0), d.Draft(ident.RequestID{Producer: 1, N: 1}), completerFunc(func(x outcome.Completion) { done <- x.Outcome }))
		c.nodes[leader].FlushPuts()
		require.Equal(t, outcome.NotLeader, <-done)
		require.NoError(t, c.undelete("n2", "orders"))
		require.Equal(t, map[string]int{"m0": 1}, c.drain("n2", "orders", 1))
	})
}

// TestTrashIsEmptiedAfterTheGrace: not before, however the time of day jumps, and with every failure
// of a controller the grace gets longer, if anything.
func TestTrashIsEmptiedAfterTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const grace = 4 * time.Minute
		c := graced(t, cluster{size: 1, deleteGrace: grace, trashGrace: time.Second, tombstoneGrace: time.Millisecond})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "topic.delete", "orders", "", nil)
		deleted := c.trashed("orders")
		deleted.DeletedAtMS = 1 // as a clock that is decades behind would have it
		key := metadata.Keys{Cluster: "test"}.Trash(deleted.Topic.ID)
		ok, _, err := c.meta.Txn(t.Context(), nil, []metadata.Put{{Key: key, Value: metadata.Encode(deleted)}})
		require.True(t, ok && err == nil)
		time.Sleep(grace / 2)
		c.kill("n1")
		time.Sleep(grace) // no controller: this does not count
		c.restart("n1")
		time.Sleep(grace/2 - time.Second)
		require.Len(t, c.folders("n1"), 1, "before the grace is over")
		require.Len(t, c.nodes["n1"].Trash(), 1)
		c.eventually(func() bool { return len(c.nodes["n1"].Trash()) == 0 }, "it stays in the trash")
		c.eventually(func() bool { return len(c.folders("n1"))+len(c.trash("n1")) == 0 }, "its files stay")
		require.ErrorIs(t, c.undelete("n1", "orders"), outcome.ErrTopicNotFound)
		time.Sleep(10 * time.Minute)
		left, _, err := c.meta.List(t.Context(), metadata.Keys{Cluster: "test"}.Root())
		require.NoError(t, err)
		for _, e := range left {
			require.NotContains(t, e.Key, deleted.Topic.ID.String(), "a key of the topic")
		}
	})
}

// TestBrokerAwayUntilTheTrashIsEmptied: its folder goes when it is back.
func TestBrokerAwayUntilTheTrashIsEmptied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := graced(t, cluster{size: 3})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		c.do("n1", "topic.delete", "orders", "", nil)
		c.trashed("orders")
		c.kill("n3")
		require.NoError(t, c.put("n1", "orders", "new")) // the name is another topic's
		c.do("n1", "topic.purge", "orders", "", nil)
		for _, n := range []string{"n1", "n2"} {
			c.eventually(func() bool { return len(c.folders(n)) == 1 }, "its files stay on %s", n)
		}
		require.Len(t, c.folders("n3"), 1)
		c.restart("n3")
		c.whole("orders")
		c.eventually(func() bool { return len(c.folders("n3")) == 1 && len(c.trash("n3")) == 1 }, "its files stay on n3")
	})
}

// TestDeletionForGood: at once with now, without a grace, and of an #ephemeral topic.
func TestDeletionForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := graced(t, cluster{size: 1})
		for _, topic := range []string{"orders", "notes#ephemeral"} {
			require.NoError(t, c.put("n1", topic, "m0"))
			args := map[string]string{"now": "true"}
			if topic != "orders" {
				args = nil
			}
			c.do("n1", "topic.delete", topic, "", args)
			require.Empty(t, c.nodes["n1"].Trash())
			c.eventually(func() bool { return len(c.folders("n1")) == 0 }, "its files stay")
			require.ErrorIs(t, c.undelete("n1", topic), outcome.ErrTopicNotFound)
		}
	})
}

// TestReplicasInTheTrashMoveAway: a broker is decommissioned while a topic lies in the trash. The
// topic has all its replicas when it comes back.
func TestReplicasInTheTrashMoveAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := graced(t, cluster{size: 4})
		c.do("n1", "topic.create", "orders", "", map[string]string{"replication_factor": "3"})
		require.NoError(t, c.put("n1", "orders", "m0"))
		v, _ := c.view("n1", "orders")
		leaves := string(v.Partitions[0].Replicas[0])
		c.do("n1", "topic.delete", "orders", "", nil)
		c.do("n1", "broker.decommission", "", "", map[string]string{"node": leaves})
		c.eventually(func() bool { return c.nodes[leaves].Decommissioned() }, "its replicas stay")
		c.eventually(func() bool { return len(c.folders(leaves)) == 0 }, "its folders stay")
		c.kill(leaves)
		require.NoError(t, c.undelete(slices.DeleteFunc([]string{"n1", "n2", "n3", "n4"}, func(n string) bool { return n == leaves })[0], "orders"))
		for n := range c.nodes {
			require.Equal(t, map[string]int{"m0": 1}, c.drain(n, "orders", 1))
			break
		}
		c.eventually(func() bool {
			for n := range c.nodes {
				v, ok := c.view(n, "orders")
				if !ok || len(v.Partitions[0].ISR) != 3 {
					return false
				}
			}
			return true
		}, "a replica is missing")
	})
}

// TestTrashGoesEarlyForADiskWithoutRoom: with the setting, and without it not.
func TestTrashGoesEarlyForADiskWithoutRoom(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := graced(t, cluster{size: 1, deleteEarly: early, tombstoneGrace: time.Millisecond, maxDisk: 200_000, segmentBytes: 1 << 20})
			body := make([]byte, 1000)
			for range 120 {
				require.NoError(t, c.put("n1", "old", string(body)))
			}
			c.do("n1", "topic.delete", "old", "", nil)
			c.trashed("old")
			c.eventually(func() bool { return c.put("n1", "orders", string(body)) != nil }, "the disk has room")
			if !early {
				time.Sleep(time.Second)
				require.Len(t, c.nodes["n1"].Trash(), 1)
				return
			}
			c.eventually(func() bool { return len(c.nodes["n1"].Trash()) == 0 }, "it stays")
			c.eventually(func() bool { return c.put("n1", "orders", "m") == nil }, "there is room again")
		})
	}
}

// afterTxn calls a function after each transaction that was carried out, and before its answer.
type afterTxn struct {
	metadata.Store
	call func(puts []metadata.Put)
}

func (s afterTxn) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	ok, rev, err := s.Store.Txn(ctx, cmp, puts)
	if ok {
		s.call(puts)
	}
	return ok, rev, err
}

// TestUndeletedBeforeTheAnswer: another broker undeletes a topic at once. The deletion is answered.
func TestUndeletedBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c *cluster
		c = graced(t, cluster{size: 3, wrap: func(name string, s metadata.Store) metadata.Store {
			if name != "n1" {
				return s
			}
			return afterTxn{s, func(puts []metadata.Put) {
				if len(puts) == 2 && !puts[1].Delete && strings.Contains(puts[1].Key, "/trash/") {
					require.NoError(t, c.undelete("n2", "orders"))
					time.Sleep(time.Second) // this broker has both
				}
			}}
		}})
		require.NoError(t, c.put("n1", "orders", "m"))
		began := time.Now()
		c.do("n1", "topic.delete", "orders", "", nil)
		require.Less(t, time.Since(began), 2*time.Second)
		require.Contains(t, c.nodes["n1"].Topics(), "orders")
	})
}
