package coordinator_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

// TestWhatExistsIsNotAnsweredWithSuccess: a topic or channel that is there and has other
// settings than a creation asks for, which that does not change.
func TestWhatExistsIsNotAnsweredWithSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "made by a put, with the defaults"))
		type args = map[string]string
		try := func(verb, channel string, a args) error {
			return do(t.Context(), c.nodes["n2"], operation{Verb: verb, Topic: "orders", Channel: channel, Args: a})
		}
		for _, same := range []args{nil, {"partitions": "1"}, {"ordered": "false"}, {"min_in_sync": "2", "replication_factor": "3"}, {"durability": "sync", "max_bytes": "0", "message_ttl": "0s", "dedupe": "id", "dedupe_window": "2m"}} {
			require.NoError(t, try("topic.create", "", same), "%v", same)
		}
		for text, other := range map[string]args{
			"partitions=1, not partitions=8":                 {"partitions": "8"},
			"ordered=false, not ordered=true":                {"ordered": "true"},
			"min_in_sync=2, not min_in_sync=1":               {"min_in_sync": "1"},
			"replication_factor=3, not replication_factor=1": {"replication_factor": "1"},
			"replication_factor=3, not replication_factor=4": {"replication_factor": "4"},
			"max_bytes=0, not max_bytes=1000000000":          {"max_bytes": "1000000000"},
			"durability=sync, not durability=replicated":     {"durability": "replicated"},
			"message_ttl=0s, not message_ttl=1m0s":           {"message_ttl": "1m"},
			"retention_time=0s, not retention_time=24h0m0s":  {"retention_time": "24h"},
			"retention_bytes=0, not retention_bytes=7":       {"retention_bytes": "7"},
			"max_put_rate=0, not max_put_rate=5":             {"max_put_rate": "5"},
			"max_put_bytes_rate=0, not max_put_bytes_rate=5": {"max_put_bytes_rate": "5"},
			"dedupe_window=2m0s, not dedupe_window=1h0m0s":   {"dedupe_window": "1h"},
			"dedupe=id, not dedupe=content":                  {"dedupe": "content"},
			"partitions=1 replication_factor=3 ordered=false max_bytes=0, not partitions=8 replication_factor=2 ordered=true max_bytes=5": {"partitions": "8", "replication_factor": "2", "ordered": "true", "max_bytes": "5"},
		} {
			err := try("topic.create", "", other)
			require.ErrorIs(t, err, outcome.ErrConflict, "%v", other)
			require.ErrorContains(t, err, "topic orders has "+text+"; nothing was changed")
		}
		require.ErrorIs(t, try("topic.set", "", nil), outcome.ErrInvalid, "a request that would do nothing")
		require.ErrorIs(t, try("topic.set", "", args{"durability": "maybe"}), outcome.ErrInvalid)
		require.NoError(t, try("topic.set", "", args{"max_bytes": "1000000000"}))
		s, ok := c.nodes["n2"].TopicSettings("orders")
		require.True(t, ok)
		require.NotZero(t, s.ID)
		require.Equal(t, api.TopicSettings{Topic: "orders", ID: s.ID, Partitions: 1, ReplicationFactor: 3, MinInSync: 2, Durability: "sync",
			Effective: option.Effective{MaxBytes: 1000000000, DedupeWindowMS: option.DefaultDedupeWindowMS, Dedupe: option.DedupeID}}, s)

		require.NoError(t, try("channel.create", "billing", args{"from": "latest"}))
		for _, same := range []args{nil, {"from": "latest"}, {"ordered": "false"}} {
			require.NoError(t, try("channel.create", "billing", same), "%v", same)
		}
		for text, other := range map[string]args{"from=earliest": {"from": "earliest"}, "ordered=true": {"ordered": "true"}} {
			err := try("channel.create", "billing", other)
			require.ErrorIs(t, err, outcome.ErrConflict, "%v", other)
			require.ErrorContains(t, err, `channel billing of topic orders has from="latest" ordered=false, not `+text)
		}
		require.ErrorIs(t, try("channel.create", "new", args{"from": "yesterday"}), outcome.ErrInvalid)
		require.NotContains(t, c.nodes["n2"].Channels("orders"), "new")

		c.do("n1", "topic.create", "strict", "", args{"ordered": "true"})
		c.do("n1", "channel.create", "strict", "billing", args{"ordered": "true"})
		c.do("n1", "channel.create", "strict", "billing", nil)
		err := do(t.Context(), c.nodes["n1"], operation{Verb: "channel.create", Topic: "strict", Channel: "other", Args: args{"ordered": "false"}})
		require.ErrorIs(t, err, outcome.ErrInvalid)
		require.ErrorIs(t, do(t.Context(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "strict", Args: args{"ordered": "false"}}), outcome.ErrConflict)
	})
}

// TestTwoCreateOneTopic: one request gets its settings, the other a conflict.
func TestTwoCreateOneTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		errs := make([]error, 2)
		var both sync.WaitGroup
		for i, partitions := range []string{"2", "3"} {
			both.Go(func() {
				errs[i] = do(t.Context(), c.nodes[all[i]], operation{Verb: "topic.create", Topic: "orders", Args: map[string]string{"partitions": partitions}})
			})
		}
		both.Wait()
		topic, _ := c.nodes["n1"].Topic("orders")
		lost := 3 - topic.Partitions // the index of the other
		require.NoError(t, errs[1-lost])
		require.ErrorIs(t, errs[lost], outcome.ErrConflict)
	})
}

