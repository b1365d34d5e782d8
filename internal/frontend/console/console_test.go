package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/health"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster of consoles that ask each other over JSON. The brokers lead the topics in turn.
type world struct {
	owed     map[ident.Node]map[ident.Node]time.Duration // by leader and follower
	faults   map[ident.Node]api.FaultSample
	damage   map[ident.Node][]api.PlacedDamage
	metrics  *metrics.Recorder // of n1
	mu       sync.Mutex
	view     api.ClusterView
	topics   map[ident.Node][]api.TopicSample
	silent   map[ident.Node]bool // alive, and without an answer
	events   map[ident.Node]*events.Recorder
	consoles map[ident.Node]*console.Console
}

// broker is one broker of a world.
type broker struct {
	*world
	name ident.Node
}

func (b broker) View() api.ClusterView {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.view
	v.Self, v.Topics = b.name, slices.Clone(v.Topics)
	for i := range v.Topics { // each question has a view of its own
		v.Topics[i].Partitions = slices.Clone(v.Topics[i].Partitions)
	}
	return v
}

func (b broker) Members() api.ClusterView {
	v := b.View()
	v.Topics = nil
	return v
}

func (b broker) TopicView(name string) (api.TopicView, bool) {
	for _, t := range b.View().Topics {
		if t.Topic == name {
			return t, true
		}
	}
	return api.TopicView{}, false
}

func (b broker) Samples(topic, channel string) (out []api.TopicSample) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.topics[b.name] {
		if topic == "" || t.Topic == topic {
			t.Channels = slices.Clone(t.Channels)
			if channel != "" {
				t.Channels = slices.DeleteFunc(t.Channels, func(c api.ChannelSample) bool { return c.Channel != channel })
			}
			out = append(out, t)
		}
	}
	return out
}

func (b broker) Replica(string, uint16) (api.ReplicaSample, bool) {
	return api.ReplicaSample{}, false
}

func (b broker) Disk() api.DiskSample {
	return api.DiskSample{FreeBytes: 5, FreeKnown: true, DataBytes: 7}
}

func (b broker) Faults() api.FaultSample {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults[b.name]
}

func (b broker) Damage() []api.PlacedDamage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.damage[b.name]
}

func (b broker) FollowerLag() map[ident.Node]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.owed[b.name])
}

func (b broker) AskConsole(ctx context.Context, n ident.Node, question []byte) ([]byte, error) {
	b.mu.Lock()
	silent, c := b.silent[n], b.consoles[n]
	b.mu.Unlock()
	if silent {
		return nil, errors.New("no answer")
	}
	return c.Answer(ctx, question)
}

func (b broker) Policy(string, string) (api.ChannelPolicy, error) {
	return api.ChannelPolicy{DeadLetterTopic: "orders"}, nil
}

func (b broker) TopicSettings(topic string) (api.TopicSettings, bool) {
	return api.TopicSettings{Topic: topic}, topic != "none"
}

func (b broker) Channels(string) []string { return nil }

// TestConsumersOverHTTP: the channel's answer lists consumers over HTTP alongside those over TCP, with the message that
// each has held longest.
func TestConsumersOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(api.TopicSample{Topic: "orders", Channels: []api.ChannelSample{channel("billing", 5, 0)}}, "n1")
		w.consoles["n2"] = console.New(console.Options{Cluster: broker{w, "n2"}, Events: w.events["n2"], Consumers: func(topic, channel string) []api.ConsumerStats {
			require.Equal(t, "orders/billing", topic+"/"+channel)
			oldest := api.HeldMessage{Partition: 3, Attempts: 2, For: 90 * time.Second}
			copy(oldest.ID[:], "0123456789abcdef")
			return []api.ConsumerStats{
				{ClientStats: api.ClientStats{ClientID: "tcp", Version: "V2"}},
				{ClientStats: api.ClientStats{ClientID: "http", Version: api.OverHTTP, InFlightCount: 4}, Oldest: &oldest},
			}
		}})
		d, err := w.consoles["n1"].Channel(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Len(t, d.Connections, 2)
		require.NotEqual(t, api.OverHTTP, d.Connections[0].Version)
		require.Nil(t, d.Connections[0].Oldest)
		require.Equal(t, api.OverHTTP, d.Connections[1].Version)
		require.EqualValues(t, 4, d.Connections[1].InFlightCount)
		require.Equal(t, &api.HeldMessage{ID: [16]byte([]byte("0123456789abcdef")), Partition: 3, Attempts: 2, For: 90 * time.Second}, d.Connections[1].Oldest)
	})
}

