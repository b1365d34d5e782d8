package coordinator_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// publishID publishes a message with an id as its body, and waits for the answer. A producer that gets
// none tries again, at whatever broker.
func (c *cluster) publishID(on, topic, id string) api.PutResult {
	c.t.Helper()
	p := c.nodes[on].Gateway
	require.NoError(c.t, p.Admit(c.t.Context(), topic, len(id)))
	d := queue.NewDraft(len(id))
	require.NoError(c.t, d.AddMessage(queue.Message{Body: []byte(id), Identity: queue.IdentityOf([]byte(id))}))
	a := make(answers, 1)
	p.Publish(topic, api.AnyPartition, nil, d.Draft(ident.RequestID{}), a)
	return <-a
}

// again publishes a message that is stored, at every broker, and requires the first answer.
func (c *cluster) again(topic, id string, first api.PutResult, what string) {
	c.t.Helper()
	for on := range c.nodes {
		r := c.publishID(on, topic, id)
		require.NoError(c.t, r.Err, what)
		require.True(c.t, r.Duplicate, "%s: %s is stored twice", what, id)
		require.Equal(c.t, first.ID, r.ID, what)
		require.Equal(c.t, first.Sequence, r.Sequence, what)
	}
}

// publishKeyed publishes messages together, with a key (nil: none), and waits for the answer.
func (c *cluster) publishKeyed(on, topic string, key []byte, messages ...queue.Message) api.PutResult {
	c.t.Helper()
	p, d := c.nodes[on].Gateway, queue.NewDraft(0)
	for _, m := range messages {
		require.NoError(c.t, d.AddMessage(m))
	}
	require.NoError(c.t, p.Admit(c.t.Context(), topic, d.Size()))
	a := make(answers, 1)
	p.Publish(topic, api.AnyPartition, key, d.Draft(ident.RequestID{}), a)
	return <-a
}

// stores requires that a topic has had so many messages.
func (c *cluster) stores(topic string, want int, what string) {
	c.t.Helper()
	c.eventually(func() bool {
		v, _ := c.view("n1", topic)
		n := 0
		for _, p := range v.Partitions {
			n += int(p.CommittedSequence)
		}
		return n == want
	}, "%s", what)
}

func newDedupeCluster(t *testing.T, size int) *cluster {
	c := newClusterOf(t, cluster{size: size, segmentBytes: smallSegment})
	return c
}

// TestAMessageIsPublishedOnce: a message is published again at every broker, after its leader was
// killed, after all brokers were, after it was consumed and retention has looked, and by a replica that
// was moved here later. It is stored once, and each answer names its place.
func TestAMessageIsPublishedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newDedupeCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"dedupe_window": "10m"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		first := c.publishID("n2", "orders", "order-1")
		require.NoError(t, first.Err)
		require.False(t, first.Duplicate)
		c.again("orders", "order-1", first, "at once")

		c.fill("orders", 500) // without ids
		s := c.subscribe("n2", "orders", "billing", 1000)
		s.finish(s.take(501)...)
		s.sub.Close(true)
		c.settled("orders", "billing")
		for name, disaster := range disasters() {
			disaster(c, "orders")
			c.again("orders", "order-1", first, name)
		}
		<-time.After(1200 * time.Millisecond) // retention has looked twice
		c.kill("n3")
		c.wipe("n3")
		c.restart("n3")
		c.whole("orders")
		for _, n := range []string{"n1", "n2"} { // the replica that has copied the log leads
			c.kill(n)
			c.restart(n)
			c.whole("orders")
			c.again("orders", "order-1", first, "after a new replica, without "+n)
		}
		require.Empty(t, c.drain("n1", "orders", 0))
	})
}

