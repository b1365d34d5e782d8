package coordinator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/stretchr/testify/require"
)

// knowPolicy waits until every broker has received a policy.
func (c *cluster) knowPolicy(topic, channel string, want api.ChannelPolicy) {
	c.t.Helper()
	c.eventually(func() bool {
		for _, b := range c.nodes {
			if p, err := b.Policy(topic, channel); err != nil || p != want {
				return false
			}
		}
		return true
	}, "a broker does not hear of the policy")
}

func TestDeadMessagesGoToTheirTopicAndBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "2"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.create", "orders", "audit", nil)
		c.do("n2", "channel.policy", "orders", "billing", map[string]string{
			"max_attempts": "3", "dead_letter_topic": "dead", "retry_backoff": "1ms",
		})
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 3, DeadLetterTopic: "dead", BackoffMS: 1, BackoffFactor: 2})

		id := c.putMessage("n1", "orders", nil, queue.Message{Body: []byte("poison"), Header: []byte(`{"a":"b"}`)})
		require.NoError(t, c.put("n1", "orders", "good"))
		s := c.subscribe("n2", "orders", "billing", 10)
		for failures := 0; failures < 3; {
			if d := s.next(); string(d.Message.Body) == "poison" {
				failures++
				require.NoError(t, s.sub.Requeue(d.ID, 0))
			} else {
				s.finish(d)
			}
		}
		c.counts("orders", "billing", 0, 0, 0)
		c.counts("dead", "redrive", 1, 0, 0)

		look := c.subscribe("n3", "dead", "redrive", 1)
		d := look.next()
		var h map[string]any
		require.NoError(t, json.Unmarshal(d.Message.Header, &h))
		require.Equal(t, "poison", string(d.Message.Body))
		require.Equal(t, "orders", h["##original_topic"])
		require.Equal(t, "billing", h["##original_channel"])
		require.Equal(t, string(id[:]), h["##original_id"])
		require.EqualValues(t, 3, h["##attempts"])
		require.NotZero(t, h["##original_time"])
		require.Equal(t, map[string]any{"a": "b"}, h["##original_header"])
		look.sub.Close(true)

		n, err := c.nodes["n1"].Redrive(t.Context(), "orders", "billing", 100)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		d = s.next()
		require.Equal(t, "poison", string(d.Message.Body))
		require.EqualValues(t, 1, d.Message.Attempts)
		require.JSONEq(t, fmt.Sprintf(`{"a":"b","##only_channel":"billing","##redriven_id":%q}`, id[:]), string(d.Message.Header))
		s.finish(d)
		c.counts("dead", "redrive", 0, 0, 0)
		audit := c.subscribe("n1", "orders", "audit", 10)
		require.ElementsMatch(t, []string{"poison", "good"}, bodies(audit.take(2)), "each once")
		c.counts("orders", "audit", 0, 2, 0)

		for _, bad := range []map[string]string{
			{"max_attempts": "x"}, {"max_attempts": "3", "dead_letter_topic": ""}, {"dead_letter_topic": "orders"},
			{"retry_backoff": "soon"}, {"retry_backoff": "1s,0"}, {"retry_backoff": "1s,2,1m,3"}, {"retry_backoff": "1s,NaN"},
		} {
			err := do(t.Context(), c.nodes["n1"], operation{Verb: "channel.policy", Topic: "orders", Channel: "billing", Args: bad})
			require.ErrorIs(t, err, outcome.ErrInvalid, "%v", bad)
		}
	})
}