// TestDeadLettersThatWait: those that were moved back do not count, although they are in the topic still.
func TestDeadLettersThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		letters := func() int64 {
			time.Sleep(2 * time.Second) // a table serves for one
			d, err := w.consoles["n2"].Channel(t.Context(), "orders", "billing")
			require.NoError(t, err)
			require.NotNil(t, d.DeadLetters)
			return *d.DeadLetters
		}
		w.put(api.TopicSample{Topic: "orders", Messages: 9, Channels: []api.ChannelSample{channel("billing", 5, 0), {Channel: api.DeadLetterChannel, Depth: 2, InFlight: 1, Deferred: 1}}}, "n1", "n2")
		require.EqualValues(t, 8, letters(), "4 at each of two leaders")
		for _, n := range []ident.Node{"n1", "n2"} {
			w.topics[n][0].Channels[1] = api.ChannelSample{Channel: api.DeadLetterChannel}
		}
		require.Zero(t, letters())
		w.die("n3")
		require.Zero(t, letters(), "it leads nothing of the topic")
		w.silent["n1"] = true
		time.Sleep(2 * time.Second)
		d, err := w.consoles["n2"].Channel(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Nil(t, d.DeadLetters, "a broker gave no answer")
	})
}

// newWorld makes three brokers without topics.
func newWorld() *world {
	w := &world{damage: map[ident.Node][]api.PlacedDamage{}, faults: map[ident.Node]api.FaultSample{}, metrics: metrics.New(100), topics: map[ident.Node][]api.TopicSample{}, silent: map[ident.Node]bool{}, events: map[ident.Node]*events.Recorder{}, consoles: map[ident.Node]*console.Console{}}
	w.view = api.ClusterView{Cluster: "test", Controller: "n1"}
	for _, n := range []ident.Node{"n1", "n2", "n3"} {
		w.view.Brokers = append(w.view.Brokers, api.BrokerView{Name: n, Alive: true})
		w.events[n] = events.New()
		w.consoles[n] = console.New(console.Options{Cluster: broker{w, n}, Events: w.events[n], Metrics: map[ident.Node]*metrics.Recorder{"n1": w.metrics}[n]})
	}
	return w
}

// put adds a topic with one partition on each of the given leaders.
func (w *world) put(sample api.TopicSample, leaders ...ident.Node) {
	t := api.TopicView{Topic: sample.Topic, ReplicationFactor: 3}
	for i, n := range leaders {
		t.Partitions = append(t.Partitions, api.PartitionView{Partition: i, Leader: n, Replicas: []ident.Node{"n1", "n2", "n3"}, ISR: []ident.Node{"n1", "n2", "n3"}, MinInSync: 2})
		w.topics[n] = append(w.topics[n], sample)
	}
	w.view.Topics = append(w.view.Topics, t)
}

// die makes a broker dead, as the others see it.
func (w *world) die(n ident.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.view.Brokers {
		if w.view.Brokers[i].Name == n {
			w.view.Brokers[i].Alive = false
		}
	}
}

func channel(name string, depth int64, lag time.Duration) api.ChannelSample {
	return api.ChannelSample{Channel: name, Depth: depth, Lag: lag, Clients: 2}
}

func TestTopicsAreJoinedAndPaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(api.TopicSample{Topic: "orders", Messages: 10, KeptBytes: 50, Channels: []api.ChannelSample{channel("billing", 5, 3*time.Second)}}, "n1", "n2")
		w.put(api.TopicSample{Topic: "Orders.old", Depth: 1}, "n3")
		w.put(api.TopicSample{Topic: "clicks", KeptBytes: 99, Channels: []api.ChannelSample{channel("a", 7, 0), channel("b", 1, time.Minute)}}, "n3")
		page := w.consoles["n2"].Topics(t.Context(), console.Page{Sort: "depth", Desc: true, Limit: 2})
		require.Equal(t, 3, page.Total)
		require.Equal(t, 3, page.Matched)
		require.Empty(t, page.Unreachable)
		require.Equal(t, []string{"orders", "clicks"}, []string{page.Topics[0].Topic, page.Topics[1].Topic})
		kept := 100.0
		require.Equal(t, console.Topic{Topic: "orders", Partitions: 2, ReplicationFactor: 3, Channels: 1, Messages: 20, Depth: 10, LagSeconds: 3, KeptBytes: &kept}, page.Topics[0])
		page = w.consoles["n2"].Topics(t.Context(), console.Page{Sort: "disk", Desc: true, Limit: 3})
		require.Equal(t, []string{"orders", "clicks", "Orders.old"}, []string{page.Topics[0].Topic, page.Topics[1].Topic, page.Topics[2].Topic}, "the parts of all leaders count")

		page = w.consoles["n1"].Topics(t.Context(), console.Page{Sort: "name", Search: "ORDERS", Limit: 1, Offset: 1})
		require.Equal(t, 2, page.Matched)
		require.Equal(t, "orders", page.Topics[0].Topic, "capitals come first")

		channels := w.consoles["n3"].Channels(t.Context(), "", console.Page{Sort: "lag", Desc: true, Limit: 10})
		require.Len(t, channels.Channels, 3)
		require.Equal(t, "clicks/b", channels.Channels[0].Topic+"/"+channels.Channels[0].Channel)
		require.EqualValues(t, 10, channels.Channels[1].Depth, "billing has 5 on each of two leaders")
		require.Equal(t, 2, channels.Channels[1].Clients, "a consumer is attached to every partition")
		require.Len(t, w.consoles["n3"].Channels(t.Context(), "clicks", console.Page{Sort: "name", Search: "/b", Limit: 10}).Channels, 1)
	})
}

func TestABrokerWithoutAnAnswerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(api.TopicSample{Topic: "orders", Messages: 10}, "n1", "n2", "n3")
		w.die("n2")
		w.silent["n3"] = true
		c := w.consoles["n1"]
		want := []console.Unreachable{{Broker: "n2", Reason: "dead"}, {Broker: "n3", Reason: "no answer"}}
		topics := c.Topics(t.Context(), console.Page{Limit: 10})
		require.Equal(t, want, topics.Unreachable)
		require.Equal(t, 1, topics.Topics[0].Leaderless)
		require.EqualValues(t, 10, topics.Topics[0].Messages, "one of three partitions")
		require.Equal(t, want, c.Channels(t.Context(), "", console.Page{Limit: 10}).Unreachable)
		require.Equal(t, want, c.Events(t.Context(), console.EventsOf{}).Unreachable)
		series, err := c.Series(t.Context(), console.SeriesOf{Minutes: 60})
		require.NoError(t, err)
		require.Equal(t, want, series.Unreachable)
		o := c.Overview(t.Context())
		require.Equal(t, want, o.Unreachable)
		require.Equal(t, health.Unsafe, o.State, "a partition has no leader")
		require.Equal(t, "1 broker is dead: n2", o.Cause)
		require.Equal(t, 1, o.Leaderless)
		require.True(t, o.Brokers[0].Answered)
		require.False(t, o.Brokers[1].Answered)
		raw, err := json.Marshal(o.Brokers[1])
		require.NoError(t, err)
		require.NotContains(t, string(raw), "disk_data_bytes", "unknown is not 0")
		channel, err := c.Channel(t.Context(), "orders", "none")
		require.ErrorIs(t, err, outcome.ErrChannelNotFound)
		require.Equal(t, want, channel.Unreachable)
	})
}

// A broker that hangs costs one second, not more.
func TestABrokerThatHangsIsWaitedForOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := console.New(console.Options{Cluster: hanging{broker{w, "n1"}}})
		start := time.Now()
		require.Len(t, c.Topics(t.Context(), console.Page{Limit: 10}).Unreachable, 2)
		require.Equal(t, time.Second, time.Since(start))
	})
}

type hanging struct{ broker }

