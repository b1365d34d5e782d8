package coordinator_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/health"
	"github.com/stretchr/testify/require"
)

// consoles gives every broker of a cluster a console, which samples every fifth of a second.
func consoles(t *testing.T, c *cluster) map[string]*console.Console {
	return consolesOf(t, c, 200*time.Millisecond)
}

func consolesOf(t *testing.T, c *cluster, step time.Duration) map[string]*console.Console {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	out := map[string]*console.Console{}
	for name, b := range c.nodes {
		x := console.New(console.Options{Cluster: b.Console, Events: c.events[name], Started: time.Now(), Step: step})
		b.AnswerConsole(x.Answer)
		running.Go(func() { x.Keep(ctx) })
		out[name] = x
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return out
}

// Three brokers, a topic with messages that a channel has not got; one broker dies. Any other
// broker says so, and names the one that is missing.
func TestConsoleOfACluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, events: map[string]*events.Recorder{"n1": events.New(), "n2": events.New(), "n3": events.New()}})
		all := consoles(t, c)
		ctx := t.Context()
		three, yes := 3, true
		require.NoError(t, c.nodes["n1"].Do(ctx, api.CreateTopic{Topic: "orders", Partitions: three}))
		require.NoError(t, c.nodes["n1"].Do(ctx, api.CreateChannel{Topic: "orders", Channel: "billing", Ordered: &yes}))
		for range 30 {
			require.NoError(t, c.put("n2", "orders", "message"))
		}
		c.whole("orders")

		x := all["n3"]
		var page console.Topics
		c.eventually(func() bool {
			page = x.Topics(ctx, console.Page{Sort: "name", Limit: 10})
			return len(page.Topics) == 1 && page.Topics[0].Messages == 30
		}, "the put messages are not shown")
		require.Empty(t, page.Unreachable)
		require.Equal(t, 3, page.Topics[0].Partitions)

		channel, err := x.Channel(ctx, "orders", "billing")
		require.NoError(t, err)
		require.EqualValues(t, 30, channel.Channel.Depth)
		require.Len(t, channel.Partitions, 3)
		require.NotNil(t, channel.Oldest)
		require.Zero(t, channel.Oldest.Sequence)
		require.InDelta(t, time.Now().UnixMilli(), channel.Oldest.TimeMS, 60_000)
		require.Positive(t, channel.Channel.LagSeconds+0.001)
		require.True(t, channel.Channel.Ordered)
		_, err = x.Channel(ctx, "orders", "none")
		require.ErrorIs(t, err, outcome.ErrChannelNotFound)
		_, err = x.Topic(ctx, "none")
		require.ErrorIs(t, err, outcome.ErrTopicNotFound)

		detail, err := x.Topic(ctx, "orders")
		require.NoError(t, err)
		require.Len(t, detail.Partitions, 3)
		total := ident.Sequence(0)
		for _, p := range detail.Partitions {
			require.NotNil(t, p.CommittedSequence)
			total += *p.CommittedSequence
		}
		require.EqualValues(t, 30, total)

		leader := c.leader("orders")
		var part console.PartitionDetail
		c.eventually(func() bool {
			part, err = x.Partition(ctx, "orders", 0)
			return err == nil && len(part.Members) == 3 && allEqual(part.Members)
		}, "the replicas' ends differ")
		for _, m := range part.Members {
			require.True(t, m.InSync && m.Alive)
			require.NotNil(t, m.LagBytes)
			require.Zero(t, *m.LagBytes)
		}
		_, err = x.Partition(ctx, "orders", 3)
		require.ErrorIs(t, err, console.ErrPartitionNotFound)

		c.kill(leader)
		left := slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(n string) bool { return n == leader })
		x = all[left[0]]
		var o console.Overview
		c.eventually(func() bool {
			o = x.Overview(ctx)
			return o.UnderReplicated == 3 && o.Leaderless == 0
		}, "the failover is not over")
		require.Equal(t, []console.Unreachable{{Broker: ident.Node(leader), Reason: "dead"}}, o.Unreachable)
		require.Equal(t, health.Degraded, o.State)
		require.Equal(t, "1 broker is dead: "+leader, o.Cause)
		require.Equal(t, 3, o.Partitions)
		c.eventually(func() bool {
			return hasKinds(x.Overview(ctx).Changes, events.BrokerDown, events.Election, events.InSync, events.Alarm)
		}, "events of the death are missing")

		part, err = x.Partition(ctx, "orders", 0)
		require.NoError(t, err)
		require.True(t, hasKinds(part.Events, events.Election, events.InSync), "its history")
		for _, m := range part.Members {
			if string(m.Broker) == leader {
				require.False(t, m.Alive || m.InSync)
				require.Nil(t, m.ReplicaSample, "a dead broker's end is unknown")
			}
		}
		dead, err := x.Broker(ctx, ident.Node(leader))
		require.NoError(t, err)
		require.Equal(t, "9.8.7", dead.Broker.Build, "as it registered last")
		require.False(t, dead.Broker.Alive || dead.Broker.Answered)
		alive, err := x.Broker(ctx, ident.Node(left[0]))
		require.NoError(t, err)
		require.False(t, alive.SafeToStop)
		require.Len(t, append(alive.Leads, alive.Follows...), 3)

		// Both brokers that are left saw the same changes of the metadata: each is one event.
		list := x.Events(ctx, console.EventsOf{Kinds: []string{events.BrokerDown}})
		require.Len(t, list.Events, 1)
		require.Len(t, list.Events[0].ReportedBy, 2)

		c.eventually(func() bool {
			s, err := x.Series(ctx, console.SeriesOf{Topic: "orders", Channel: "billing", Minutes: 1})
			return err == nil && s.Kept && slices.Contains(s.Series["depth"], 30)
		}, "the series has no depth")
	})
}

func allEqual(members []console.Member) bool {
	for _, m := range members {
		if m.ReplicaSample == nil || members[0].ReplicaSample == nil || m.End != members[0].End || m.LagBytes == nil || *m.LagBytes != 0 {
			return false
		}
	}
	return true
}

func hasKinds(list []console.Event, kinds ...string) bool {
	for _, k := range kinds {
		if !slices.ContainsFunc(list, func(e console.Event) bool { return e.Kind == k }) {
			return false
		}
	}
	return true
}

// TestViewIsMadeAnewAfterAChange: the topics of a view are those of the view before it until something changes.
func TestViewIsMadeAnewAfterAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		at := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		same := func() bool {
			a, b := c.nodes[at].Console.View(), c.nodes[at].Console.View()
			return len(a.Topics) == 1 && len(b.Topics) == 1 && &a.Topics[0] == &b.Topics[0]
		}
		c.eventually(same, "the view is made anew without a change")
		c.kill(leader)
		c.eventually(func() bool {
			v := c.nodes[at].Console.View()
			return v.Topics[0].Partitions[0].Leader != ident.Node(leader)
		}, "the view has the old leader")
		require.NoError(t, c.put(at, "payments", "m1"))
		c.eventually(func() bool { return len(c.nodes[at].Console.View().Topics) == 2 }, "the view has no new topic")
	})
}
