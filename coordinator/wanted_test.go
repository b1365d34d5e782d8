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
