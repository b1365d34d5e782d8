package coordinator_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/health"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// idleGrace is the time from the announcement of an idle channel to its deletion.
const idleGrace = 5 * time.Minute

// channelsIdle makes a topic of two partitions whose channels are deleted when nothing uses them.
func (c *cluster) channelsIdle(topic string, channels ...string) {
	c.t.Helper()
	c.do("n1", "topic.create", topic, "", map[string]string{"channel_idle_after": idleAfter.String(), "partitions": "2"})
	for _, channel := range channels {
		c.do("n1", "channel.create", topic, channel, nil)
	}
}

func (c *cluster) hasChannel(topic, channel string) bool {
	views, err := c.nodes["n1"].ChannelViews(topic)
	require.NoError(c.t, err)
	for _, v := range views {
		if v.Channel == channel {
			return true
		}
	}
	return false
}

// announced are the channels that the brokers say will be deleted, "topic/channel".
func (c *cluster) announced() (all []string) {
	for _, b := range c.nodes {
		for _, x := range b.Console.Faults().IdleChannels {
			all = append(all, x.Topic+"/"+x.Channel)
		}
	}
	return all
}

// TestIdleChannelsAreDeleted: a channel that nothing uses is announced after its time, with its messages, and
// deleted one grace later; not before. A use of any kind keeps a channel.
func TestIdleChannelsAreDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var notes struct {
			sync.Mutex
			lines []string
		}
		recorders := map[string]*events.Recorder{"n1": events.New(), "n2": events.New(), "n3": events.New()}
		c := idling(t, cluster{size: 3, deleteGrace: idleGrace, events: recorders, note: func(who api.Requester, detail string, err error) {
			notes.Lock()
			defer notes.Unlock()
			notes.lines = append(notes.lines, fmt.Sprint(who.Identity, " ", who.Action, ": ", detail, err))
		}})
		c.channelsIdle("orders", "forgotten", "empty", "consumed", "paused", "used", "late", "tuned")
		c.channelsIdle("letters", "dead")
		c.do("n1", "channel.policy", "orders", "consumed", map[string]string{"max_attempts": "3", "dead_letter_topic": "letters"})
		c.do("n1", "topic.create", "other", "", nil)
		c.do("n1", "channel.create", "other", "forgotten", nil)
		for i := range 10 {
			require.NoError(t, c.put("n2", "orders", fmt.Sprint("m", i)))
		}
		c.do("n1", "channel.empty", "orders", "empty", nil)
		c.do("n1", "channel.pause", "orders", "paused", nil)
		consumer := c.subscribe("n3", "orders", "consumed", 1)
		defer consumer.sub.Close(true)
		use := func(channel string) { // shorter than the pause between two checks
			c.subscribe("n2", "orders", channel, 1).sub.Close(true)
		}

		time.Sleep(idleAfter - time.Second)
		require.Empty(t, c.announced(), "before their time")
		use("used")
		time.Sleep(idleLate + time.Second)
		require.ElementsMatch(t, []string{"orders/forgotten", "orders/empty", "orders/late", "orders/tuned"}, c.announced())
		all := consolesOf(t, c, console.DefaultStep)
		var o console.Overview
		c.eventually(func() bool { o = all["n2"].Overview(t.Context()); return len(o.Alarms) == 1 }, "no alarm of the idle channels")
		require.Equal(t, health.ChannelIdle, o.Alarms[0].Code)
		require.Equal(t, []string{"orders/empty", "orders/forgotten", "orders/late", "orders/tuned"}, o.Alarms[0].Where)
		require.Contains(t, o.Alarms[0].Text, "channel orders/empty will be deleted with its messages at 2000-01-01 00:07:")

		use("late")
		c.do("n1", "channel.policy", "orders", "tuned", map[string]string{"retry_backoff": "1s"})
		c.do("n1", "channel.seek", "orders", "used", map[string]string{"to": "latest"})
		time.Sleep(idleAfter / 2)
		require.ElementsMatch(t, []string{"orders/forgotten", "orders/empty"}, c.announced(), "a consumer came")
		time.Sleep(idleGrace - idleAfter/2 - idleLate - time.Minute)
		for _, channel := range []string{"forgotten", "empty"} {
			require.True(t, c.hasChannel("orders", channel), "%s goes before its time", channel)
		}
		require.ElementsMatch(t, []string{"orders/forgotten", "orders/empty", "orders/late", "orders/used", "orders/tuned"}, c.announced())
		time.Sleep(2*idleLate + time.Minute)
		for _, channel := range []string{"forgotten", "empty"} {
			require.False(t, c.hasChannel("orders", channel), "%s stays", channel)
		}
		for _, channel := range []string{"consumed", "paused", "used", "late", "tuned"} {
			require.True(t, c.hasChannel("orders", channel), "%s was deleted", channel)
		}
		notes.Lock()
		require.ElementsMatch(t, []string{
			"idle channel_idle_after: deleted channel orders/forgotten, which nothing has used for 2m0s<nil>",
			"idle channel_idle_after: deleted channel orders/empty, which nothing has used for 2m0s<nil>",
		}, notes.lines)
		notes.Unlock()
		codes := map[string]int{}
		for _, e := range all["n3"].Events(t.Context(), console.EventsOf{Kinds: []string{events.Topic}, Topic: "orders"}).Events {
			codes[e.Code]++
		}
		require.Equal(t, 7, codes["channel_idle"], "late and tuned twice")
		require.Equal(t, 2, codes["channel_stays"])
		require.Equal(t, 2, codes["channel_deleted"])

		time.Sleep(idleAfter + idleGrace)
		for _, channel := range []string{"used", "late", "tuned"} {
			require.False(t, c.hasChannel("orders", channel), "%s stays after its use", channel)
		}
		require.True(t, c.hasChannel("orders", "consumed"))
		require.True(t, c.hasChannel("orders", "paused"))
		require.True(t, c.hasChannel("letters", "dead"), "dead letters wait for an operator")
		views, err := c.nodes["n1"].ChannelViews("other")
		require.NoError(t, err)
		require.Len(t, views, 1, "the topic has no such option")
		require.Empty(t, c.announced())
	})
}