// TestTheWindowOfATopicIsShown: the window in the views is the effective one.
func TestTheWindowOfATopicIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newDedupeCluster(t, 1)
		c.do("n1", "topic.create", "orders", "", nil)
		v, _ := c.view("n1", "orders")
		require.EqualValues(t, option.DefaultDedupeWindowMS, v.DedupeWindowMS)
		c.do("n1", "topic.set", "orders", "", map[string]string{"dedupe_window": "5m"})
		v, _ = c.view("n1", "orders")
		require.EqualValues(t, 300_000, v.DedupeWindowMS)
		for _, bad := range []string{"999ms", "61m", "x"} {
			require.ErrorIs(t, do(t.Context(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "orders", Args: map[string]string{"dedupe_window": bad}}), outcome.ErrInvalid, bad)
		}
	})
}

// TestTheWindowInForceIsTheOneThatIsShown: neither longer nor shorter, whether it is shorter than brokers repeat
// puts, after it was changed, after a restart of all, and by whatever replica leads.
func TestTheWindowInForceIsTheOneThatIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newDedupeCluster(t, 3)
		set := func(operation string, window time.Duration) {
			t.Helper()
			c.do("n1", operation, "orders", "", map[string]string{"dedupe_window": window.String()})
			c.eventually(func() bool {
				for on := range c.nodes {
					if v, _ := c.view(on, "orders"); v.DedupeWindowMS != window.Milliseconds() {
						return false
					}
				}
				return true
			}, "the window is not shown")
			<-time.After(time.Second) // the replicas have heard of it
		}
		set("topic.create", 10*time.Second)
		for name, disaster := range disasters() {
			first := c.publishID("n1", "orders", name)
			require.NoError(t, first.Err)
			<-time.After(8 * time.Second)
			c.again("orders", name, first, "8 s")
			<-time.After(3 * time.Second)
			r := c.publishID("n2", "orders", name)
			require.NoError(t, r.Err)
			require.False(t, r.Duplicate, "11 s")
			disaster(c, "orders")
			c.again("orders", name, r, name)
			<-time.After(20 * time.Second)
			require.False(t, c.publishID("n3", "orders", name).Duplicate, "after "+name)
		}
		set("topic.set", time.Hour)
		first := c.publishID("n1", "orders", "long")
		for first.Err != nil { // in doubt, for a short window has forgotten ids
			require.ErrorIs(t, first.Err, outcome.ErrBelowWindow)
			<-time.After(time.Minute)
			first = c.publishID("n1", "orders", "long")
		}
		for name, disaster := range disasters() {
			disaster(c, "orders")
			<-time.After(5 * time.Minute)
			c.again("orders", "long", first, name)
		}
	})
}

// TestIDsOfSeveralPartitions: without a key the id chooses the partition, the same one at every broker.
func TestIDsOfSeveralPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newDedupeCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "4"})
		for i := range 20 {
			id := fmt.Sprint("order-", i)
			first := c.publishID("n1", "orders", id)
			require.NoError(t, first.Err)
			c.again("orders", id, first, "another broker")
		}
	})
}

// bodyOf is a message with a body alone.
func bodyOf(text string) queue.Message { return queue.Message{Body: []byte(text)} }

// byContent waits until every broker recognises the messages of a topic by their content.
func (c *cluster) byContent(topic string) {
	c.t.Helper()
	c.eventually(func() bool {
		for on := range c.nodes {
			if v, ok := c.view(on, topic); !ok || v.Dedupe != option.DedupeContent {
				return false
			}
		}
		return true
	}, "a broker does not hear of the option")
}