// A redriven message is unchanged: its partition, its trace, its header to the digit.
func TestRedrivenMessagesAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "4"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": "dead"})
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 1, DeadLetterTopic: "dead"})
		const n = 12
		where := map[string]uint16{}
		for i := range n {
			key := fmt.Sprint("k", i)
			id := c.putMessage("n1", "orders", []byte(key), queue.Message{Body: []byte(key), Trace: uint64(i) + 1, Header: []byte(`{"user":9007199254740993,"price":1.10}`)})
			place, _ := api.ParseMessageID(id)
			where[key] = place.Partition
		}
		s := c.subscribe("n2", "orders", "billing", 4*n)
		for _, d := range s.take(n) {
			require.NoError(t, s.sub.Requeue(d.ID, 0))
		}
		c.counts("dead", "redrive", n, 0, 0)
		look := c.subscribe("n3", "dead", "redrive", 4*n)
		for _, d := range look.take(n) {
			require.NotZero(t, d.Message.Trace)
		}
		look.sub.Close(true)

		moved, err := c.nodes["n1"].Redrive(t.Context(), "orders", "billing", 4*n)
		require.NoError(t, err)
		require.Equal(t, n, moved)
		for _, d := range s.take(n) {
			key := string(d.Message.Body)
			require.Equal(t, where[key], d.Partition.Number, key)
			require.Equal(t, key, fmt.Sprint("k", d.Message.Trace-1))
			require.Contains(t, string(d.Message.Header), `"user":9007199254740993`)
			require.Contains(t, string(d.Message.Header), `"price":1.10`)
			s.finish(d)
		}
	})
}

// A dead-letter topic that was deleted comes back with the channel that keeps its messages.
func TestDeadLetterTopicIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": "dead"})
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 1, DeadLetterTopic: "dead"})
		c.do("n2", "topic.delete", "dead", "", nil)
		require.NoError(t, c.put("n1", "orders", "poison"))
		s := c.subscribe("n2", "orders", "billing", 1)
		require.NoError(t, s.sub.Requeue(s.next().ID, 0))
		c.counts("orders", "billing", 0, 0, 0)

		look := c.subscribe("n3", "dead", "look", 1)
		require.NoError(t, c.put("n1", "dead", "another")) // the pass may have come too late for poison
		look.finish(look.next())
		n, err := c.nodes["n1"].Redrive(t.Context(), "orders", "billing", 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		s.finish(s.next())
	})
}

// TestRedriveWithoutALeaderOfTheLetters: while the dead-letter topic has no leader, it is
// not known whether it has dead letters.
func TestRedriveWithoutALeaderOfTheLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "topic.create", "dead", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": "dead"})
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 1, DeadLetterTopic: "dead"})
		leader := c.leader("dead")
		here := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		n, err := c.nodes[here].Redrive(t.Context(), "orders", "billing", 10)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, c.put("n1", "orders", "poison"))
		s := c.subscribe(here, "orders", "billing", 1)
		require.NoError(t, s.sub.Requeue(s.next().ID, 0))
		c.counts("dead", "redrive", 1, 0, 0)
		for name := range c.nodes {
			if name != here && name != leader {
				c.kill(name)
			}
		}
		c.kill(leader)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.nodes[here].Redrive(short, "orders", "billing", 10)
		require.ErrorIs(t, err, outcome.ErrUnavailable)
		c.restart(leader)
		n, err = c.nodes[here].Redrive(t.Context(), "orders", "billing", 10)
		require.NoError(t, err)
		require.NotZero(t, n, "its finish may be forgotten, so that it dies once more")
	})
}

// A redrive to a topic that is full says so, in one line, and can be repeated.
func TestRedriveToAFullTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": "dead"})
		s := c.subscribe("n1", "orders", "billing", 1)
		const n = 3
		for range n {
			require.NoError(t, c.put("n1", "orders", "poison"))
			require.NoError(t, s.sub.Requeue(s.next().ID, 0))
		}
		c.counts("dead", "redrive", n, 0, 0)
		c.do("n1", "topic.set", "orders", "", map[string]string{"max_bytes": "1"})
		c.eventually(func() bool { return c.put("n1", "orders", "more") != nil }, "full")
		moved, err := c.nodes["n1"].Redrive(t.Context(), "orders", "billing", 10)
		require.Zero(t, moved)
		require.ErrorIs(t, err, outcome.ErrUnavailable)
		require.ErrorIs(t, err, outcome.ErrTopicFull)
		require.NotContains(t, err.Error(), "\n")
		c.do("n1", "topic.set", "orders", "", map[string]string{"max_bytes": "0"})
		c.eventually(func() bool { return c.put("n1", "orders", "more") == nil }, "room")
		moved, err = c.nodes["n1"].Redrive(t.Context(), "orders", "billing", 10)
		require.NoError(t, err)
		require.Equal(t, n, moved)
	})
}

