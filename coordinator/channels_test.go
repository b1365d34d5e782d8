package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// all are the brokers of a cluster of three.
var all = []string{"n1", "n2", "n3"}

// do carries out an administrative operation on a broker.
func (c *cluster) do(on, verb, topic, channel string, args map[string]string) {
	c.t.Helper()
	require.NoError(c.t, do(context.Background(), c.nodes[on], operation{Verb: verb, Topic: topic, Channel: channel, Args: args}))
}

// putMessage publishes one message as it is and waits for its answer.
func (c *cluster) putMessage(on, topic string, key []byte, m queue.Message) api.MessageID {
	c.t.Helper()
	p := c.nodes[on].Gateway
	require.NoError(c.t, p.Admit(c.t.Context(), topic, len(m.Body)))
	d := queue.NewDraft(len(m.Body))
	require.NoError(c.t, d.AddMessage(m))
	a := make(answers, 1)
	p.Publish(topic, api.AnyPartition, key, d.Draft(ident.RequestID{}), a)
	r := <-a
	require.NoError(c.t, r.Err)
	return r.ID
}

// consumer is one subscription and its broker.
type consumer struct {
	c   *cluster
	sub api.Subscription
}

func (c *cluster) subscribe(on, topic, channel string, ready int) *consumer {
	c.t.Helper()
	return c.open(on, api.SubscribeRequest{Topic: topic, Channel: channel, Partition: -1}, ready)
}

// subscribeOrdered is SUB_ORDERED, ready for ten.
func (c *cluster) subscribeOrdered(on, topic, channel string) *consumer {
	c.t.Helper()
	return c.open(on, api.SubscribeRequest{Topic: topic, Channel: channel, Partition: -1, Ordered: true}, 10)
}

func (c *cluster) open(on string, r api.SubscribeRequest, ready int) *consumer {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.Client = func() api.ClientStats { return api.ClientStats{} }
	sub, err := c.nodes[on].Gateway.Subscribe(ctx, r)
	require.NoError(c.t, err)
	sub.SetReady(ready)
	return &consumer{c: c, sub: sub}
}

// TestSubscriptionsReposition: a subscription with a start position moves the channel,
// unless the channel has a consumer already.
func TestSubscriptionsReposition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "2"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		partition := 0
		for i := range 10 {
			place, _ := api.ParseMessageID(c.putMessage("n1", "orders", []byte("key"), queue.Message{Body: []byte(fmt.Sprintf("m%d", i))}))
			partition = int(place.Partition)
		}
		from := func(on, from string, ready int) *consumer {
			return c.open(on, api.SubscribeRequest{Topic: "orders", Channel: "billing", Partition: partition, From: from, Reposition: true}, ready)
		}
		first := from("n1", "4", 100)
		require.Equal(t, "m4", string(first.next().Message.Body))
		second := from("n2", "earliest", 0) // or it might take what the first has not pulled yet
		require.Len(t, first.take(5), 5)
		second.sub.SetReady(100)
		require.Empty(t, second.sub.Pull(10, nil), "it has a consumer")
		first.sub.Close(true)
		second.sub.Close(true)
		c.counts("orders", "billing", 6, 0, 0)

		// A sequence is a place of the one partition: in the other, which is empty, a new channel begins by the rules.
		third := c.open("n3", api.SubscribeRequest{Topic: "orders", Channel: "audit", Partition: partition, From: "7", Reposition: true}, 100)
		require.Equal(t, "m7", string(third.next().Message.Body))
		third.sub.Close(true)
		_, err := c.nodes["n3"].Gateway.Subscribe(t.Context(), api.SubscribeRequest{Topic: "orders", Channel: "new", Partition: 1 - partition, From: "7", Reposition: true, Client: func() api.ClientStats { return api.ClientStats{} }})
		require.ErrorContains(t, err, fmt.Sprintf("7 is a sequence beyond the end of partition %d (0)", 1-partition))
		views, err := c.nodes["n3"].ChannelViews("orders")
		require.NoError(t, err)
		require.Len(t, views, 2, "the refused subscription made no channel")
	})
}

// next waits for one delivery.
func (s *consumer) next() api.Delivery {
	s.c.t.Helper()
	timeout := time.After(patience)
	for {
		if got := s.sub.Pull(1, nil); len(got) == 1 {
			return got[0]
		}
		select {
		case <-s.sub.Wake():
		case <-timeout:
			require.FailNow(s.c.t, "no delivery")
		}
	}
}

// take waits for n deliveries, in their order.
func (s *consumer) take(n int) (got []api.Delivery) {
	s.c.t.Helper()
	for range n {
		got = append(got, s.next())
	}
	return got
}

