package coordinator_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// filtering is a cluster of three brokers that have filters.
func filtering(t *testing.T) *cluster {
	c := newCluster(t, 3)
	return c
}

// TestFiltersThroughFailovers: channels with a filter deliver each message that matches, and none
// that does not, while leaders are killed and transferred and the filter changes. At the end every
// replica has every message of the channels as finished, also after a restart of all brokers.
func TestFiltersThroughFailovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := filtering(t)
		c.do("n1", "topic.create", "orders", "", nil)
		for _, ordered := range []string{"false", "true"} {
			c.do("n1", "channel.create", "orders", "europe-"+ordered, map[string]string{"ordered": ordered, "filter": "header:region^=eu-"})
		}
		const n = 240
		region := func(i int) string { return []string{"eu-west", "us-east", "eu-north"}[i%3] }
		put := func(from, to int) {
			for i := from; i < to; i++ {
				on := []string{"n1", "n2", "n3"}[i%3]
				if c.nodes[on] == nil {
					on = c.leader("orders")
				}
				c.putMessage(on, "orders", nil, queue.Message{Header: fmt.Appendf(nil, `{"region":%q}`, region(i)), Body: fmt.Appendf(nil, "%03d", i)})
			}
		}
		put(0, n/2)
		old := c.leader("orders")
		survivor := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[old]
		for _, ordered := range []string{"false", "true"} {
			channel := "europe-" + ordered
			s := c.subscribe(survivor, "orders", channel, 10)
			got := map[string]int{}
			take := func(want, may func(i int) bool, from, to int) {
				for i := from; i < to; i++ {
					if !want(i) {
						continue
					}
					for got[fmt.Sprintf("%03d", i)] == 0 {
						d := s.next()
						var at int
						_, err := fmt.Sscanf(string(d.Message.Body), "%d", &at)
						require.NoError(t, err)
						require.True(t, may(at), "%s in %s", d.Message.Body, d.Message.Header)
						got[string(d.Message.Body)]++
						_ = s.sub.Finish(d.ID) // its leader may just have died
					}
				}
			}
			europe := func(i int) bool { return i%3 != 1 }
			take(europe, europe, 0, n/4)
			if ordered == "false" {
				c.kill(old)
				c.leader("orders")
				take(europe, europe, n/4, n/2)
				c.restart(old)
				c.whole("orders")
				put(n/2, n)
			} else {
				c.nodes[c.leader("orders")].TransferLeadership(t.Context())
				take(europe, europe, n/4, n/2)
			}
			take(europe, europe, n/2, 3*n/4)
			c.do(survivor, "channel.policy", "orders", channel, map[string]string{"filter": "header:region=eu-north"})
			north := func(i int) bool { return i%3 == 2 }
			sent := func(i int) bool { return north(i) || i < 3*n/4+30 && europe(i) } // ten were in flight at the change
			c.nodes[c.leader("orders")].TransferLeadership(t.Context())
			take(north, sent, 3*n/4, n)
			s.sub.Close(true)
			again := 0
			for _, times := range got {
				again += times - 1
			}
			// A kill loses the finishes of the moment before it, at most those of the first quarter. Messages in
			// flight at a change of leader come again, too.
			require.LessOrEqual(t, again, n/4*2/3+2*10)
			if ordered == "true" {
				require.LessOrEqual(t, again, 2)
			}
		}
		for _, ordered := range []string{"false", "true"} {
			c.counts("orders", "europe-"+ordered, 0, 0, 0)
			p, err := c.nodes["n1"].Policy("orders", "europe-"+ordered)
			require.NoError(t, err)
			require.Equal(t, "header:region=eu-north", p.Filter)
		}
		topic, _ := c.nodes["n1"].Topic("orders")
		c.eventually(func() bool {
			for _, b := range c.nodes {
				q, ok := b.Queue(topic.Partition(0))
				if !ok {
					return false
				}
				if below, _ := q.Removable(); below != n {
					return false
				}
			}
			return true
		}, "a replica has not every finish")
		for _, name := range []string{"n1", "n2", "n3"} {
			c.kill(name)
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			c.restart(name)
		}
		c.leader("orders")
		for _, ordered := range []string{"false", "true"} {
			c.counts("orders", "europe-"+ordered, 0, 0, 0)
		}
	})
}

// TestFiltersAreChecked: a filter that no broker could apply is refused where it is set, a channel
// with another filter is a conflict, and a consumer that relies on another filter is refused.
func TestFiltersAreChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := filtering(t)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "europe", map[string]string{"filter": "tag=a"})
		c.do("n2", "channel.create", "orders", "europe", map[string]string{"filter": "tag=a"})
		c.do("n3", "channel.create", "orders", "europe", nil)
		create := func(channel, filter string) error {
			return do(t.Context(), c.nodes["n2"], operation{Verb: "channel.create", Topic: "orders", Channel: channel, Args: map[string]string{"filter": filter}})
		}
		require.ErrorIs(t, create("europe", "tag=b"), outcome.ErrConflict)
		require.ErrorIs(t, create("other", "header:a~=("), outcome.ErrInvalid)
		require.ErrorIs(t, create("tail#ephemeral", "tag=a"), outcome.ErrInvalid)
		err := do(t.Context(), c.nodes["n2"], operation{Verb: "channel.policy", Topic: "orders", Channel: "europe", Args: map[string]string{"filter": "region=a"}})
		require.ErrorIs(t, err, outcome.ErrInvalid)
		views, err := c.nodes["n3"].ChannelViews("orders")
		require.NoError(t, err)
		require.Equal(t, []api.ChannelView{{Channel: "europe", Filter: "tag=a"}}, views)

		r := api.SubscribeRequest{Topic: "orders", Channel: "europe", Partition: -1, Filter: "tag=b", Client: func() api.ClientStats { return api.ClientStats{} }}
		_, err = c.nodes["n1"].Gateway.Subscribe(t.Context(), r)
		require.ErrorIs(t, err, outcome.ErrFilter)
		r.Filter = "tag=a"
		sub, err := c.nodes["n1"].Gateway.Subscribe(t.Context(), r)
		require.NoError(t, err)
		sub.Close(true)
		r.Channel = "unknown"
		_, err = c.nodes["n1"].Gateway.Subscribe(t.Context(), r)
		require.ErrorIs(t, err, outcome.ErrFilter)
		views, _ = c.nodes["n1"].ChannelViews("orders")
		require.Len(t, views, 1, "a refused SUB makes no channel")
	})
}