// TestIdleChannelOutlastsItsLeader: neither another leader nor another controller deletes a channel before its
// time, counted from there.
func TestIdleChannelOutlastsItsLeader(t *testing.T) {
	t.Parallel()
	for _, announced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := idling(t, cluster{size: 3, deleteGrace: idleGrace})
			c.channelsIdle("orders", "forgotten")
			total := idleAfter + idleGrace
			if announced {
				time.Sleep(total - time.Minute)
				require.Equal(t, []string{"orders/forgotten"}, c.announced())
			} else {
				time.Sleep(idleAfter - time.Minute)
			}
			for _, n := range all { // the leaders of both partitions, and the controller
				c.kill(n)
				c.restart(n)
				c.leader("orders")
			}
			time.Sleep(total - time.Second)
			require.True(t, c.hasChannel("orders", "forgotten"), "the time before counts")
			require.Equal(t, []string{"orders/forgotten"}, c.announced())
			time.Sleep(3 * idleLate)
			require.False(t, c.hasChannel("orders", "forgotten"), "it stays")
		})
	}
}

// TestAnotherControllerAnnouncesAnew: the leaders have seen a channel idle for longer than the grace, but no
// announcement of it stood for so long.
func TestAnotherControllerAnnouncesAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idling(t, cluster{size: 3, deleteGrace: idleGrace})
		controller := string(c.nodes["n1"].Cluster().Controller)
		topic := ""
		for i := 0; topic == "" || c.leader(topic) == controller; i++ { // until another broker leads
			topic = fmt.Sprint("orders", i)
			c.do("n1", "topic.create", topic, "", map[string]string{"channel_idle_after": idleAfter.String(), "partitions": "1"})
		}
		c.do("n1", "channel.create", topic, "forgotten", nil)
		time.Sleep(idleAfter + idleGrace - time.Minute)
		require.Equal(t, []string{topic + "/forgotten"}, c.announced())
		c.kill(controller)
		c.restart(controller)
		time.Sleep(idleGrace - time.Minute)
		require.True(t, c.hasChannel(topic, "forgotten"), "the announcement of the controller before counts")
		time.Sleep(3*idleLate + time.Minute)
		require.False(t, c.hasChannel(topic, "forgotten"))
	})
}