func (s *consumer) finish(d ...api.Delivery) {
	s.c.t.Helper()
	for i := range d {
		require.NoError(s.c.t, s.sub.Finish(d[i].ID))
	}
}

func bodies(d []api.Delivery) (out []string) {
	for i := range d {
		out = append(out, string(d[i].Message.Body))
	}
	return out
}

// stats adds up the reports of all leaders about a channel.
func (c *cluster) stats(topic, channel string) (sum api.ChannelStats, found bool) {
	for _, b := range c.nodes {
		for _, t := range b.Broker.Inspector.Topics(topic, channel, false) {
			for _, s := range t.Channels {
				found = true
				sum.Depth += s.Depth
				sum.InFlightCount += s.InFlightCount
				sum.DeferredCount += s.DeferredCount
				sum.MessageCount += s.MessageCount
				sum.Paused = sum.Paused || s.Paused
				sum.Ordered = sum.Ordered || s.Ordered
			}
		}
	}
	return sum, found
}

// counts waits until a channel has these numbers.
func (c *cluster) counts(topic, channel string, depth, inFlight, deferred int) {
	c.t.Helper()
	var s api.ChannelStats
	c.eventually(func() bool {
		var ok bool
		s, ok = c.stats(topic, channel)
		return ok && int(s.Depth) == depth && s.InFlightCount == inFlight && s.DeferredCount == deferred
	}, "want depth %d, in flight %d, deferred %d of %s", depth, inFlight, deferred, channel)
}

// settled waits until all changes of a channel are on all replicas. Changes leave in their
// order, so settled makes one more change and waits for that.
func (c *cluster) settled(topic, channel string) {
	c.t.Helper()
	c.whole(topic)
	b := c.nodes[c.leader(topic)]
	t, _ := b.Topic(topic)
	q, _ := b.Queue(t.Partition(0))
	c.eventually(func() bool { return !q.Dirty() }, "changes of the channels do not leave")
	c.do("n1", "channel.unpause", topic, channel, nil)
}

// disasters are the events that channel state must survive.
func disasters() map[string]func(c *cluster, topic string) {
	return map[string]func(c *cluster, topic string){
		"the leader dies": func(c *cluster, topic string) {
			old := c.leader(topic)
			c.kill(old)
			c.leader(topic)
			c.restart(old)
		},
		"all brokers die": func(c *cluster, topic string) {
			for _, n := range all {
				c.kill(n)
			}
			for _, n := range all {
				c.restart(n)
			}
			c.leader(topic)
		},
	}
}

func TestChannelsSurvive(t *testing.T) {
	t.Parallel()
	for name, disaster := range disasters() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				c.do("n1", "topic.create", "orders", "", nil)
				c.do("n1", "channel.create", "orders", "billing", nil)
				c.do("n2", "channel.create", "orders", "paused", nil)
				c.do("n2", "channel.create", "orders", "gone", nil)
				c.do("n2", "channel.create", "orders", "emptied", nil)
				for i := range 10 {
					require.NoError(t, c.put("n3", "orders", fmt.Sprintf("m%d", i)))
				}
				c.do("n3", "channel.pause", "orders", "paused", nil)
				c.do("n3", "channel.delete", "orders", "gone", nil)
				c.do("n3", "channel.empty", "orders", "emptied", nil)
				due := time.Now().Add(time.Hour).UnixNano()
				c.putMessage("n1", "orders", nil, queue.Message{Body: []byte("later"), DeliverAt: due})

				s := c.subscribe("n2", "orders", "billing", 10)
				got := s.take(10)
				s.finish(got[0], got[1], got[5], got[7])
				require.NoError(t, s.sub.Requeue(got[2].ID, 3_600_000))
				c.counts("orders", "billing", 0, 5, 2)
				s.sub.Close(true)
				c.counts("orders", "billing", 5, 0, 2)
				c.settled("orders", "billing")

				disaster(c, "orders")
				c.counts("orders", "billing", 5, 0, 2)
				c.counts("orders", "paused", 10, 0, 1)
				c.counts("orders", "emptied", 0, 0, 1)
				p, _ := c.stats("orders", "paused")
				require.True(t, p.Paused)
				_, ok := c.stats("orders", "gone")
				require.False(t, ok, "a deleted channel is back")
				again := c.subscribe("n1", "orders", "billing", 10).take(5)
				require.ElementsMatch(t, []string{"m3", "m4", "m6", "m8", "m9"}, bodies(again))
				for _, d := range again {
					require.EqualValues(t, 2, d.Message.Attempts)
				}
			})
		})
	}
}