// TestContentIsPublishedOnce: a topic recognises messages without ids by their content, published
// through whatever broker, alone or together, before and after a failover. An id counts before the
// content, and the key belongs to the content.
func TestContentIsPublishedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "4", "dedupe": "content"})
		c.byContent("orders")
		c.whole("orders")
		put := func(on string, key []byte, messages ...queue.Message) api.PutResult {
			r := c.publishKeyed(on, "orders", key, messages...)
			require.NoError(t, r.Err)
			return r
		}
		stored := 0
		firsts := map[string]api.PutResult{}
		for i := range 20 {
			body := fmt.Sprint("order ", i)
			firsts[body] = put("n1", nil, bodyOf(body))
			require.False(t, firsts[body].Duplicate)
			stored++
		}
		repeat := func(what string) {
			for body, first := range firsts {
				for on := range c.nodes {
					r := put(on, nil, bodyOf(body))
					require.True(t, r.Duplicate, "%s: %q is stored twice", what, body)
					require.Equal(t, first.ID, r.ID, what)
				}
			}
		}
		repeat("at once")
		late := put("n2", nil, queue.Message{Body: []byte("order 0"), Header: []byte(`{"##trace_id":"7"}`), DeliverAt: time.Now().Add(time.Hour).UnixNano()})
		require.True(t, late.Duplicate, "the trace and the delay do not count")

		several := []queue.Message{bodyOf("a"), bodyOf("b"), bodyOf("a")}
		require.False(t, put("n1", nil, several...).Duplicate)
		stored += 2 // the second a is the first one
		require.True(t, put("n3", nil, several...).Duplicate)
		require.True(t, put("n2", nil, bodyOf("b")).Duplicate, "each message goes to its own partition")

		for _, key := range []string{"k1", "k2", ""} {
			require.False(t, put("n1", []byte(key), bodyOf("order 0")).Duplicate, "a message with a key is another one")
			require.True(t, put("n2", []byte(key), bodyOf("order 0")).Duplicate)
			stored++
		}
		for _, id := range []string{"id 1", "id 2"} {
			m := queue.Message{Body: []byte("order 0"), Identity: queue.IdentityOf([]byte(id))}
			require.False(t, put("n1", nil, m).Duplicate, "an id counts before the content")
			require.True(t, put("n3", nil, m).Duplicate)
			stored++
		}
		for name, disaster := range disasters() {
			disaster(c, "orders")
			repeat(name)
		}
		c.stores("orders", stored, "each message once")
		require.Len(t, c.drain("n1", "orders", len(firsts)+2), len(firsts)+2)

		c.do("n1", "topic.set", "orders", "", map[string]string{"dedupe": "id"})
		c.eventually(func() bool { v, _ := c.view("n1", "orders"); return v.Dedupe == option.DedupeID }, "the option stays")
		require.False(t, put("n1", nil, bodyOf("order 0")).Duplicate)
		require.False(t, put("n1", nil, bodyOf("order 0")).Duplicate)
	})
}

// TestContentOfPutsOfSeveral: messages that are published together (pipelined PUBs, MPUB) and again one by
// one, or the other way round, or in other company, are stored once, whatever partition they belong to. With
// a key they stay together.
func TestContentOfPutsOfSeveral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "4", "dedupe": "content"})
		c.byContent("orders")
		c.whole("orders")
		var all []queue.Message
		for i := range 20 {
			all = append(all, bodyOf(fmt.Sprint("order ", i)))
		}
		put := func(on string, key []byte, messages ...queue.Message) api.PutResult {
			t.Helper()
			r := c.publishKeyed(on, "orders", key, messages...)
			require.NoError(t, r.Err)
			return r
		}
		together := put("n1", nil, all...)
		require.False(t, together.Duplicate)
		for i, m := range all {
			alone := put("n2", nil, m)
			require.True(t, alone.Duplicate, "%s is stored twice", m.Body)
			if i == 0 {
				require.Equal(t, together.ID, alone.ID, "the answer names the first message")
			}
		}
		c.stores("orders", len(all), "each once")
		require.True(t, put("n3", nil, all...).Duplicate)
		require.True(t, put("n3", nil, all[7:13]...).Duplicate)
		more := []queue.Message{bodyOf("a"), all[3], bodyOf("b"), bodyOf("a")}
		require.False(t, put("n1", nil, more...).Duplicate)
		require.True(t, put("n2", nil, bodyOf("b"), bodyOf("a")).Duplicate)
		c.stores("orders", len(all)+2, "each once")

		first := put("n1", []byte("k"), all...)
		require.False(t, first.Duplicate, "with a key they are others")
		for on := range c.nodes {
			for i, m := range all {
				r := put(on, []byte("k"), m)
				require.True(t, r.Duplicate)
				require.Equal(t, first.Sequence+ident.Sequence(i), r.Sequence, "in their order")
			}
		}
	})
}

