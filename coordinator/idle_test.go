package coordinator_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

const (
	idleAfter = 2 * time.Minute
	// idleLate is the time of two checks by the controller, and of a deletion.
	idleLate = 45 * time.Second
)

// idling starts a cluster that seldom sends heartbeats, so that minutes of idleness take little
// work. A broker that is killed closes its connections, which its peers notice at once.
func idling(t *testing.T, o cluster) *cluster {
	o.rpc = rpc.Times{Heartbeat: 5 * time.Second, Silent: 30 * time.Second, Dead: time.Minute}
	return graced(t, o)
}

// idles makes a topic of two partitions that is deleted when nothing uses it.
func (c *cluster) idles(topic string, args ...string) {
	c.t.Helper()
	with := map[string]string{"idle_after": idleAfter.String(), "partitions": "2"}
	for i := 0; i < len(args); i += 2 {
		with[args[i]] = args[i+1]
	}
	c.do("n1", "topic.create", topic, "", with)
}

// has reports whether a topic is there.
func (c *cluster) has(topic string) bool { return slices.Contains(c.nodes["n1"].Topics(), topic) }

// TestIdleTopicsAreDeleted: those that nothing uses, after their time and not before; they lie in the
// trash. A use of any kind keeps a topic.
func TestIdleTopicsAreDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var notes atomic.Pointer[[]string]
		notes.Store(&[]string{})
		c := idling(t, cluster{size: 3, deleteGrace: 24 * time.Hour, note: func(who api.Requester, detail string, err error) {
			require.NoError(t, err)
			all := append(slices.Clone(*notes.Load()), who.Identity+" "+detail)
			notes.Store(&all)
		}})
		for _, topic := range []string{"unused", "drained", "consumed", "deferred", "backlog", "kept", "paused", "pausedchannel", "dead", "subscribed"} {
			c.idles(topic)
		}
		c.idles("put", "message_ttl", "1s")
		c.do("n1", "topic.create", "other", "", nil)
		for _, topic := range []string{"unused", "drained", "consumed", "deferred", "backlog", "paused", "pausedchannel", "put", "other"} {
			c.do("n1", "channel.create", topic, "drain", nil)
		}
		for _, topic := range []string{"drained", "subscribed"} {
			require.NoError(t, c.put("n2", topic, "m"))
			c.drain("n3", topic, 1)
		}
		consumers := []*consumer{c.subscribe("n2", "consumed", "drain", 1)}
		c.putMessage("n1", "deferred", nil, queue.Message{Body: []byte("late"), DeliverAt: time.Now().Add(20 * time.Hour).UnixNano()})
		require.NoError(t, c.put("n1", "backlog", "m"))
		require.NoError(t, c.put("n1", "kept", "m"))
		c.do("n1", "topic.pause", "paused", "", nil)
		c.do("n1", "channel.pause", "pausedchannel", "drain", nil)
		c.do("n1", "channel.policy", "other", "drain", map[string]string{"max_attempts": "7", "dead_letter_topic": "dead"})
		dead := c.subscribe("n1", "dead", "archive", 1) // else the topic would stay for another reason
		dead.sub.Close(true)

		time.Sleep(idleAfter - time.Second)
		for _, topic := range []string{"unused", "drained"} {
			require.True(t, c.has(topic), "%s goes before its time", topic)
		}
		use := func() { // shorter than the pause between two checks
			require.NoError(t, c.put("n2", "put", "m"))
			s := c.subscribe("n3", "subscribed", "drain", 1)
			s.sub.Close(true)
		}
		use()
		time.Sleep(idleLate + time.Second)
		for _, topic := range []string{"unused", "drained"} {
			require.False(t, c.has(topic), "%s stays", topic)
		}
		for range 4 {
			time.Sleep(idleAfter - idleLate)
			use()
		}
		for _, topic := range []string{"consumed", "deferred", "backlog", "kept", "paused", "pausedchannel", "dead", "subscribed", "put", "other"} {
			require.True(t, c.has(topic), "%s was deleted", topic)
		}
		trash := c.nodes["n2"].Trash()
		require.Len(t, trash, 2)
		for _, x := range trash {
			require.Equal(t, "idle", x.By)
			require.Contains(t, *notes.Load(), "idle deleted topic "+x.Topic+", which nothing has used for 2m0s")
		}
		require.NoError(t, c.undelete("n3", "drained"))
		c.eventually(func() bool { return c.has("drained") }, "a broker does not hear of the undelete")

		// The use of each ends.
		consumers[0].sub.Close(true)
		c.do("n1", "topic.unpause", "paused", "", nil)
		c.do("n1", "channel.unpause", "pausedchannel", "drain", nil)
		c.do("n1", "channel.empty", "backlog", "drain", nil)
		c.do("n1", "channel.empty", "deferred", "drain", nil)
		c.do("n1", "channel.policy", "other", "drain", map[string]string{"max_attempts": "0", "dead_letter_topic": ""})
		c.drain("n1", "kept", 1)
		time.Sleep(idleAfter + idleLate)
		require.Equal(t, []string{"other"}, c.nodes["n1"].Topics())
	})
}