func (hanging) AskConsole(ctx context.Context, _ ident.Node, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// An hour of samples: rates are differences of counts under one leadership, and the series of the
// cluster are sums, but for latencies and lags.
func TestSeriesOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		sample := api.TopicSample{Topic: "orders", Leadership: 1, Channels: []api.ChannelSample{channel("billing", 4, 2*time.Second)}}
		w.put(sample, "n1", "n2")
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, c := range w.consoles {
			running.Go(func() { c.Keep(ctx) })
		}
		defer running.Wait()
		defer cancel()
		for range 400 {
			time.Sleep(console.DefaultStep)
			synctest.Wait()
			w.mu.Lock()
			for _, n := range []ident.Node{"n1", "n2"} {
				w.topics[n][0].Put += 50
				w.topics[n][0].PutBytes += 5000
				w.topics[n][0].Channels = []api.ChannelSample{{Channel: "billing", Depth: 4, Lag: 2 * time.Second, Finished: w.topics[n][0].Channels[0].Finished + 30}}
			}
			w.mu.Unlock()
		}
		s, err := w.consoles["n3"].Series(t.Context(), console.SeriesOf{Topic: "orders", Minutes: 60})
		require.NoError(t, err)
		require.True(t, s.Kept)
		require.Equal(t, 10, s.StepSeconds)
		require.Len(t, s.Series["puts"], 360)
		require.InDelta(t, 10, s.Series["puts"][200], 0.01, "5 a second on each of two leaders")
		require.InDelta(t, 1000, s.Series["put_bytes"][200], 0.1)
		require.EqualValues(t, 2, s.Series["lag_seconds"][200], "the largest")
		require.EqualValues(t, 8, s.Series["depth"][200])
		s, err = w.consoles["n1"].Series(t.Context(), console.SeriesOf{Topic: "orders", Channel: "billing", Minutes: 5})
		require.NoError(t, err)
		require.Len(t, s.Series["finishes"], 30)
		require.InDelta(t, 6, s.Series["finishes"][20], 0.01)
		s, err = w.consoles["n1"].Series(t.Context(), console.SeriesOf{Broker: "n1", Minutes: 5})
		require.NoError(t, err)
		require.EqualValues(t, 4, s.Series["depth"][20])
		require.EqualValues(t, 7, s.Series["disk_data_bytes"][20])
		s, err = w.consoles["n1"].Series(t.Context(), console.SeriesOf{Topic: "other", Minutes: 5})
		require.NoError(t, err)
		require.False(t, s.Kept)
		raw, err := json.Marshal(s.Series["puts"])
		require.NoError(t, err)
		require.Equal(t, "["+strings.Repeat("null,", 29)+"null]", string(raw))
		_, err = w.consoles["n1"].Series(t.Context(), console.SeriesOf{Broker: "n9", Minutes: 5})
		require.ErrorIs(t, err, outcome.ErrBrokerNotFound)

		// A change of leadership: the counts are others, and no rate is made up of them.
		w.mu.Lock()
		w.topics["n1"][0].Leadership, w.topics["n1"][0].Put = 2, 1_000_000
		w.topics["n2"] = nil
		w.mu.Unlock()
		time.Sleep(console.DefaultStep)
		synctest.Wait()
		topics := w.consoles["n1"].Topics(t.Context(), console.Page{Limit: 1})
		require.Nil(t, topics.Topics[0].Puts)
	})
}

// All topics and channels are active; the memory of the rings stays within its bound.
func TestRingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range 3000 {
			w.topics["n1"] = append(w.topics["n1"], api.TopicSample{Topic: fmt.Sprint("t", i), Channels: []api.ChannelSample{channel("c", 1, 0)}})
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.consoles["n1"].Keep(ctx) })
		time.Sleep(3 * console.DefaultStep)
		synctest.Wait()
		kept := 0
		for i := range 3000 {
			s, err := w.consoles["n1"].Series(t.Context(), console.SeriesOf{Topic: fmt.Sprint("t", i), Minutes: 1})
			require.NoError(t, err)
			if s.Kept {
				kept++
			}
		}
		require.Equal(t, 500, kept)
		// The others get their turn when the first ones have had nothing to show for an hour.
		w.mu.Lock()
		w.topics["n1"] = []api.TopicSample{{Topic: "new", Depth: 1}}
		w.mu.Unlock()
		time.Sleep(time.Hour + 2*console.DefaultStep)
		synctest.Wait()
		s, err := w.consoles["n1"].Series(t.Context(), console.SeriesOf{Topic: "new", Minutes: 1})
		require.NoError(t, err)
		require.True(t, s.Kept)
		cancel()
		running.Wait()
	})
}

func TestEventsOfManyPartitionsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		at := time.Now().Add(-time.Minute)
		for i := range 300 {
			e := events.Event{At: at, Kind: events.Election, Topic: "orders", ID: ident.Partition{Topic: 1, Number: uint16(i)}, Epoch: 2, Revision: int64(i / 100), Leader: "n1", Before: "n2", OfCluster: true}
			for n, r := range w.events {
				if n != "n2" { // it was down
					r.Add(e)
				}
			}
		}
		for n, r := range w.events { // brokers notice a fault at different times
			r.Add(events.Event{At: at.Add(time.Duration(n[1]-'0') * time.Second), Kind: events.Alarm, Code: "broker_dead", Text: "1 broker is dead", Do: "start it", Broker: n})
		}
		w.events["n3"].Add(events.Event{At: at.Add(-time.Hour), Kind: events.Rollback, Topic: "orders", ID: ident.Partition{Topic: 1, Number: 4}, Epoch: 7, Broker: "n3"})
		got := w.consoles["n2"].Events(t.Context(), console.EventsOf{Limit: 100})
		require.True(t, got.Complete)
		require.Len(t, got.Events, 3)
		alarm, election, rollback := got.Events[0], got.Events[1], got.Events[2]
		require.Equal(t, []ident.Node{"n1", "n2", "n3"}, alarm.ReportedBy)
		require.Equal(t, "start it", alarm.Do)
		require.Equal(t, 300, election.Count)
		require.Len(t, election.Where, 20)
		require.Equal(t, "300 partitions: leader n2 → n1", election.Text)
		require.Equal(t, []ident.Node{"n1", "n3"}, election.ReportedBy)
		require.Equal(t, "n3 rolled back the uncommitted end of orders/4", rollback.Text)
		require.Equal(t, 4, rollback.Partition)

		four := uint16(4)
		of := w.consoles["n1"].Events(t.Context(), console.EventsOf{Topic: "orders", Partition: &four})
		require.Len(t, of.Events, 2)
		require.Equal(t, 1, of.Events[0].Count)
		require.Len(t, w.consoles["n1"].Events(t.Context(), console.EventsOf{Broker: "n2"}).Events, 1)
		require.Len(t, w.consoles["n1"].Events(t.Context(), console.EventsOf{Kinds: []string{events.Alarm}}).Events, 1)
		few := w.consoles["n1"].Events(t.Context(), console.EventsOf{Limit: 1})
		require.Len(t, few.Events, 1)
		require.False(t, few.Complete)
	})
}