// TestATopicMadeMeanwhileIsNotReplaced: a second broker makes the topic, and stores an acknowledged message, while the
// first one is about to write it.
func TestATopicMadeMeanwhileIsNotReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n1 := interrupted(t, "/topics/")
		other := func() {
			require.NoError(t, c.put("n2", "orders", "m2"))
			c.eventually(func() bool { _, known := c.nodes["n1"].Topic("orders"); return known }, "n1 does not see the topic")
		}
		n1.before.Store(&other)
		require.NoError(t, c.put("n1", "orders", "m1"))
		require.Len(t, c.drain("n3", "orders", 2), 2)
	})
}

// TestItIsToldWhetherAChannelIsOrdered: by its record at any broker, and by /stats where it is led.
func TestItIsToldWhetherAChannelIsOrdered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "plain", nil)
		c.do("n2", "channel.create", "orders", "strict", map[string]string{"ordered": "true", "from": "earliest"})
		for _, on := range all {
			c.eventually(func() bool { v, err := c.nodes[on].ChannelViews("orders"); return err == nil && len(v) == 2 }, "not known")
			v, err := c.nodes[on].ChannelViews("orders")
			require.NoError(t, err)
			require.Equal(t, []api.ChannelView{{Channel: "plain"}, {Channel: "strict", Ordered: true, From: "earliest"}}, v)
		}
		for name, ordered := range map[string]bool{"plain": false, "strict": true} {
			s, ok := c.stats("orders", name)
			require.True(t, ok)
			require.Equal(t, ordered, s.Ordered, name)
		}
		_, err := c.nodes["n1"].ChannelViews("none")
		require.ErrorIs(t, err, outcome.ErrTopicNotFound)
	})
}

// TestPeekAtTheLeader: a reader that must not miss a committed message asks the broker that serves. A follower does not
// answer it: its committed end is behind.
func TestPeekAtTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		require.NoError(t, c.put("n1", "orders", "here"))
		leader := c.leader("orders")
		at := func(on string) (api.Peeked, error) {
			return c.nodes[leader].Peek(t.Context(), api.PeekRequest{Topic: "orders", Limit: 5, Node: ident.Node(on), Leader: true})
		}
		for _, on := range all {
			p, err := at(on)
			if on != leader {
				require.ErrorIs(t, err, outcome.ErrUnavailable, on)
				continue
			}
			require.NoError(t, err)
			require.Len(t, p.Messages, 1)
		}
	})
}

// TestPeekAsksABrokerThatHasTheReplica: whichever broker is asked, named or not.
func TestPeekAsksABrokerThatHasTheReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"replication_factor": "1", "min_in_sync": "1"})
		require.NoError(t, c.put("n1", "orders", "here"))
		leader := c.leader("orders")
		for _, on := range all {
			var p api.Peeked
			var err error
			c.eventually(func() bool { // as soon as it is connected to a broker that has it
				p, err = c.nodes[on].Peek(t.Context(), api.PeekRequest{Topic: "orders", Limit: 5})
				return err == nil
			}, "not found")
			require.Len(t, p.Messages, 1, on)
			require.Equal(t, "here", p.Messages[0].Body)
			p, err = c.nodes[on].Peek(t.Context(), api.PeekRequest{Topic: "orders", Limit: 5, Node: ident.Node(leader)})
			require.NoError(t, err, on)
			require.Len(t, p.Messages, 1, on)
			_, err = c.nodes[on].Peek(t.Context(), api.PeekRequest{Topic: "orders", Partition: 1})
			require.ErrorIs(t, err, outcome.ErrTopicNotFound)
			_, err = c.nodes[on].Peek(t.Context(), api.PeekRequest{Topic: "orders", From: "yesterday"})
			require.ErrorIs(t, err, outcome.ErrInvalid)
		}
		other := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		p, err := c.nodes[other].Peek(t.Context(), api.PeekRequest{Topic: "orders", Limit: 5, Node: ident.Node(leader), Leader: true})
		require.NoError(t, err)
		require.Len(t, p.Messages, 1)
		_, err = c.nodes[leader].Peek(t.Context(), api.PeekRequest{Topic: "orders", Node: ident.Node(other)})
		require.ErrorIs(t, err, outcome.ErrTopicNotFound)
		_, err = c.nodes[leader].Peek(t.Context(), api.PeekRequest{Topic: "orders", Node: "n9"})
		require.ErrorIs(t, err, outcome.ErrBrokerNotFound)
		c.kill(leader)
		_, err = c.nodes[other].Peek(t.Context(), api.PeekRequest{Topic: "orders"})
		require.ErrorIs(t, err, outcome.ErrUnavailable)
		_, err = c.nodes[other].Peek(t.Context(), api.PeekRequest{Topic: "orders", Node: ident.Node(leader)})
		require.ErrorIs(t, err, outcome.ErrUnavailable, "it belongs to the cluster")
	})
}