// TestAnotherLeaderBeginsAnew: what was before it leads does not count.
func TestAnotherLeaderBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idling(t, cluster{size: 3})
		c.idles("orders", "partitions", "1")
		time.Sleep(idleAfter - time.Minute)
		leader := c.leader("orders")
		c.kill(leader)
		c.restart(leader)
		c.leader("orders")
		time.Sleep(idleAfter - time.Second)
		require.True(t, c.has("orders"), "the time of the leader before counts")
		time.Sleep(idleLate + time.Second)
		require.False(t, c.has("orders"))
	})
}

// TestIdleTopicWaitsForAllLeaders: one of two partitions has no leader, so nothing is known of it.
func TestIdleTopicWaitsForAllLeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idling(t, cluster{size: 3})
		c.idles("orders", "partitions", "3", "replication_factor", "1", "min_in_sync", "1")
		c.kill("n3")
		time.Sleep(3 * idleAfter)
		require.True(t, c.has("orders"), "it was deleted without an answer of a leader")
		c.restart("n3")
		time.Sleep(idleAfter - time.Second)
		require.True(t, c.has("orders"))
		time.Sleep(idleLate + time.Second)
		require.False(t, c.has("orders"))
	})
}

// beforeTrash calls a function before the transaction that moves a topic into the trash.
type beforeTrash struct {
	metadata.Store
	call func()
}

func (s beforeTrash) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	if slices.ContainsFunc(puts, func(p metadata.Put) bool { return !p.Delete && strings.Contains(p.Key, "/trash/") }) {
		s.call()
	}
	return s.Store.Txn(ctx, cmp, puts)
}

// TestUseAtTheLastMoment: after the leaders said that nothing uses the topic, and before the transaction. A put lies in
// the trash with the topic. A subscription to a new channel keeps the topic, for it changes the topic's key.
func TestUseAtTheLastMoment(t *testing.T) {
	t.Parallel()
	for _, subscription := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var c *cluster
			var times atomic.Int32
			c = graced(t, cluster{size: 3, wrap: func(_ string, s metadata.Store) metadata.Store {
				return beforeTrash{s, func() {
					if times.Add(1) > 1 { // the grace begins
						return
					}
					if subscription {
						c.do("n1", "channel.create", "orders", "late", nil)
						return
					}
					require.NoError(t, c.put("n2", "orders", "late"))
				}}
			}})
			c.idles("orders")
			time.Sleep(idleAfter + idleLate)
			require.Positive(t, times.Load(), "the topic was never to be deleted")
			if subscription {
				require.True(t, c.has("orders"), "a topic with a new channel was deleted")
				return
			}
			require.False(t, c.has("orders"))
			require.NoError(t, c.undelete("n1", "orders"))
			require.Equal(t, map[string]int{"late": 1}, c.drain("n1", "orders", 1))
		})
	}
}

// TestIdleAfterIsRefused: without a grace in which the topic can be undeleted.
func TestIdleAfterIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		args := map[string]string{"idle_after": "10m"}
		c := graced(t, cluster{size: 1, topicDefaults: topicDefaults(t, "*:idle-after=10m")})
		require.NoError(t, c.put("n1", "orders", "m"))
		v, _ := c.view("n1", "orders")
		require.EqualValues(t, 600_000, v.IdleMS)
		require.NoError(t, c.administer("n1", "topic.set", "orders", map[string]string{"idle_after": "0s"}))
		v, _ = c.view("n1", "orders")
		require.Zero(t, v.IdleMS)
		require.ErrorContains(t, c.administer("n1", "topic.set", "orders", map[string]string{"idle_after": "59s"}), "1m0s or more")

		c = newCluster(t, 1)
		require.ErrorContains(t, c.administer("n1", "topic.create", "orders", args), "--delete-grace")
	})
}