// TestChangesOfTheMetadataAreNotAskedFor: a broker that has watched the metadata has the changes in it, and does not have
// them sent by the others; a broker that was started later, or that the metadata does not answer, does.
func TestChangesOfTheMetadataAreNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.consoles["n1"]
		change := func(broker ident.Node) {
			w.events["n2"].Add(events.Event{Kind: events.BrokerUp, Broker: broker, OfCluster: true, Text: "a change"})
		}
		seen := func() (brokers []ident.Node) {
			for _, e := range c.Events(t.Context(), console.EventsOf{Kinds: []string{events.BrokerUp}}).Events {
				brokers = append(brokers, e.Brokers...)
			}
			return brokers
		}
		change("before-n1-looked")
		require.Len(t, seen(), 1)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Keep(ctx) })
		defer running.Wait()
		defer cancel()
		time.Sleep(2 * time.Minute)
		change("while-n1-watches")
		require.Equal(t, []ident.Node{"before-n1-looked"}, seen(), "n1 goes by its own list")
		w.events["n2"].Add(events.Event{Kind: events.Rollback, Broker: "n2"})
		require.Len(t, c.Events(t.Context(), console.EventsOf{Kinds: []string{events.Rollback}}).Events, 1, "it is in no metadata")

		unheard := func(ms int64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.view.MetadataUnheardMS = ms
		}
		unheard(1)
		require.Len(t, seen(), 2, "n1 hears nothing")
		time.Sleep(time.Minute)
		unheard(0)
		time.Sleep(time.Minute)
		require.Len(t, seen(), 2, "n1 heard nothing when it happened")
	})
}

// An alarm becomes an event when it begins and when it ends, with what to do.
func TestAlarmsBeginAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.consoles["n1"].Keep(ctx) })
		time.Sleep(time.Minute)
		require.Empty(t, w.consoles["n1"].Events(t.Context(), console.EventsOf{}).Events, "a healthy cluster")
		w.die("n3")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		o := w.consoles["n1"].Overview(t.Context())
		require.Equal(t, health.BrokerDead, o.Alarms[0].Code)
		require.NotNil(t, o.Alarms[0].SinceMS)
		require.Len(t, o.Changes, 1)
		require.Equal(t, events.Alarm, o.Changes[0].Kind)
		require.NotEmpty(t, o.Changes[0].Do)
		w.mu.Lock()
		w.view.Brokers[2].Alive = true
		w.mu.Unlock()
		time.Sleep(time.Minute)
		got := w.consoles["n1"].Events(t.Context(), console.EventsOf{}).Events
		require.Len(t, got, 2)
		require.Equal(t, events.AlarmEnded, got[0].Kind)
		require.Contains(t, got[0].Text, "1 broker is dead")
		cancel()
		running.Wait()
	})
}

func TestTheThreeFurthestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		stuck := channel("stuck", 9, time.Hour)
		stuck.InFlight = 5
		w.put(api.TopicSample{Topic: "t", Channels: []api.ChannelSample{
			{Channel: "alone", Depth: 3, Lag: 2 * time.Hour}, {Channel: "paused", Paused: true, Lag: time.Minute, Clients: 1}, stuck,
			channel("fine", 100, 900*time.Millisecond), channel("late", 1, time.Second),
		}}, "n2")
		o := w.consoles["n1"].Overview(t.Context())
		require.Len(t, o.Behind, 3)
		require.Equal(t, "alone", o.Behind[0].Channel.Channel)
		require.Equal(t, "the channel has no consumers", o.Behind[0].Why)
		require.Equal(t, "stuck", o.Behind[1].Channel.Channel)
		require.Equal(t, "the channel is paused", o.Behind[2].Why)
		require.Equal(t, health.Healthy, o.State)
		require.Empty(t, o.Cause)
	})
}

