package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// as is the context of a user's request.
func as(t *testing.T, who api.Requester) context.Context {
	who.Identity = who.User
	return api.WithRequester(t.Context(), func() api.Requester { return who })
}

// noted collects what clients created.
type noted struct {
	sync.Mutex
	lines []string
}

func (n *noted) note(who api.Requester, detail string, err error) {
	n.Lock()
	defer n.Unlock()
	if err != nil {
		detail += ": " + err.Error()
	}
	n.lines = append(n.lines, who.User+" "+who.Action+": "+detail)
}

func (n *noted) all() []string { n.Lock(); defer n.Unlock(); return n.lines }

func newQuotaCluster(t *testing.T, size int, l quota.Limits) (*cluster, *noted) {
	n := &noted{}
	c := newClusterOf(t, cluster{size: size, limits: l, note: n.note})
	return c, n
}

// TestQuotasOfTheCluster: creation by request, by put and by subscription.
func TestQuotasOfTheCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newQuotaCluster(t, 1, quota.Limits{Topics: 3, Partitions: 10, Channels: 2})
		n1 := c.nodes["n1"]
		create := func(topic string, partitions int) error {
			return n1.Do(t.Context(), api.CreateTopic{Topic: topic, Partitions: partitions})
		}
		require.NoError(t, create("a", 6))
		err := create("b", 5)
		require.ErrorIs(t, err, outcome.ErrQuota)
		require.EqualError(t, err, "quota reached, nothing stored: the cluster has 6 of 10 partitions (--max-partitions)")
		require.NoError(t, create("b", 3))
		require.NoError(t, c.put("n1", "c", "m"))
		require.EqualError(t, n1.Gateway.Admit(t.Context(), "d", 1), "quota reached, nothing stored: the cluster has 3 of 3 topics (--max-topics)")
		_, err = n1.Gateway.Subscribe(t.Context(), api.SubscribeRequest{Topic: "d", Channel: "ch", Partition: -1})
		require.ErrorIs(t, err, outcome.ErrQuota)
		require.NoError(t, c.put("n1", "c", "m"), "topics that are there go on")
		require.NoError(t, create("a", 6), "it is there")
		require.NoError(t, n1.Do(t.Context(), api.DeleteTopic{Topic: "b"}))
		require.NoError(t, c.put("n1", "d", "m"), "a deleted topic does not count")

		channel := func(name string) error {
			return n1.Do(t.Context(), api.CreateChannel{Topic: "a", Channel: name})
		}
		require.NoError(t, channel("one"))
		require.NoError(t, channel("two"))
		require.EqualError(t, channel("three"), "quota reached, nothing stored: topic a has 2 of 2 channels (--max-channels)")
		_, err = n1.Gateway.Subscribe(t.Context(), api.SubscribeRequest{Topic: "a", Channel: "three", Partition: -1})
		require.ErrorIs(t, err, outcome.ErrQuota)
		require.NoError(t, channel("two"))
		require.NoError(t, n1.Do(t.Context(), api.DeleteChannel{Topic: "a", Channel: "one"}))
		require.NoError(t, channel("three"))
		require.NoError(t, channel("e1#ephemeral"), "ephemeral ones count apart")
		require.Equal(t, api.LimitsView{
			Topics: api.LimitView{Used: 3, Limit: 3}, Partitions: api.LimitView{Used: 8, Limit: 10}, Channels: api.LimitView{Used: 2, Limit: 2},
		}, n1.Limits())
		require.NoError(t, channel("e2#ephemeral"))
		require.ErrorIs(t, channel("e3#ephemeral"), outcome.ErrQuota)
		require.NoError(t, channel("e2#ephemeral"))
	})
}

// TestQuotasOfManyAtOnce: as many topics and channels as are allowed are created, and no more,
// however many are asked for in one moment.
func TestQuotasOfManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newQuotaCluster(t, 1, quota.Limits{Topics: 20, Channels: 10})
		n1 := c.nodes["n1"]
		count := func(n int, create func(i int) error) (made int) {
			var mu sync.Mutex
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					err := create(i)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						made++
					} else if !errors.Is(err, outcome.ErrQuota) {
						t.Error(err)
					}
				})
			}
			all.Wait()
			return made
		}
		require.Equal(t, 20, count(60, func(i int) error { return n1.Gateway.Admit(t.Context(), fmt.Sprint("t", i), 1) }))
		topic := n1.Cluster().Topics[0].Topic
		require.Equal(t, 10, count(40, func(i int) error {
			return n1.Do(t.Context(), api.CreateChannel{Topic: topic, Channel: fmt.Sprint("c", i)})
		}))
	})
}

