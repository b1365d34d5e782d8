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
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestPositionsOfChannels: any broker answers with the cursor of each channel, the messages that are
// finished above it, and the deferred ones. A seek with idle leaves a channel with consumers alone.
func TestPositionsOfChannels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.create", "orders", "audit", nil)
		for i := range 10 {
			c.putMessage("n1", "orders", nil, queue.Message{Body: fmt.Appendf(nil, "m%d", i)})
		}
		s := c.subscribe("n2", "orders", "billing", 10)
		got := s.take(10)
		for i, d := range got {
			switch i {
			case 3, 7: // stay in flight
			case 1:
				require.NoError(t, s.sub.Requeue(d.ID, time.Hour.Milliseconds()))
			default:
				require.NoError(t, s.sub.Finish(d.ID))
			}
		}
		for _, on := range all {
			var at []api.ChannelPosition
			c.eventually(func() bool {
				var err error
				at, err = c.nodes[on].Positions(t.Context(), "orders")
				return err == nil && len(at) == 2 && at[1].Confirmed == 3 && len(at[1].Settled) == 2 && at[1].Settled[1].To == 10 // the last finish
			}, "%s: %+v", on, &at)
			require.Equal(t, api.ChannelPosition{Channel: "audit"}, at[0])
			require.Equal(t, []api.SequenceSpan{{From: 4, To: 7}, {From: 8, To: 10}}, at[1].Settled)
			require.Len(t, at[1].Deferred, 1)
			require.EqualValues(t, 1, at[1].Deferred[0].Sequence)
			require.Greater(t, at[1].Deferred[0].DeadlineNS, time.Now().Add(50*time.Minute).UnixNano())
			require.Equal(t, 1, at[1].Consumers)
		}
		_, err := c.nodes["n1"].Positions(t.Context(), "none")
		require.ErrorIs(t, err, outcome.ErrTopicNotFound)

		for _, channel := range []string{"billing", "audit"} {
			require.NoError(t, c.nodes["n3"].Do(t.Context(), api.SeekChannel{Topic: "orders", Channel: channel, To: "9", Partition: 0, Idle: true}))
		}
		at, err := c.nodes["n1"].Positions(t.Context(), "orders")
		require.NoError(t, err)
		require.EqualValues(t, 9, at[0].Confirmed)
		require.EqualValues(t, 3, at[1].Confirmed, "it has a consumer")
		s.sub.Close(true)
	})
}

// TestPutsToAPartition: Publish stores in the named partition, and refuses one that the topic does not have.
func TestPutsToAPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "3"})
		p := c.nodes["n1"].Gateway
		put := func(partition int) api.PutResult {
			d := queue.NewDraft(1)
			_ = d.AddMessage(queue.Message{Body: []byte("x")})
			a := make(answers, 1)
			p.Publish("orders", partition, nil, d.Draft(ident.RequestID{}), a)
			return <-a
		}
		for partition, times := range map[int]int{0: 1, 1: 3, 2: 2} {
			for i := range times {
				r := put(partition)
				require.NoError(t, r.Err)
				require.EqualValues(t, i, r.Sequence, "partition %d", partition)
			}
		}
		for _, partition := range []int{-2, 3} {
			require.ErrorIs(t, put(partition).Err, outcome.ErrInvalid)
		}
	})
}
