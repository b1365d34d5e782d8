package coordinator_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/stretchr/testify/require"
)

// TestReplicationFactorOfATopicIsRaised: a topic with one replica gets two more
// on the brokers that have none. They hold the same messages.
func TestReplicationFactorOfATopicIsRaised(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		create := func(factor string) error {
			return do(context.Background(), c.nodes["n2"], operation{Verb: "topic.create", Topic: "orders",
				Args: map[string]string{"replication_factor": factor}})
		}
		require.NoError(t, create("1"))
		for i := range 20 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		raise := func(factor string) error {
			return c.administer("n2", "topic.replication", "orders", map[string]string{"replication_factor": factor})
		}
		require.ErrorIs(t, create("3"), outcome.ErrConflict, "a creation changes nothing")
		require.ErrorIs(t, raise("4"), outcome.ErrInvalid)
		require.NoError(t, raise("3"))
		c.eventually(func() bool {
			v, ok := c.view("n3", "orders")
			return ok && v.ReplicationFactor == 3 && len(v.Partitions[0].ISR) == 3
		}, "no more replicas")
		c.whole("orders")
		require.ErrorIs(t, create("1"), outcome.ErrConflict, "a client that makes it again does not know of the change")
		v, _ := c.view("n2", "orders")
		require.Equal(t, 3, v.ReplicationFactor)
		c.kill(c.leader("orders"))
		for name := range c.nodes {
			require.Len(t, c.drain(name, "orders", 20), 20)
			break
		}
	})
}

// TestMoreReplicasThanBrokersAreRefusedAtOnce: no request waits for brokers that the cluster never had.
func TestMoreReplicasThanBrokersAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.eventually(func() bool { return len(c.nodes["n1"].Cluster().Brokers) == 3 }, "n1 does not know all")
		began := time.Now()
		err := c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "9"})
		require.ErrorIs(t, err, outcome.ErrInvalid)
		require.ErrorContains(t, err, "replication_factor 9, but the cluster has 3 brokers")
		require.Less(t, time.Since(began), time.Second)
	})
}