// TestAPageHasABoundedSize: an answer takes at most 200 KB, however many topics there are.
func TestAPageHasABoundedSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, ask := range tenThousandTopics(t) {
			raw, err := json.Marshal(ask())
			require.NoError(t, err)
			require.LessOrEqual(t, len(raw), 200<<10, what)
		}
	})
}

// tenThousandTopics makes a cluster with 10,000 topics of a channel each, led by three brokers, and returns
// the pages of one of the brokers.
func tenThousandTopics(t *testing.T) map[string]func() any {
	w := newWorld()
	for i := range 10_000 {
		name := fmt.Sprintf("topic-with-a-name-of-usual-length-%05d", i)
		w.put(api.TopicSample{Topic: name, Messages: 1 << 30, Channels: []api.ChannelSample{channel("channel", int64(i*7919%10_007), time.Duration(i)*time.Millisecond)}}, ident.Node(fmt.Sprint("n", i%3+1)))
	}
	c := w.consoles["n1"]
	name := "topic-with-a-name-of-usual-length-05000"
	return map[string]func() any{
		"overview": func() any { return c.Overview(t.Context()) },
		"topics": func() any {
			return c.Topics(t.Context(), console.Page{Sort: "depth", Desc: true, Limit: console.MaxPage})
		},
		"channels": func() any {
			return c.Channels(t.Context(), "", console.Page{Sort: "lag", Search: "9", Limit: console.MaxPage})
		},
		"brokers": func() any { return c.Brokers(t.Context()) },
		"topic": func() any {
			answer, err := c.Topic(t.Context(), name)
			require.NoError(t, err)
			return answer
		},
		"channel": func() any {
			answer, err := c.Channel(t.Context(), name, "channel")
			require.NoError(t, err)
			return answer
		},
	}
}

// TestOpenPagesShareATable: ten pages that each ask every 2 s make the brokers compute their parts
// once a second.
func TestOpenPagesShareATable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pages, turns, each = 10, 3, 2 * time.Second
		var asked atomic.Int64
		w := newWorld()
		w.put(api.TopicSample{Topic: "orders"}, "n1", "n2", "n3")
		c := console.New(console.Options{Cluster: counting{broker{w, "n1"}, &asked}, Events: w.events["n1"]})
		for i := range pages * turns {
			if i%2 == 0 {
				require.Len(t, c.Topics(t.Context(), console.Page{Limit: 10}).Topics, 1)
			} else {
				require.Len(t, c.Brokers(t.Context()).Brokers, 3)
			}
			time.Sleep(each / pages)
		}
		require.EqualValues(t, turns*each/time.Second*2, asked.Load(), "two other brokers")
	})
}

// counting counts the questions to other brokers.
type counting struct {
	broker
	asked *atomic.Int64
}

func (c counting) AskConsole(ctx context.Context, n ident.Node, question []byte) ([]byte, error) {
	c.asked.Add(1)
	return c.broker.AskConsole(ctx, n, question)
}

// TestRefusedPuts: a broker counts the puts that were not answered OK by the answer, with their rate; the
// overview adds the rates up. A broker without an answer has unknown numbers.
func TestRefusedPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(api.TopicSample{Topic: "orders", KeptBytes: 4096, Depth: 1}, "n1")
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, c := range w.consoles {
			running.Go(func() { c.Keep(ctx) })
		}
		defer running.Wait()
		defer cancel()
		time.Sleep(console.DefaultStep)
		synctest.Wait()
		for range 20 {
			w.metrics.Answered(outcome.ErrTopicFull)
		}
		w.metrics.Answered(outcome.ErrNoLeader)
		w.metrics.Answered(nil)
		time.Sleep(console.DefaultStep)
		synctest.Wait()
		rows := w.consoles["n2"].Brokers(t.Context()).Brokers
		require.Equal(t, map[string]float64{"topic_full": 20, "no_leader": 1}, rows[0].Refused)
		require.InDelta(t, 2.1, *rows[0].Refusals, 0.01)
		require.Empty(t, rows[1].Refused)
		require.InDelta(t, 2.1, *w.consoles["n3"].Overview(t.Context()).Refusals, 0.01)
		s, err := w.consoles["n2"].Series(t.Context(), console.SeriesOf{Broker: "n1", Minutes: 1})
		require.NoError(t, err)
		require.Contains(t, s.Series["refusals"], float32(2.1))
		s, err = w.consoles["n2"].Series(t.Context(), console.SeriesOf{Topic: "orders", Minutes: 1})
		require.NoError(t, err)
		require.Contains(t, s.Series["kept_bytes"], float32(4096))
		time.Sleep(console.DefaultStep)
		synctest.Wait()
		require.Zero(t, *w.consoles["n2"].Brokers(t.Context()).Brokers[0].Refusals, "the rate is that of the last step")
		w.die("n1")
		time.Sleep(2 * time.Second)
		require.Nil(t, w.consoles["n2"].Brokers(t.Context()).Brokers[0].Live)
	})
}