// TestAdministrationOfAChannelJustMade: the brokers show a channel as soon as one of them has answered its creation.
func TestAdministrationOfAChannelJustMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		for i := range 200 {
			channel := fmt.Sprintf("c%d", i)
			c.do("n1", "channel.create", "orders", channel, nil)
			c.do(all[1+i%2], "channel.delete", "orders", channel, nil)
		}
	})
}

// A delete that did not reach the leader is not half done: the channel is listed
// as long as the leader has it, and the delete can be repeated.
func TestDeleteOfAChannelThatStopsOnTheWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"replication_factor": "1"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		holder := c.leader("orders")
		other := all[(slices.Index(all, holder)+1)%len(all)]
		c.kill(holder)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		op := operation{Verb: "channel.delete", Topic: "orders", Channel: "billing"}
		require.ErrorIs(t, do(ctx, c.nodes[other], op), outcome.ErrUnavailable)
		c.restart(holder)
		c.leader("orders")
		require.Contains(t, c.nodes[other].Channels("orders"), "billing")
		c.do(other, "channel.delete", "orders", "billing", nil)
		_, ok := c.stats("orders", "billing")
		require.False(t, ok, "the leader still has the channel")
		c.eventually(func() bool { return len(c.nodes[holder].Channels("orders")) == 0 }, "the key is still there")
	})
}

// TestChannelIsMadeWhileItIsDeleted: a consumer that loses its channel by a deletion may create it again at once, at
// any broker. In the end the leaders of all partitions have the channel if its key exists, else none has it.
func TestChannelIsMadeWhileItIsDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "4"})
		topic, ok := c.nodes["n1"].Topic("orders")
		require.True(t, ok)
		for i := range 40 {
			channel := fmt.Sprintf("c%d", i)
			c.do("n1", "channel.create", "orders", channel, nil)
			var done sync.WaitGroup
			done.Go(func() { c.do("n2", "channel.delete", "orders", channel, nil) })
			for n, name := range all {
				done.Go(func() {
					for range 1 + (i+n)%3 { // some continue after it is gone
						c.do(name, "channel.create", "orders", channel, nil)
					}
				})
			}
			done.Wait()
			for n := range topic.Partitions {
				c.eventually(func() bool { return c.leaderHas(topic.Partition(n), channel) == c.listed(channel) }, "partition %d, %s", n, channel)
			}
		}
	})
}

// leaderHas reports whether the leader of a partition has the channel.
func (c *cluster) leaderHas(p ident.Partition, channel string) bool {
	for _, b := range c.nodes {
		if q, ok := b.Queue(p); ok && b.Leads(p) {
			_, has := q.Channel(channel)
			return has
		}
	}
	return false
}

// listed reports whether the channel of orders has a key.
func (c *cluster) listed(channel string) bool {
	return slices.Contains(c.nodes["n1"].Channels("orders"), channel)
}

// TestDeliveriesOutliveTheirLeader: a message in flight stays the client's when the leader
// dies. No other client gets it, its attempts do not grow, its finish counts.
func TestDeliveriesOutliveTheirLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		for i := range 5 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		c.whole("orders")
		old := c.leader("orders")
		on := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[old]
		s := c.subscribe(on, "orders", "billing", 5)
		got := s.take(5)
		c.kill(old)
		c.leader("orders")
		c.counts("orders", "billing", 0, 5, 0)
		s.finish(got[:3]...)
		require.NoError(t, s.sub.Requeue(got[3].ID, 0))
		require.EqualValues(t, 2, s.next().Message.Attempts, "one delivery before, one now")
		c.counts("orders", "billing", 0, 2, 0)
	})
}

// TestOnlyClientsThatLeaveCountAttempts: a message in flight counts an attempt when its
// client disconnects. It counts none when the client's broker dies.
func TestOnlyClientsThatLeaveCountAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		for i := range 4 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		leader := c.leader("orders")
		edgeBroker := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		s := c.subscribe(edgeBroker, "orders", "billing", 4)
		require.Len(t, s.take(4), 4)
		stop, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.nodes[edgeBroker].Stop(stop)
		delete(c.nodes, edgeBroker)
		again := c.subscribe(leader, "orders", "billing", 4)
		for _, d := range again.take(4) {
			require.EqualValues(t, 1, d.Message.Attempts)
		}
		again.sub.Close(true)
		for _, d := range c.subscribe(leader, "orders", "billing", 4).take(4) {
			require.EqualValues(t, 2, d.Message.Attempts)
		}
	})
}
