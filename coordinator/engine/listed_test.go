package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/catalog"
	"github.com/lockstepmq/lockstep/coordinator/hosting"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/tasks"
	"github.com/lockstepmq/lockstep/internal/testkit/enginetest"
	"github.com/lockstepmq/lockstep/nsqd"
)

// TestChangeOfATopicLooksAtNoOther: with thousands of topics, those that are made or
// deleted in a row do not have all others listed and sorted each time.
func TestChangeOfATopicLooksAtNoOther(t *testing.T) {
	r := enginetest.New(t, nsqd.Options{})
	keys := meta.Keys{Cluster: "test"}
	c := catalog.New(keys, r.Log)
	topic := meta.TopicState{V: meta.Version, ID: enginetest.ID.Topic, Partitions: 1}
	c.Apply(meta.Change{Puts: []meta.Entry{{Key: keys.Topic(enginetest.Topic), Value: meta.Encode(topic)}}})
	group := tasks.NewGroup()
	h := hosting.New(hosting.Options{Self: "n1", Engine: r.Engine, Store: r.Store, Catalog: c, Keys: keys, Group: group, Log: r.Log})
	h.TopicChanged(enginetest.Topic)
	group.Wait()
	h.ChannelsChanged(enginetest.ID.Topic)
	require.False(t, r.Engine.Listed())
	require.Len(t, r.Engine.Partitions(), 1)
	require.True(t, r.Engine.Listed())
}