// TestIdleChannelWaitsForAllLeaders: one of three partitions has no leader, so nothing is known of it.
func TestIdleChannelWaitsForAllLeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idling(t, cluster{size: 3, deleteGrace: idleGrace})
		c.do("n1", "topic.create", "orders", "", map[string]string{"channel_idle_after": idleAfter.String(), "partitions": "3", "replication_factor": "1", "min_in_sync": "1"})
		c.do("n1", "channel.create", "orders", "forgotten", nil)
		time.Sleep(idleAfter + idleGrace/2)
		c.kill("n3")
		time.Sleep(3 * idleGrace)
		require.True(t, c.hasChannel("orders", "forgotten"), "it was deleted without an answer of a leader")
		c.restart("n3")
		time.Sleep(idleAfter + idleGrace - time.Second)
		require.True(t, c.hasChannel("orders", "forgotten"))
		time.Sleep(3 * idleLate)
		require.False(t, c.hasChannel("orders", "forgotten"))
	})
}

// TestChannelIdleAfterIsRefused: as TestIdleAfterIsRefused.
func TestChannelIdleAfterIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		args := map[string]string{"channel_idle_after": "10m"}
		c := graced(t, cluster{size: 1, topicDefaults: topicDefaults(t, "*:channel-idle-after=10m")})
		require.NoError(t, c.put("n1", "orders", "m"))
		v, _ := c.view("n1", "orders")
		require.EqualValues(t, 600_000, v.ChannelIdleMS)
		settings, _ := c.nodes["n1"].TopicSettings("orders")
		require.EqualValues(t, 600_000, settings.ChannelIdleMS)
		require.NoError(t, c.administer("n1", "topic.set", "orders", map[string]string{"channel_idle_after": "0s"}))
		v, _ = c.view("n1", "orders")
		require.Zero(t, v.ChannelIdleMS)
		require.ErrorContains(t, c.administer("n1", "topic.set", "orders", map[string]string{"channel_idle_after": "59s"}), "1m0s or more")

		c = newCluster(t, 1)
		require.ErrorContains(t, c.administer("n1", "topic.create", "orders", args), "--delete-grace")
	})
}

// TestIdleRemovalsAreCounted: at the controller.
func TestIdleRemovalsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(10)
		c := idling(t, cluster{size: 1, deleteGrace: idleGrace, metrics: m})
		c.channelsIdle("orders", "forgotten", "empty", "unwanted")
		c.idles("unused")
		time.Sleep(idleAfter + idleLate)
		require.Len(t, c.announced(), 3)
		c.do("n1", "channel.delete", "orders", "unwanted", nil)
		require.ElementsMatch(t, []string{"orders/forgotten", "orders/empty"}, c.announced(), "it is deleted already")
		time.Sleep(idleAfter + idleGrace + 2*idleLate)
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, line := range []string{`lockstep_idle_removed_total{kind="topic"} 1`, `lockstep_idle_removed_total{kind="channel"} 2`} {
			require.True(t, strings.Contains(w.Body.String(), line+"\n"), line)
		}
	})
}

// TestInterruptedDeletionGoesOn: the controller that deleted an idle channel died in between.
func TestInterruptedDeletionGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idling(t, cluster{size: 3, deleteGrace: idleGrace})
		c.channelsIdle("orders", "forgotten", "kept")
		topic, _ := c.view("n1", "orders")
		channels := metadata.Keys{Cluster: "test"}.Channels(topic.ID)
		entries, _, err := c.meta.List(t.Context(), channels)
		require.NoError(t, err)
		require.Len(t, entries, 2)
		s, err := metadata.DecodeChannel(entries[0])
		require.NoError(t, err)
		s.Deleting = true
		ok, _, err := c.meta.Txn(t.Context(), nil, []metadata.Put{{Key: entries[0].Key, Value: metadata.Encode(s)}})
		require.True(t, ok && err == nil)
		time.Sleep(idleLate)
		entries, _, err = c.meta.List(t.Context(), channels)
		require.NoError(t, err)
		require.Len(t, entries, 1, "its key stays")
		require.True(t, c.hasChannel("orders", "kept"))
	})
}
