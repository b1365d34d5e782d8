package console_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
)

// keeper is a broker of a world with a file for its history.
type keeper struct {
	w     *world
	log   *logrus.Logger
	file  string
	audit *guard.Audit
	end   func() // as planned
}

// start begins a process of n1: nothing of the one before is in memory.
func (k *keeper) start(t *testing.T) {
	k.audit = guard.New(guard.Options{Log: k.log}).Audit
	k.w.events["n1"] = events.New()
	c := console.New(console.Options{Cluster: broker{k.w, "n1"}, Events: k.w.events["n1"], Metrics: k.w.metrics, Audit: k.audit, File: k.file, Log: k.log})
	k.w.mu.Lock()
	k.w.consoles["n1"] = c
	k.w.mu.Unlock()
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.w.consoles["n1"].Keep(ctx) }()
	k.end = func() { end(); <-done }
}

func newKeeper(t *testing.T) *keeper {
	k := &keeper{w: newWorld(), log: logrus.New(), file: filepath.Join(t.TempDir(), console.HistoryFile)}
	k.log.SetOutput(io.Discard)
	return k
}

// known counts the points that have a value.
func known(p console.Points) (n int) {
	for _, v := range p {
		if v == v {
			n++
		}
	}
	return n
}

// TestHistorySurvivesARestart: the last hour, the events and the audit of a broker are there after it was stopped, and
// but for the last minute after it was killed.
func TestHistorySurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.w.put(api.TopicSample{Topic: "orders", Depth: 5, Channels: []api.ChannelSample{channel("billing", 5, time.Second)}}, "n1")
		k.start(t)
		k.w.events["n1"].Add(events.Event{Kind: events.Registration, Broker: "n1", Text: "n1 registered again"})
		k.audit.Note(guard.Entry{Time: time.Now(), Identity: "alice", Action: "POST /topic/delete", Detail: "topic=old", Result: guard.ResultOK})
		time.Sleep(20 * time.Minute)
		count := func(of console.SeriesOf, name string) int {
			of.Minutes = 60
			s, err := k.w.consoles["n3"].Series(t.Context(), of)
			require.NoError(t, err)
			return known(s.Series[name])
		}
		texts := func() (out []string) {
			for _, e := range k.w.consoles["n3"].Events(t.Context(), console.EventsOf{Audit: true}).Events {
				out = append(out, e.Text)
			}
			return out
		}
		of := console.SeriesOf{Topic: "orders", Channel: "billing"}
		require.InDelta(t, 121, count(of, "depth"), 1)
		require.ElementsMatch(t, []string{"n1 registered again", "alice deleted the topic old"}, texts())
		k.end()
		time.Sleep(5 * time.Minute)
		k.start(t)
		time.Sleep(time.Minute)
		require.InDelta(t, 127, count(of, "depth"), 2, "without the five minutes")
		require.InDelta(t, 127, count(console.SeriesOf{Topic: "orders"}, "depth"), 2)
		require.InDelta(t, 127, count(console.SeriesOf{Broker: "n1"}, "depth"), 2)
		require.ElementsMatch(t, []string{"n1 registered again", "alice deleted the topic old"}, texts())

		time.Sleep(2*time.Minute + 30*time.Second)
		kept, err := os.ReadFile(k.file)
		require.NoError(t, err)
		k.end()
		require.NoError(t, os.WriteFile(k.file, kept, 0o600)) // as a killed process leaves it
		k.start(t)
		time.Sleep(time.Second)
		require.InDelta(t, 139, count(of, "depth"), 4)
		k.end()

		time.Sleep(2 * time.Hour)
		k.start(t)
		time.Sleep(time.Second)
		require.InDelta(t, 1, count(of, "depth"), 1, "the rest is older than an hour")
		require.Len(t, texts(), 2, "events are kept for a day")
		k.end()
	})
}

// TestABrokenHistoryIsNone: the broker starts without it.
func TestABrokenHistoryIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.start(t)
		k.w.events["n1"].Add(events.Event{Kind: events.Registration, Broker: "n1", Text: "n1 registered again"})
		time.Sleep(time.Minute)
		k.end()
		whole, err := os.ReadFile(k.file)
		require.NoError(t, err)
		has := func(file []byte) int {
			require.NoError(t, os.WriteFile(k.file, file, 0o600))
			k.start(t)
			defer k.end()
			return len(k.w.consoles["n1"].Events(t.Context(), console.EventsOf{}).Events)
		}
		require.Equal(t, 1, has(whole))
		require.Zero(t, has(whole[:len(whole)/2]))
		require.Zero(t, has(nil))
		broken := append([]byte{}, whole...)
		broken[len(broken)/2] ^= 1
		require.Zero(t, has(broken))
		other := console.New(console.Options{Cluster: broker{k.w, "n2"}, Events: events.New(), File: k.file, Log: k.log})
		require.NoError(t, os.WriteFile(k.file, whole, 0o600))
		require.Empty(t, other.Events(t.Context(), console.EventsOf{Broker: "n1"}).Events, "the file of another broker")
	})
}

// TestTheFileOfTheHistoryIsBounded: with all rings and lists full, and values that cannot be compressed, it has at most a
// mebibyte, in which every part has its share.
func TestTheFileOfTheHistoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		random := rand.New(rand.NewPCG(1, 2))
		text := func() string {
			return fmt.Sprintf("%016x%016x%016x", random.Uint64(), random.Uint64(), random.Uint64())
		}
		for i := range 100 {
			k.w.put(api.TopicSample{Topic: fmt.Sprint("t", i), Depth: 1, Channels: []api.ChannelSample{channel("a", 1, 0), channel("b", 1, 0)}}, "n1")
		}
		k.start(t)
		for range 9000 {
			k.w.events["n1"].Add(events.Event{Kind: events.Topic, Topic: text(), Text: text()})
			k.w.events["n1"].Add(events.Event{Kind: events.Election, Topic: text(), ID: ident.Partition{Topic: ident.TopicID(random.Uint64())}, Leader: ident.Node(text())})
		}
		for range 3000 {
			k.audit.Note(guard.Entry{Time: time.Now(), Identity: text(), Action: "POST /topic/delete", Detail: "topic=" + text(), Result: guard.ResultOK})
		}
		for range 100 {
			k.w.mu.Lock()
			for i := range k.w.topics["n1"] {
				x := &k.w.topics["n1"][i]
				x.Depth, x.KeptBytes = random.Int64(), random.Int64()
				for j := range x.Channels {
					x.Channels[j].Depth, x.Channels[j].InFlight, x.Channels[j].Lag = random.Int64(), random.Int64(), time.Duration(random.Int64N(1<<40))
				}
			}
			k.w.mu.Unlock()
			time.Sleep(10 * time.Second)
		}
		k.end()
		info, err := os.Stat(k.file)
		require.NoError(t, err)
		require.Less(t, info.Size(), int64(1<<20))
		require.Greater(t, info.Size(), int64(800<<10), "it is used")
		k.start(t)
		for _, kind := range []string{events.Audit, events.Topic, events.Election} {
			list := k.w.consoles["n1"].Events(t.Context(), console.EventsOf{Audit: true, Kinds: []string{kind}})
			require.Greater(t, len(list.Events), 100, kind)
			require.False(t, list.Complete)
		}
		s, err := k.w.consoles["n1"].Series(t.Context(), console.SeriesOf{Broker: "n1", Minutes: 60})
		require.NoError(t, err)
		require.Greater(t, known(s.Series["depth"]), 90)
		k.end()
	})
}
