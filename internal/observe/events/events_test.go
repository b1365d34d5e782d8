package events_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func all(*events.Event) bool { return true }

func TestEventsAreKeptForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := events.New()
		r.Add(events.Event{Kind: events.BrokerUp, Broker: "n1"})
		time.Sleep(time.Hour)
		r.Add(events.Event{Kind: events.BrokerDown, Broker: "n1"})
		time.Sleep(time.Minute)
		list, complete := r.Since(time.Time{}, 10, all)
		require.True(t, complete)
		require.Len(t, list, 2)
		require.Equal(t, events.BrokerDown, list[0].Kind, "the newest first")
		list, complete = r.Since(time.Time{}, 1, all)
		require.False(t, complete)
		require.Len(t, list, 1)
		list, _ = r.Since(time.Now().Add(-30*time.Minute), 10, all)
		require.Len(t, list, 1)
		time.Sleep(23 * time.Hour)
		list, complete = r.Since(time.Time{}, 10, all)
		require.True(t, complete)
		require.Len(t, list, 1)
	})
}

// A failover of many partitions pushes out neither the other events nor, beyond the bound, is it
// hidden that older ones are gone.
func TestTheNumberOfEventsIsBounded(t *testing.T) {
	r := events.New()
	r.Add(events.Event{Kind: events.BrokerDown, Broker: "n3"})
	for i := range 20_000 {
		r.Add(events.Event{Kind: events.Election, ID: ident.Partition{Number: uint16(i)}})
	}
	list, complete := r.Since(time.Time{}, 1<<20, all)
	require.False(t, complete)
	require.Len(t, list, 8192+1)
	down, _ := r.Since(time.Time{}, 10, func(e *events.Event) bool { return e.Kind == events.BrokerDown })
	require.Len(t, down, 1)
	for i := range 5000 {
		r.Add(events.Event{Kind: events.Topic, Topic: fmt.Sprint("t", i)})
	}
	list, _ = r.Since(time.Time{}, 1<<20, all)
	require.Len(t, list, 8192+2048)
}

// A core loop adds events under its run lock: the look at thousands of them by a console does not delay it.
func TestAddWaitsForNoReader(t *testing.T) {
	r := events.New()
	r.Add(events.Event{Kind: events.BrokerUp, Broker: "n1"})
	list, _ := r.Since(time.Time{}, 10, func(*events.Event) bool {
		added := make(chan struct{})
		go func() {
			r.Add(events.Event{Kind: events.BrokerUp, Broker: "n2"})
			close(added)
		}()
		wait.For(t, added, "the event is added during the look")
		return true
	})
	require.Len(t, list, 1)
	require.EqualValues(t, "n1", list[0].Broker)
}

func TestKeysTellEventsApart(t *testing.T) {
	e := events.Event{Kind: events.Election, Topic: "t", ID: ident.Partition{Topic: 1, Number: 2}, Epoch: 3, Leader: "n1", Revision: 9, OfCluster: true}
	same := e
	same.At = time.Now()
	require.Equal(t, e.Key(), same.Key(), "another broker's clock")
	for i, change := range []func(*events.Event){
		func(e *events.Event) { e.Kind = events.InSync }, func(e *events.Event) { e.ID.Number = 3 }, func(e *events.Event) { e.Epoch = 4 },
		func(e *events.Event) { e.Leader = "n2" }, func(e *events.Event) { e.Revision = 10 }, func(e *events.Event) { e.Run = 1 }, func(e *events.Event) { e.Code = "deleted" },
	} {
		other := e
		change(&other)
		require.NotEqual(t, e.Key(), other.Key(), i)
	}
	e.OfCluster = false
	require.Empty(t, e.Key(), "what one broker alone has")
}

func TestNoRecorderKeepsNothing(t *testing.T) {
	var r *events.Recorder
	r.Add(events.Event{Kind: events.Alarm})
	list, complete := r.Since(time.Time{}, 1, all)
	require.True(t, complete)
	require.Empty(t, list)
}
