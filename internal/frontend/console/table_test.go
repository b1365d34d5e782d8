package console

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

// TestSamplesKeepTheirFields: a sample that a broker sends to another has all that the rows show. A sampler's own counters stay
// at home: a table has thousands of topics.
func TestSamplesKeepTheirFields(t *testing.T) {
	one, zero := 1.5, 0.0
	channels := []api.ChannelSample{
		{Channel: "x", Depth: 1, InFlight: 2, Deferred: 3, Requeued: 4, TimedOut: 5, Clients: 6, Paused: true, Ordered: true, Lag: 7, FinishRate: &one,
			Partitions: []api.ChannelPartition{{Partition: 8}}},
		{Channel: "y", FinishRate: &zero},
	}
	want := part{Topics: []api.TopicSample{
		{Topic: "a", Messages: 1, Depth: 2, Paused: true, KeptBytes: 3, Channels: channels, PutRate: &one, BytesRate: &zero},
		{Topic: "b"},
	}}
	counters := []string{"Leadership", "Put", "PutBytes", "Finished", "Filtered", "Expired"}
	for _, row := range []any{want.Topics[0], channels[0]} {
		v := reflect.ValueOf(row)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			require.Equal(t, slices.Contains(counters, name), v.Field(i).IsZero(), "%s.%s", v.Type(), name)
		}
	}
	raw, err := json.Marshal(want)
	require.NoError(t, err)
	var got part
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Equal(t, want, got)
}

// TestATableIsForgotten: a table has a row for each topic, and is not kept when no page is open.
func TestATableIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Cluster: nobody{}})
		_, err := c.ownJSON()
		require.NoError(t, err)
		c.Overview(context.Background())
		time.Sleep(keepTableFor)
		c.shared.forget()
		c.given.forget()
		require.NotNil(t, c.shared.value)
		require.NotNil(t, c.given.value.raw)
		time.Sleep(time.Millisecond)
		c.shared.forget()
		c.given.forget()
		require.Nil(t, c.shared.value)
		require.Nil(t, c.given.value.raw)
	})
}

// nobody is a cluster without brokers.
type nobody struct{ Cluster }

func (nobody) View() api.ClusterView    { return api.ClusterView{} }
func (nobody) Members() api.ClusterView { return api.ClusterView{} }

func (nobody) Samples(string, string) []api.TopicSample { return nil }
func (nobody) Damage() []api.PlacedDamage               { return nil }
func (nobody) Disk() api.DiskSample                     { return api.DiskSample{} }
func (nobody) Faults() api.FaultSample                  { return api.FaultSample{} }
