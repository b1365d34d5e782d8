package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestLargeStateOfAChannel: the state of a channel with many delayed messages, 16 bytes each, is longer than the header
// of a frame may be. The followers receive it from a new leader nonetheless, and the later changes.
func TestLargeStateOfAChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rounds, each = 20, 4000
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		at := time.Now().Add(time.Hour).UnixNano()
		for range rounds {
			d := queue.NewDraft(each)
			for range each {
				require.NoError(t, d.AddMessage(queue.Message{Body: []byte("m"), DeliverAt: at}))
			}
			p := c.nodes["n1"].Gateway
			require.NoError(t, p.Admit(t.Context(), "orders", each))
			a := make(answers, 1)
			p.Publish("orders", api.AnyPartition, nil, d.Draft(ident.RequestID{}), a)
			require.NoError(t, (<-a).Err)
		}
		s := c.subscribe("n1", "orders", "billing", 10)
		defer s.sub.Close(true)
		require.Empty(t, s.sub.Pull(10, nil))
		c.counts("orders", "billing", 0, 0, rounds*each)
		c.kill(c.leader("orders"))
		on := c.leader("orders")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		require.NoError(t, do(ctx, c.nodes[on], operation{Verb: "channel.pause", Topic: "orders", Channel: "billing"}),
			"a change of the channel does not reach the other replica")
	})
}
