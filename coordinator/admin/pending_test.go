package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPendingChannelsAreMadeTogether(t *testing.T) {
	w := newPendingChannels()
	first := w.add("orders", "billing", metadata.ChannelState{From: "earliest"})
	second := w.add("orders", "billing", metadata.ChannelState{Ordered: true})
	defer w.add("orders", "audit", metadata.ChannelState{})()
	defer w.add("orders", "known", metadata.ChannelState{})()
	defer w.add("other", "elsewhere", metadata.ChannelState{})()
	known := map[string]metadata.ChannelState{"known": {}}
	names := func(channel string) (out []string) {
		for _, c := range w.with("orders", channel, known) {
			out = append(out, c.name)
		}
		return out
	}
	require.Equal(t, []string{"billing", "audit"}, names("billing"), "its own first: there it is made for certain")
	require.Equal(t, metadata.ChannelState{From: "earliest"}, w.with("orders", "billing", known)[0].state, "of the first caller")
	first()
	require.Equal(t, []string{"audit", "billing"}, names("audit"), "a caller still waits for it")
	second()
	require.Equal(t, []string{"audit"}, names("audit"))

	for i := range 2 * channelsPerTxn {
		defer w.add("many", strconv.Itoa(i), metadata.ChannelState{})()
	}
	require.Len(t, w.with("many", "7", nil), channelsPerTxn)
	require.Equal(t, "7", w.with("many", "7", nil)[0].name)
}

func TestPendingChannelsLeaveNothingBehind(t *testing.T) {
	w := newPendingChannels()
	a, b := w.add("orders", "a", metadata.ChannelState{}), w.add("orders", "b", metadata.ChannelState{})
	a()
	require.Len(t, w.of["orders"], 1)
	b()
	require.Empty(t, w.of)
}

// unknowing carries transactions out and loses the answers.
type unknowing struct{ metadata.Store }

func (u unknowing) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	_, _, _ = u.Store.Txn(ctx, cmp, puts)
	return false, 0, metadata.ErrUnknown
}

// TestChannelsAreMadeOfTheTopicAsItIs: a broker that counts the channels at a revision of the
// topic's key has seen all, and one of them is the first.
func TestChannelsAreMadeOfTheTopicAsItIs(t *testing.T) {
	m := metadatatest.NewMemory()
	defer m.Close()
	keys := metadata.Keys{Cluster: "test"}
	c := &Channels{records: &records{store: m, keys: keys}}
	topic := metadata.TopicState{V: metadata.Version, ID: 7, Partitions: 1}
	_, rev, err := m.Txn(t.Context(), nil, []metadata.Put{{Key: keys.Topic("orders"), Value: metadata.Encode(topic)}})
	require.NoError(t, err)
	made := func(channel string) (state metadata.ChannelState, ok bool) {
		_, state, ok, err := c.channel(t.Context(), 7, channel)
		require.NoError(t, err)
		return state, ok
	}
	topic.Revision = rev - 1
	ok, err := c.tryKeys(t.Context(), "orders", topic, []pendingChannel{{name: "late"}})
	require.NoError(t, err)
	require.True(t, ok, "it is known not to have held")
	_, ok = made("late")
	require.False(t, ok)

	c.store, topic.Revision = unknowing{m}, rev
	ok, err = c.tryKeys(t.Context(), "orders", topic, []pendingChannel{{name: "a"}, {name: "b"}})
	require.NoError(t, err)
	require.False(t, ok, "the caller looks again")
	state, ok := made("a")
	require.True(t, ok && state.First)
	state, ok = made("b")
	require.True(t, ok && !state.First)
}

func TestErrorsOfPartitionsAreOneLine(t *testing.T) {
	one := fmt.Errorf("partition 1: %w", outcome.ErrNoLeader)
	require.EqualError(t, partitionErrors{one}, one.Error())
	two := partitionErrors{one, outcome.ErrNotEnough, errors.New("line")}
	require.EqualError(t, two[:2], one.Error()+" (and 1 more partition)")
	require.EqualError(t, two, one.Error()+" (and 2 more partitions)")
	require.ErrorIs(t, two, outcome.ErrNoLeader)
	require.ErrorIs(t, two, outcome.ErrNotEnough)
}