// TestContentForSeveralChannels: the bridge and nsqctl import-nsqd publish one body once for each channel, and
// again after an error. A message for another channel, or with another tag or header that a filter reads, is
// no repeat: each channel receives its own, once.
func TestContentForSeveralChannels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "2", "dedupe": "content"})
		c.byContent("orders")
		const n = 100
		channels := []string{"a", "b"}
		for _, ch := range channels {
			c.do("n1", "channel.create", "orders", ch, nil)
		}
		for range 2 { // the second time as after an answer that was lost
			for _, ch := range channels {
				for i := range n {
					m := queue.Message{Body: []byte(fmt.Sprint(i)), Header: []byte(`{"##only_channel":"` + ch + `"}`)}
					require.NoError(t, c.publishKeyed("n2", "orders", nil, m).Err)
				}
			}
		}
		c.stores("orders", len(channels)*n, "each message once for each channel")
		for _, ch := range channels {
			s := c.subscribe("n1", "orders", ch, 2*n)
			s.finish(s.take(n)...)
			s.sub.Close(true)
		}
		for _, header := range []string{`{"##client_dispatch_tag":"blue"}`, `{"region":"eu"}`, `{"region":"us"}`} {
			m := queue.Message{Body: []byte("0"), Header: []byte(header)}
			require.False(t, c.publishKeyed("n1", "orders", nil, m).Duplicate, header)
			require.True(t, c.publishKeyed("n3", "orders", nil, m).Duplicate, header)
		}
	})
}

// TestCopiesAreMadeOnce: a move to the dead letters, or back, whose finish was lost is made again, and the copy
// is stored once. A message that was moved back and failed again is another dead letter, every time.
func TestCopiesAreMadeOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "2", "retention_time": "1h"})
		c.do("n1", "topic.create", "dead", "", map[string]string{"partitions": "3", "retention_time": "1h"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": "dead"})
		c.knowPolicy("orders", "billing", api.ChannelPolicy{MaxAttempts: 1, DeadLetterTopic: "dead"})
		s := c.subscribe("n2", "orders", "billing", 10)
		const n = 4
		for i := range n {
			c.putMessage("n1", "orders", []byte{byte(i)}, queue.Message{Body: []byte(fmt.Sprint("poison ", i))})
		}
		fail := func() {
			t.Helper()
			for _, d := range s.take(n) {
				require.NoError(t, s.sub.Requeue(d.ID, 0))
			}
			c.counts("orders", "billing", 0, 0, 0)
		}
		fail()
		c.stores("dead", n, "each copy once")

		s.sub.Close(true)
		c.do("n1", "channel.seek", "orders", "billing", map[string]string{"to": "earliest"}) // as if the finishes were lost
		s = c.subscribe("n2", "orders", "billing", 10)
		fail()
		c.stores("dead", n, "the copies are there")

		redrive := func(what string) {
			t.Helper()
			moved, err := c.nodes["n3"].Redrive(t.Context(), "orders", "billing", 100)
			require.NoError(t, err, what)
			require.Equal(t, n, moved, what)
		}
		redrive("once")
		c.stores("orders", 2*n, "each copy once")
		c.do("n1", "channel.seek", "dead", "redrive", map[string]string{"to": "earliest"}) // as if the finishes were lost
		redrive("again, broken off")
		c.stores("orders", 2*n, "the copies are there")
		for round := range 2 {
			fail()
			c.stores("dead", (round+2)*n, "a message that was moved back is a new one")
			redrive("another time")
			c.stores("orders", (round+3)*n, "each copy once")
		}
		s.finish(s.take(n)...)
	})
}