// TestSlowBroker: a broker that keeps leaders waiting occasionally is named, and not the leaders that wait.
func TestSlowBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		owe := func(of map[ident.Node]map[ident.Node]time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.owed = of
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, c := range w.consoles {
			running.Go(func() { c.Keep(ctx) })
		}
		defer running.Wait()
		defer cancel()
		time.Sleep(console.DefaultStep + time.Second)
		owe(map[ident.Node]map[ident.Node]time.Duration{"n1": {"n2": time.Millisecond, "n3": 150 * time.Millisecond}, "n2": {"n3": 300 * time.Millisecond}})
		time.Sleep(2500 * time.Millisecond) // one look
		owe(map[ident.Node]map[ident.Node]time.Duration{"n1": {"n2": 0, "n3": 0}})
		behind := func() (out []any) {
			time.Sleep(time.Second)
			synctest.Wait()
			for _, b := range w.consoles["n1"].Brokers(t.Context()).Brokers {
				if b.BehindSeconds == nil {
					out = append(out, nil)
				} else {
					out = append(out, *b.BehindSeconds)
				}
			}
			return out
		}
		require.Equal(t, []any{nil, 0.001, 0.3}, behind())
		time.Sleep(console.DefaultStep)
		require.Equal(t, []any{nil, 0.001, 0.3}, behind(), "the last whole step counts")
		time.Sleep(2 * console.DefaultStep)
		require.Equal(t, []any{nil, 0.0, 0.0}, behind(), "it is over")
	})
}

// TestABrokerThatSaysThatItHangs: nobody can take over from it, so that it keeps its registration, and no other broker
// has it from the metadata.
func TestABrokerThatSaysThatItHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(api.TopicSample{Topic: "orders"}, "n3")
		w.faults["n3"] = api.FaultSample{JournalBusy: 6 * time.Second}
		c := w.consoles["n1"]
		for _, b := range c.Brokers(t.Context()).Brokers {
			require.True(t, b.Alive)
			require.Equal(t, b.Name == "n3", b.Hangs, b.Name)
		}
		detail, err := c.Broker(t.Context(), "n3")
		require.NoError(t, err)
		require.True(t, detail.Broker.Hangs)
		o := c.Overview(t.Context())
		require.Equal(t, health.Unsafe, o.State, "its leaderships stay with it")
		require.Equal(t, health.BrokerHangs, o.Alarms[0].Code)
	})
}

// TestAuditOfATopic: the actions on one topic, or on one broker, by the arguments of the requests.
func TestAuditOfATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		log := logrus.New()
		log.SetOutput(io.Discard)
		audit := guard.New(guard.Options{Log: log}).Audit
		for _, e := range []guard.Entry{
			{Action: "POST /topic/delete", Detail: "topic=old", Identity: "alice"},
			{Action: "POST /v1/channel/seek", Detail: "channel=old&topic=orders", Identity: "root"},
			{Action: "POST /v1/broker/drain", Detail: "node=n2", Identity: "root"},
		} {
			e.Time, e.Result = time.Now(), guard.ResultOK
			audit.Note(e)
		}
		w.consoles["n3"] = console.New(console.Options{Cluster: broker{w, "n3"}, Events: w.events["n3"], Audit: audit})
		texts := func(of console.EventsOf) (out []string) {
			of.Audit = true
			for _, e := range w.consoles["n1"].Events(t.Context(), of).Events {
				out = append(out, e.Topic+": "+e.Text)
			}
			return out
		}
		require.Len(t, texts(console.EventsOf{}), 3)
		require.Equal(t, []string{"old: alice deleted the topic old"}, texts(console.EventsOf{Topic: "old"}))
		require.Equal(t, []string{": root began to drain the broker n2"}, texts(console.EventsOf{Broker: "n2"}))
		number := uint16(0)
		require.Empty(t, texts(console.EventsOf{Topic: "old", Partition: &number}))
	})
}

