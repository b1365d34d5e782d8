package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/replicas"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/test/testkit/enginetest"
	"github.com/lockstepmq/lockstep/nsqd"
)

// TestChangeOfATopicLooksAtNoOther: with thousands of topics, those that are made or
// deleted in a row do not have all others listed and sorted each time.
func TestChangeOfATopicLooksAtNoOther(t *testing.T) {
	r := enginetest.New(t, nsqd.Options{})
	keys := metadata.Keys{Cluster: "test"}
	c := catalog.New(keys, r.Log)
	topic := metadata.TopicState{V: metadata.Version, ID: enginetest.ID.Topic, Partitions: 1}
	c.Apply(metadata.Change{Puts: []metadata.Entry{{Key: keys.Topic(enginetest.Topic), Value: metadata.Encode(topic)}}})
	group := concurrency.NewGroup()
	h := replicas.New(replicas.Options{Self: "n1", Engine: r.Engine, Store: r.Store, Catalog: c, Keys: keys, Group: group, Log: r.Log})
	h.TopicChanged(enginetest.Topic)
	group.Wait()
	h.ChannelsChanged(enginetest.ID.Topic)
	require.False(t, r.Engine.Listed())
	require.Len(t, r.Engine.Partitions(), 1)
	require.True(t, r.Engine.Listed())
}