// TestDeadMessagesOutliveTheirLeader: the next leader moves the dead letters that the leader before it has not moved.
func TestDeadMessagesOutliveTheirLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": "dead"})
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 1, DeadLetterTopic: "dead"})
		const n = 50
		for i := range n {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		c.whole("orders")
		c.whole("dead")
		old := c.leader("orders")
		s := c.subscribe(map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[old], "orders", "billing", n)
		for i, d := range s.take(n) {
			require.NoError(t, s.sub.Requeue(d.ID, 0))
			if i == n/2 {
				c.kill(old)
			}
		}
		c.leader("orders")
		c.leader("dead")
		got, deadline := map[string]bool{}, time.Now().Add(patience)
		redrive := c.subscribe(c.leader("dead"), "dead", "redrive", 2*n)
		for len(got) < n && time.Now().Before(deadline) {
			// A message that returned to the channel before its leader received the reason may be delivered once more.
			for _, d := range s.sub.Pull(10, nil) {
				require.NoError(t, s.sub.Requeue(d.ID, 0))
			}
			for _, d := range redrive.sub.Pull(10, nil) {
				got[string(d.Message.Body)] = true
				redrive.finish(d)
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Len(t, got, n)
		c.counts("orders", "billing", 0, 0, 0)
	})
}

func TestDeferredMessagesAreListedAndCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "3"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.create", "orders", "audit", nil)
		at := time.Now().Add(time.Hour)
		var ids []api.MessageID
		for i := range 6 {
			ids = append(ids, c.putMessage(all[i%3], "orders", []byte{byte(i)}, queue.Message{
				Body: []byte("later"), DeliverAt: at.Add(time.Duration(-i) * time.Minute).UnixNano(),
			}))
		}
		require.NoError(t, c.put("n1", "orders", "now"))
		list, err := c.nodes["n2"].Deferred(t.Context(), "orders", "billing", 4)
		require.NoError(t, err)
		require.Len(t, list, 4)
		for i, m := range list {
			require.Equal(t, string(ids[5-i][:]), m.ID, "the next due first")
		}
		n, err := c.nodes["n3"].CancelDeferred(t.Context(), "orders", "billing", ids[1:4])
		require.NoError(t, err)
		require.Equal(t, 3, n)
		n, err = c.nodes["n1"].CancelDeferred(t.Context(), "orders", "billing", ids[3:5])
		require.NoError(t, err)
		require.Equal(t, 1, n, "one was cancelled before")
		c.counts("orders", "billing", 1, 0, 2)
		c.counts("orders", "audit", 1, 0, 6)
		_, err = c.nodes["n1"].CancelDeferred(t.Context(), "orders", "billing", []api.MessageID{{'x'}})
		require.ErrorIs(t, err, outcome.ErrInvalid)
		_, err = c.nodes["n1"].Deferred(t.Context(), "orders", "nobody", 4)
		require.ErrorIs(t, err, outcome.ErrChannelNotFound)
	})
}

func TestSeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "2", "retention_time": "1h"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		for i := range 10 {
			c.putMessage("n1", "orders", []byte{byte(i)}, queue.Message{Body: []byte("before")})
		}
		start := time.Now()
		c.eventually(func() bool { return time.Since(start) > 3*time.Millisecond }, "the log knows milliseconds")
		middle := time.Now()
		for i := range 10 {
			c.putMessage("n1", "orders", []byte{byte(i)}, queue.Message{Body: []byte("after")})
		}
		for to, depth := range map[string]int{
			"earliest": 20, "latest": 0, middle.Format(time.RFC3339Nano): 10, fmt.Sprint(middle.UnixNano()): 10,
			fmt.Sprint(time.Now().Add(time.Second).UnixNano()): 0, "0": 20,
		} {
			c.do("n2", "channel.seek", "orders", "billing", map[string]string{"to": to})
			c.counts("orders", "billing", depth, 0, 0)
			c.do("n3", "channel.create", "orders", fmt.Sprintf("at-%d-%d", depth, len(to)), map[string]string{"from": to})
			c.counts("orders", fmt.Sprintf("at-%d-%d", depth, len(to)), depth, 0, 0)
		}
		c.do("n2", "channel.seek", "orders", "billing", map[string]string{"to": "latest"})
		c.do("n2", "channel.seek", "orders", "billing", map[string]string{"to": "0", "partition": "1"})
		s, _ := c.stats("orders", "billing")
		require.Greater(t, s.Depth, int64(0))
		require.Less(t, s.Depth, int64(20))
		for _, bad := range []map[string]string{nil, {"to": "then"}, {"to": "0", "partition": "2"}} {
			err := do(t.Context(), c.nodes["n1"], operation{Verb: "channel.seek", Topic: "orders", Channel: "billing", Args: bad})
			require.ErrorIs(t, err, outcome.ErrInvalid)
		}
		bad := operation{Verb: "channel.create", Topic: "orders", Channel: "new", Args: map[string]string{"from": "then"}}
		require.ErrorIs(t, do(t.Context(), c.nodes["n1"], bad), outcome.ErrInvalid)
		c.do("n1", "channel.create", "orders", "new", nil) // the refused one has left nothing behind
		old := c.leader("orders")
		before, _ := c.stats("orders", "billing")
		c.kill(old)
		c.counts("orders", "billing", int(before.Depth), 0, 0)
	})
}

// TestRedriveFindsWhatIsBehindOthersInOnePartition: those are held, and take the whole part
// of RDY that their partition has.
func TestRedriveFindsWhatIsBehindOthersInOnePartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "topic.create", "dead", "", map[string]string{"partitions": "2"})
		c.do("n1", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": "dead"})
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 1, DeadLetterTopic: "dead"})
		letter := func(channel, key string) uint16 {
			header := fmt.Sprintf(`{"##original_topic":"orders","##original_channel":%q,"##original_id":"0123456789abcdef"}`, channel)
			place, _ := api.ParseMessageID(c.putMessage("n1", "dead", []byte(key), queue.Message{Body: []byte(key), Header: []byte(header)}))
			return place.Partition
		}
		one := letter("other", "a")
		key := "b"
		for letter("other", key) == one {
			key += "b"
		}
		for range 400 {
			letter("other", "a")
		}
		letter("billing", "a")
		for range 100 {
			letter("billing", key)
		}
		on := ""
		for name, b := range c.nodes {
			top, _ := b.Topic("dead")
			if !b.Leads(top.Partition(0)) && !b.Leads(top.Partition(1)) {
				on = name
			}
		}
		require.NotEmpty(t, on)
		moved, err := c.nodes[on].Redrive(t.Context(), "orders", "billing", 1000)
		require.NoError(t, err)
		require.Equal(t, 101, moved)
	})
}

// TestARedriveChannelKeepsDeadLettersAlone: a dead-letter topic may have messages of its own, before and after the policy is
// cleared. The channel redrive passes them over, and holds no log for them.
func TestARedriveChannelKeepsDeadLettersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "topic.create", "retry", "", nil)
		c.do("n1", "channel.create", "retry", "worker", nil)
		c.do("n2", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": "retry"})
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 1, DeadLetterTopic: "retry"})
		worker := c.subscribe("n1", "retry", "worker", 10)
		ordinary := func() {
			for range 3 {
				require.NoError(t, c.put("n1", "retry", "ordinary"))
			}
			for _, d := range worker.take(3) {
				worker.finish(d)
			}
		}
		ordinary()
		c.counts("retry", "redrive", 0, 0, 0)
		require.NoError(t, c.put("n1", "orders", "poison"))
		s := c.subscribe("n2", "orders", "billing", 1)
		require.NoError(t, s.sub.Requeue(s.next().ID, 0))
		worker.finish(worker.next()) // the dead letter is for the worker too
		ordinary()
		c.counts("retry", "redrive", 1, 0, 0)

		topic, _ := c.nodes["n1"].Topic("retry")
		q, ok := c.nodes[c.leaderOf(topic.Partition(0))].Queue(topic.Partition(0))
		require.True(t, ok)
		c.eventually(func() bool { return q.Floor() == 7 }, "the dead letter holds the log for the messages behind it")
		n, err := c.nodes["n3"].Redrive(t.Context(), "orders", "billing", 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		s.finish(s.next())

		c.do("n1", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "0", "dead_letter_topic": ""})
		ordinary()
		c.counts("retry", "redrive", 0, 0, 0)
	})
}