// TestReportsOfOtherBrokers: each broker reports the faults that it alone has, and the page of any
// broker shows them; a fault that is over, no longer than its alert would.
func TestReportsOfOtherBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		codes := func(n ident.Node) (out []string) {
			time.Sleep(2 * time.Second) // a table serves for one
			for _, a := range w.consoles[n].Overview(t.Context()).Alarms {
				require.Equal(t, []string{string(ofReports[a.Code])}, a.Where, a.Code)
				out = append(out, a.Code)
			}
			return out
		}
		require.Empty(t, codes("n2"))
		w.metrics.Add(metrics.RefusedTCPUser, 1) // those of n1
		w.faults["n2"] = api.FaultSample{JournalBusy: 1500 * time.Millisecond}
		w.faults["n3"] = api.FaultSample{Corrupt: 1}
		w.consoles["n2"] = console.New(console.Options{Cluster: broker{w, "n2"}, Own: func() (health.Own, string) {
			return health.Own{
				CertificateSeconds: map[string]float64{"rpc": 3600}, CertificateFaults: map[string]string{"client": "its private key is missing"},
			}, "none"
		}})
		for _, n := range []ident.Node{"n1", "n2", "n3"} {
			require.Equal(t, []string{health.BrokerHangs, health.CertificateExpires, health.CertificateUnusable, health.ClientsRefused, health.NetworkCorrupts}, codes(n))
		}
		w.faults["n2"] = api.FaultSample{}
		time.Sleep(5 * time.Minute)
		require.Equal(t, []string{health.CertificateExpires, health.CertificateUnusable, health.NetworkCorrupts}, codes("n1"))
		w.metrics.Add(metrics.RefusedTCPUser, 1)
		require.Contains(t, codes("n1"), health.ClientsRefused, "again")
		time.Sleep(time.Hour)
		require.Equal(t, []string{health.CertificateExpires, health.CertificateUnusable}, codes("n1"))
	})
}

// ofReports names the broker that has each fault.
var ofReports = map[string]ident.Node{health.BrokerHangs: "n2", health.NetworkCorrupts: "n3", health.CertificateExpires: "n2", health.CertificateUnusable: "n2", health.ClientsRefused: "n1"}

// TestDamageOnAnotherBroker: the pages of any broker show a damaged place: the overview, the topic in the
// list, the topic and the partition.
func TestDamageOnAnotherBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(api.TopicSample{Topic: "orders"}, "n1", "n2")
		w.put(api.TopicSample{Topic: "clicks"}, "n1")
		place := api.DamageView{Node: "n2", To: 10, FirstSequence: 3, EndSequence: 5}
		w.damage["n2"] = []api.PlacedDamage{{Topic: "orders", Partition: 1, Damage: place}, {Topic: "deleted"}}
		for _, n := range []ident.Node{"n1", "n3"} {
			c := w.consoles[n]
			o := c.Overview(t.Context())
			require.Len(t, o.Alarms, 1)
			require.Equal(t, health.Damaged, o.Alarms[0].Code)
			require.Equal(t, []string{"orders/1"}, o.Alarms[0].Where)
			for _, row := range c.Topics(t.Context(), console.Page{Limit: 10}).Topics {
				require.Equal(t, map[string]string{"orders": health.Damaged}[row.Topic], row.Fault, row.Topic)
				require.Equal(t, map[string]int{"orders": 1}[row.Topic], row.Faulty, row.Topic)
			}
			d, err := c.Topic(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, []string{"", health.Damaged}, []string{d.Partitions[0].Fault, d.Partitions[1].Fault})
			require.Equal(t, health.Damaged, d.Topic.Fault)
			require.Equal(t, []api.DamageView{place}, d.Partitions[1].Damaged)
			p, err := c.Partition(t.Context(), "orders", 1)
			require.NoError(t, err)
			require.Equal(t, health.Damaged, p.Partition.Fault)
			require.Equal(t, []api.DamageView{place}, p.Partition.Damaged)
			p, err = c.Partition(t.Context(), "orders", 0)
			require.NoError(t, err)
			require.Empty(t, p.Partition.Fault)
			require.Empty(t, p.Partition.Damaged)
		}
	})
}

// TestABrokerWithoutRegistrationReports: a full etcd ends the registrations of all brokers; the one that
// serves the page has the reason.
func TestABrokerWithoutRegistrationReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := console.New(console.Options{Cluster: broker{w, "n1"}, Own: func() (health.Own, string) {
			return health.Own{EtcdInUseBytes: 10, EtcdQuotaBytes: 10, EtcdRefuses: true}, "member"
		}})
		w.consoles["n1"] = c
		for _, n := range []ident.Node{"n1", "n2", "n3"} {
			w.die(n)
		}
		o := c.Overview(t.Context())
		require.Equal(t, []console.Unreachable{{Broker: "n2", Reason: "dead"}, {Broker: "n3", Reason: "dead"}}, o.Unreachable)
		require.Equal(t, health.NoBrokers, o.Alarms[0].Code)
		require.Equal(t, health.MetadataFull, o.Alarms[1].Code)
		require.Contains(t, o.Cause, "the embedded etcd of n1 is full")
		require.Equal(t, []string{"n1"}, o.Alarms[1].Where)
	})
}
