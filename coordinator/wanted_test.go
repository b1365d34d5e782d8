package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/stretchr/testify/require"
)

func TestWantedChannelsAreMadeTogether(t *testing.T) {
	w := newWanted()
	first := w.add("orders", "billing", meta.ChannelState{From: "earliest"})
	second := w.add("orders", "billing", meta.ChannelState{Ordered: true})
	defer w.add("orders", "audit", meta.ChannelState{})()
	defer w.add("orders", "known", meta.ChannelState{})()
	defer w.add("other", "elsewhere", meta.ChannelState{})()
	known := map[string]meta.ChannelState{"known": {}}
	names := func(channel string) (out []string) {
		for _, c := range w.with("orders", channel, known) {
			out = append(out, c.name)
		}
		return out
	}
	require.Equal(t, []string{"billing", "audit"}, names("billing"), "its own first: there it is made for certain")
	require.Equal(t, meta.ChannelState{From: "earliest"}, w.with("orders", "billing", known)[0].state, "of who came first")
	first()
	require.Equal(t, []string{"audit", "billing"}, names("audit"), "somebody still waits for it")
	second()
	require.Equal(t, []string{"audit"}, names("audit"))

	for i := range 2 * channelsPerTxn {
		defer w.add("many", strconv.Itoa(i), meta.ChannelState{})()
	}
	require.Len(t, w.with("many", "7", nil), channelsPerTxn)
	require.Equal(t, "7", w.with("many", "7", nil)[0].name)
}

func TestWantedChannelsLeaveNothingBehind(t *testing.T) {
	w := newWanted()
	a, b := w.add("orders", "a", meta.ChannelState{}), w.add("orders", "b", meta.ChannelState{})
	a()
	require.Len(t, w.of["orders"], 1)
	b()
	require.Empty(t, w.of)
}

// unknowing does what it is asked and does not say so.
type unknowing struct{ meta.Store }

func (u unknowing) Txn(ctx context.Context, cmp []meta.Compare, puts []meta.Put) (bool, int64, error) {
	_, _, _ = u.Store.Txn(ctx, cmp, puts)
	return false, 0, meta.ErrUnknown
}

// TestChannelsAreMadeOfTheTopicAsItIs: who counts the channels at a revision of the
// topic's key has seen all, and one of them is the first.
func TestChannelsAreMadeOfTheTopicAsItIs(t *testing.T) {
	m := meta.NewMemory()
	defer m.Close()
	b := &Broker{meta: m, keys: meta.Keys{Cluster: "test"}}
	topic := meta.TopicState{V: meta.Version, ID: 7, Partitions: 1}
	_, rev, err := m.Txn(t.Context(), nil, []meta.Put{{Key: b.keys.Topic("orders"), Value: meta.Encode(topic)}})
	require.NoError(t, err)
	made := func(channel string) (c meta.ChannelState, ok bool) {
		_, c, ok, err := b.channelKey(t.Context(), 7, channel)
		require.NoError(t, err)
		return c, ok
	}
	topic.Revision = rev - 1
	ok, err := b.tryChannels(t.Context(), "orders", topic, []wantedChannel{{name: "late"}})
	require.NoError(t, err)
	require.True(t, ok, "it is known not to have held")
	_, ok = made("late")
	require.False(t, ok)

	b.meta, topic.Revision = unknowing{m}, rev
	ok, err = b.tryChannels(t.Context(), "orders", topic, []wantedChannel{{name: "a"}, {name: "b"}})
	require.NoError(t, err)
	require.False(t, ok, "whoever looks again finds out")
	c, ok := made("a")
	require.True(t, ok && c.First)
	c, ok = made("b")
	require.True(t, ok && !c.First)
}

func TestFlightsGoOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		ctx, cancel := context.WithCancel(t.Context())
		leave, err := f.enter(ctx, "orders")
		require.NoError(t, err)
		other, err := f.enter(ctx, "other")
		require.NoError(t, err, "of another name")
		other()
		entered := make(chan func(), 2)
		for range 2 {
			go func() {
				if leave, err := f.enter(t.Context(), "orders"); err == nil {
					entered <- leave
				}
			}()
		}
		synctest.Wait()
		require.Empty(t, entered)
		gone := make(chan error)
		go func() { _, err := f.enter(ctx, "orders"); gone <- err }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		require.Equal(t, 3, f.busy["orders"].callers)
		for range 2 {
			leave()
			synctest.Wait()
			require.Len(t, entered, 1, "the next one")
			leave = <-entered
		}
		leave()
		require.Empty(t, f.busy)
	})
}

func TestErrorsOfPartitionsAreOneLine(t *testing.T) {
	one := fmt.Errorf("partition 1: %w", edge.ErrNoLeader)
	require.EqualError(t, partitionErrors{one}, one.Error())
	two := partitionErrors{one, edge.ErrNotEnough, errors.New("line")}
	require.EqualError(t, two, one.Error()+" (and 2 partitions more)")
	require.ErrorIs(t, two, edge.ErrNoLeader)
	require.ErrorIs(t, two, edge.ErrNotEnough)
}