// TestQuotasOfAUser: they count what the user created, on all brokers, and are refused and noted.
func TestQuotasOfAUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n := newQuotaCluster(t, 3, quota.Limits{})
		shop := api.Requester{User: "shop", Action: "PUB", Topics: 2, Partitions: 5, Channels: 1}
		put := func(broker string, who api.Requester, topic string) error {
			return c.nodes[broker].Gateway.Admit(as(t, who), topic, 1)
		}
		require.NoError(t, put("n1", shop, "a"))
		c.whole("a")
		explicit := shop
		explicit.Audited = true
		require.ErrorIs(t, c.nodes["n2"].Do(as(t, explicit), api.CreateTopic{Topic: "b", Partitions: 5}), outcome.ErrQuota)
		require.NoError(t, c.nodes["n2"].Do(as(t, explicit), api.CreateTopic{Topic: "b", Partitions: 4}))
		c.whole("b")
		require.EqualError(t, put("n3", shop, "x"), "quota reached, nothing stored: user shop has 2 of 2 topics")
		require.NoError(t, put("n3", api.Requester{User: "other", Action: "PUB"}, "y"))
		require.NoError(t, put("n3", shop, "y"), "it is there")
		for topic, owner := range map[string]string{"a": "shop", "b": "shop", "y": "other"} {
			c.eventually(func() bool { v, ok := c.view("n1", topic); return ok && v.Owner == owner }, "the owner of %s", topic)
		}
		sub := func(who api.Requester, topic, channel string) error {
			who.Action = "SUB"
			s, err := c.nodes["n1"].Gateway.Subscribe(as(t, who), api.SubscribeRequest{Topic: topic, Channel: channel, Partition: -1})
			if err == nil {
				s.Close(true)
			}
			return err
		}
		require.NoError(t, sub(shop, "y", "one"), "the channel is the user's, the topic need not be")
		require.EqualError(t, sub(shop, "a", "two"), "quota reached, nothing stored: user shop has 1 of 1 channels")
		require.NoError(t, sub(shop, "y", "one"))
		require.NoError(t, sub(shop, "y", "e#ephemeral"))
		require.Equal(t, []string{
			"shop PUB: created topic a",
			"shop PUB: create topic x: quota reached, nothing stored: user shop has 2 of 2 topics",
			"other PUB: created topic y",
			"shop SUB: created channel y/one",
			"shop SUB: create channel a/two: quota reached, nothing stored: user shop has 1 of 1 channels",
		}, n.all())
		require.Equal(t, api.Usage{Topics: 2, Partitions: 5, Channels: 1}, c.nodes["n1"].Usage("shop"))
		require.Equal(t, api.Usage{}, c.nodes["n1"].Usage(""))
		require.NoError(t, c.nodes["n1"].Do(t.Context(), api.PauseTopic{Topic: "a", Paused: true}))
		v, _ := c.view("n1", "a")
		require.Equal(t, "shop", v.Owner, "a change of the topic keeps it")
	})
}

// TestATopicsPublishRate: it can be set and changed, bounds clients, and not what the broker publishes itself.
func TestATopicsPublishRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newQuotaCluster(t, 1, quota.Limits{})
		n1 := c.nodes["n1"]
		set := func(messages, bytes int64) {
			require.NoError(t, c.administer("n1", "topic.set", "orders", map[string]string{"max_put_rate": fmt.Sprint(messages), "max_put_bytes_rate": fmt.Sprint(bytes)}))
		}
		tried := 0
		burst := func(padding string) (ok int) {
			for range 100 {
				tried++
				switch err := c.put("n1", "orders", fmt.Sprint(tried, padding)); {
				case err == nil:
					ok++
				default:
					require.ErrorIs(t, err, outcome.ErrRateLimited)
					require.EqualError(t, err, "rate limited, not stored")
				}
			}
			return ok
		}
		require.NoError(t, n1.Do(t.Context(), api.CreateTopic{Topic: "orders"}))
		set(0, 0)
		require.Equal(t, 100, burst(""))
		set(1, 0)
		stored := burst("")
		require.Less(t, stored, 50)
		set(0, 1000)
		inBytes := burst(string(make([]byte, 400)))
		require.Less(t, inBytes, 50)
		v, _ := c.view("n1", "orders")
		require.EqualValues(t, 1000, v.MaxPutBytesRate)
		settings, _ := n1.TopicSettings("orders")
		require.EqualValues(t, 1000, settings.MaxPutBytesRate)
		require.NoError(t, n1.Do(t.Context(), api.CreateTopic{Topic: "orders"}))
		set(0, 0)
		require.NoError(t, c.put("n1", "orders", "last"))
		want := 100 + stored + inBytes + 1
		require.Len(t, c.drain("n1", "orders", want), want)
		v, _ = c.view("n1", "orders")
		require.EqualValues(t, want, v.Partitions[0].CommittedSequence, "what was refused is not stored")
	})
}
