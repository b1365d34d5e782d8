package coordinator_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// TestAPutWithoutTopicNameLeavesNothing: "PUB \n" reaches the gateway with an empty topic
// name. Nothing may stay behind.
func TestAPutWithoutTopicNameLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := c.nodes["n1"].Gateway.Admit(ctx, "", 1)
		t.Log(err)
		keys := metadata.Keys{Cluster: "test"}
		for _, prefix := range []string{keys.Topics(), keys.Partitions()} {
			all, _, err := c.meta.List(t.Context(), prefix)
			require.NoError(t, err)
			for _, e := range all {
				t.Log(e.Key)
			}
			require.Empty(t, all, prefix)
		}
	})
}

func TestLargestMaxBytesRefusesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.do("n1", "topic.create", "orders", "", map[string]string{"max_bytes": "9223372036854775807"})
		c.do("n1", "channel.create", "orders", "drain", nil)
		require.NoError(t, c.put("n1", "orders", "one"))
		c.drain("n1", "orders", 1)
		for began := time.Now(); time.Since(began) < 1500*time.Millisecond; { // retention runs every 500 ms
			require.NoError(t, c.put("n1", "orders", "more"))
			<-time.After(20 * time.Millisecond)
		}
	})
}

func TestOrderedIsReadAsElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		for _, yes := range []string{"1", "TRUE", "yes"} {
			err := do(t.Context(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "t" + yes, Args: map[string]string{"ordered": yes}})
			if err != nil {
				continue
			}
			v, ok := c.view("n1", "t"+yes)
			require.True(t, ok && v.Ordered, "ordered=%s was accepted and ignored", yes)
		}
		c.do("n1", "channel.create", "t1", "ch", map[string]string{"ordered": "1"})
		topic, _ := c.nodes["n1"].Topic("t1")
		e, err := c.meta.Get(t.Context(), metadata.Keys{Cluster: "test"}.Channel(topic.ID, "ch"))
		require.NoError(t, err)
		state, err := metadata.DecodeChannel(e)
		require.NoError(t, err)
		require.True(t, state.Ordered, "of a channel, too")
		require.ErrorIs(t, do(t.Context(), c.nodes["n1"], operation{Verb: "channel.create", Topic: "t1", Channel: "x", Args: map[string]string{"ordered": "perhaps"}}), outcome.ErrInvalid)
	})
}

func TestTheLargestMessageOnOneBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.do("n1", "topic.create", "orders", "", nil)
		require.NoError(t, c.put("n1", "orders", "before"))
		big := string(make([]byte, 64<<20))
		err := c.put("n1", "orders", big)
		t.Log("big:", err)
		require.NoError(t, c.put("n1", "orders", "after"))
		want := 2 // before, after
		if err == nil {
			want = 3
		}
		c.kill("n1")
		_, rerr := func() (any, error) { b, err := c.tryLaunch("n1"); c.nodes["n1"] = b; return nil, err }()
		require.NoError(t, rerr, "start")
		require.NoError(t, c.put("n1", "orders", "again"))
		require.Len(t, c.drain("n1", "orders", want+1), want+1)
	})
}

// The largest message that --max-msg-size (at most 67108864) lets through.
func TestTheLargestMessageDoesNotBlockThePartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		require.NoError(t, c.put("n1", "orders", "before"))
		big := string(make([]byte, 64<<20))
		t.Log("big:", c.put("n1", "orders", big))
		require.NoError(t, c.put("n1", "orders", "after"))
	})
}

// The statistics of a leader of several partitions, of a client that is connected elsewhere:
// what its clients have in flight is what the channel has in flight.
func TestRelayedClientsOfSeveralPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "8"})
		s := c.subscribe("n1", "orders", "ch", 160)
		for range 80 {
			require.NoError(t, c.put("n2", "orders", "m"))
		}
		for n := 0; n < 80; n++ {
			s.next()
		}
		for _, topic := range c.nodes["n2"].Broker.Inspector.Led("orders", "ch", true) {
			ch := topic.Channels[0]
			require.Greater(t, ch.InFlightCount, 0)
			sum := 0
			for _, x := range ch.Clients {
				sum += int(x.InFlightCount)
			}
			require.Equal(t, ch.InFlightCount, sum)
		}
	})
}

// txnLimit is a store that takes as many puts in a transaction as a stock etcd.
type txnLimit struct{ metadata.Store }

func (s txnLimit) Txn(ctx context.Context, compares []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	if len(puts) > metadata.MaxTxn {
		return false, 0, metadata.ErrInvalid
	}
	return s.Store.Txn(ctx, compares, puts)
}

// TestTopicThatCanBeMadeCanBeDeleted: at a stock etcd, with as many partitions as it takes.
func TestTopicThatCanBeMadeCanBeDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 1, wrap: func(_ string, s metadata.Store) metadata.Store { return txnLimit{s} }})
		made := 0
		for n := metadata.MaxTxn - 3; n <= metadata.MaxTxn; n++ {
			name := fmt.Sprint("of", n)
			err := c.administer("n1", "topic.create", name, map[string]string{"partitions": fmt.Sprint(n)})
			if err != nil {
				require.ErrorIs(t, err, outcome.ErrInvalid)
				continue
			}
			made++
			require.NoError(t, c.administer("n1", "topic.delete", name, nil))
		}
		require.Equal(t, 2, made)
	})
}