// TestACycleOfPoliciesIsRefused: of two topics, of three, and of a policy that closes a cycle of others' making.
func TestACycleOfPoliciesIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		for _, topic := range []string{"work", "retry", "last"} {
			c.do("n1", "topic.create", topic, "", nil)
			c.do("n1", "channel.create", topic, "ch", nil)
		}
		policy := func(topic, to string) error {
			return do(t.Context(), c.nodes["n1"], operation{Verb: "channel.policy", Topic: topic, Channel: "ch",
				Args: map[string]string{"max_attempts": "1", "dead_letter_topic": to}})
		}
		require.NoError(t, policy("work", "retry"))
		err := policy("retry", "work")
		require.ErrorIs(t, err, outcome.ErrInvalid)
		require.ErrorContains(t, err, "dead letters of retry/ch would come back to retry: they go to work, and channel work/ch has the dead_letter_topic retry")
		require.NoError(t, policy("retry", "last"))
		require.ErrorIs(t, policy("last", "work"), outcome.ErrInvalid)
		require.ErrorIs(t, policy("last", "retry"), outcome.ErrInvalid)
		require.NoError(t, policy("work", "retry"), "the same again")
		require.NoError(t, policy("retry", "elsewhere"))
		require.NoError(t, policy("last", "work"), "there is no cycle any more")
	})
}

// TestAPolicyActsWithTheRightsOfItsOwner: while the user that set a policy may not publish to its dead-letter topic, the
// dead messages are held and the alarm names the policy. They are moved once it may again, or another user sets the policy. A
// change of other parts of the policy leaves it with its owner.
func TestAPolicyActsWithTheRightsOfItsOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var denied sync.Map
		c := newClusterOf(t, cluster{size: 3, mayPublish: func(user, topic string) bool {
			_, is := denied.Load(user + " " + topic)
			return !is
		}})
		policy := func(user string, args map[string]string) {
			ctx := api.WithRequester(t.Context(), func() api.Requester { return api.Requester{User: user, Identity: user} })
			require.NoError(t, do(ctx, c.nodes["n2"], operation{Verb: "channel.policy", Topic: "orders", Channel: "billing", Args: args}))
		}
		held := func() (all []api.HeldPolicy) {
			for _, b := range c.nodes {
				all = append(all, b.Console.Faults().HeldPolicies...)
			}
			return all
		}
		fail := func() {
			require.NoError(t, c.put("n1", "orders", "poison"))
			s := c.subscribe("n2", "orders", "billing", 1)
			require.NoError(t, s.sub.Requeue(s.next().ID, 0))
			s.sub.Close(true)
		}
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		policy("alice", map[string]string{"max_attempts": "1", "dead_letter_topic": "dead"})
		policy("root", map[string]string{"retry_backoff": "1ms"})
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 1, DeadLetterTopic: "dead", BackoffMS: 1, BackoffFactor: 2, Owner: "alice"})
		fail()
		c.counts("dead", "redrive", 1, 0, 0)
		require.Empty(t, held())

		denied.Store("alice dead", true)
		want := []api.HeldPolicy{{Topic: "orders", Channel: "billing", DeadLetterTopic: "dead", Owner: "alice"}}
		require.Equal(t, want, held(), "before a message dies")
		fail()
		time.Sleep(5 * time.Second)
		c.counts("dead", "redrive", 1, 0, 0)
		require.Equal(t, want, held())

		denied.Delete("alice dead")
		c.counts("dead", "redrive", 2, 0, 0)
		c.counts("orders", "billing", 0, 0, 0)
		require.Empty(t, held())

		denied.Store("alice dead", true)
		fail()
		policy("bob", map[string]string{"dead_letter_topic": "dead"})
		c.counts("dead", "redrive", 3, 0, 0)
		require.Empty(t, held())
	})
}
