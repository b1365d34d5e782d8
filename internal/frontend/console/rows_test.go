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

// TestShortRowsKeepEveryField: a part is the same after its way to another broker.
func TestShortRowsKeepEveryField(t *testing.T) {
	one, zero := 1.5, 0.0
	want := part{
		Topics: []Topic{
			{Topic: "a", Channels: 2, Paused: true, Messages: 1, Depth: 2, LagSeconds: 3, Puts: &one, PutBytes: &zero, KeptBytes: &one},
			{Topic: "b"},
			{Topic: "c", Channels: 1, Puts: &zero},
		},
		Channels: []Channel{
			{Topic: "a", Channel: "x", Depth: 1, InFlight: 2, Deferred: 3, LagSeconds: 4, Clients: 5, Paused: true, Ordered: true, Finishes: &one, Requeues: 6, Timeouts: 7},
			{Topic: "a", Channel: "y", Finishes: &zero},
			{Topic: "c", Channel: "x"},
		},
	}
	// The metadata has these: a part does not.
	fromView := []string{"Partitions", "ReplicationFactor", "UnderReplicated", "Leaderless", "Fault", "Faulty"}
	for _, row := range []any{want.Topics[0], want.Channels[0]} {
		v := reflect.ValueOf(row)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			require.Equal(t, slices.Contains(fromView, name), v.Field(i).IsZero(), "%s.%s", v.Type(), name)
		}
	}
	raw, err := json.Marshal(want.compact())
	require.NoError(t, err)
	var got part
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Empty(t, got.Topics)
	got.expand()
	require.Equal(t, want, got)
}

// TestATableIsForgotten: a table has a row for each topic, and is not kept when no page is open.
func TestATableIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Cluster: nobody{}})
		_, err := c.ownRows()
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
