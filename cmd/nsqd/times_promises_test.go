package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/api"
)

// TestPromiseTimesOfTheCluster changes every time limit of a put and stops the follower. With a
// default in place of one of them, the events come in another order, or too early. One of
// three attempts has to succeed, because the machine may be busy.
func TestPromiseTimesOfTheCluster(t *testing.T) {
	_, endpoint := startExternalEtcd(t, etcd.TLS{})
	times := []string{
		"--session-ttl=20s", "--write-timeout=800ms", "--peer-timeout=1700ms",
		"--replica-timeout=2100ms", "--leader-hold=3800ms", "--put-hold=5s",
	}
	leader, flags := member(t, "n1", endpoint)
	leader.run(append(flags, times...)...)
	leader.ready()
	follower, flags := member(t, "n2", endpoint)
	follower.run(append(flags, times...)...)
	follower.ready()
	var err error
	for range 3 {
		happened := whatFollows(t, leader, follower)
		if err = inOrder(happened); err == nil {
			break
		}
		t.Log(err)
	}
	require.NoError(t, err)
	require.Zero(t, follower.metric(`lockstep_events_total{event="registration_lost"}`), "--session-ttl: it was away for longer than the default")
}

// event is the effect of a setting, and its time.
type event struct {
	setting, text string
	after         time.Duration
}

// whatFollows stops the follower and returns the events after that.
func whatFollows(t *testing.T, leader, follower *broker) (happened []event) {
	t.Helper()
	waits, idle := leader.topicLedBy("n1", ""), leader.topicLedBy("n1", "")
	shrinks := leader.topicLedBy("n1", "&min_in_sync=1")
	silences := strings.Count(leader.logged(), "up=false")
	before := view(t, leader).Counters
	follower.signal(syscall.SIGSTOP)
	defer follower.signal(syscall.SIGCONT)
	stopped := time.Now()
	events := make(chan event, 6)
	tell := func(setting, text string) { events <- event{setting, text, time.Since(stopped)} }
	put := func(setting, topic string) {
		_, text := leader.post("/pub?topic="+topic, "x")
		tell(setting, text)
	}
	watch := func(setting string, happened func() bool) {
		leader.eventually(setting, happened)
		tell(setting, "")
	}
	go put("--put-hold", waits)
	go func() {
		put("--replica-timeout", shrinks)
		put("--leader-hold", idle) // the follower does not count as live any more
	}()
	go watch("--write-timeout", func() bool { return view(t, leader).Counters.Rollbacks > before.Rollbacks })
	go watch("in doubt", func() bool { return view(t, leader).Counters.InDoubt > before.InDoubt })
	go watch("--peer-timeout", func() bool { return strings.Count(leader.logged(), "up=false") > silences })
	for range cap(events) {
		happened = append(happened, <-events)
	}
	return happened
}

// inOrder compares the events with the settings.
func inOrder(happened []event) error {
	for i, want := range []event{
		{setting: "--write-timeout"}, {setting: "in doubt"}, {setting: "--peer-timeout"},
		{setting: "--replica-timeout", text: "OK", after: 500 * time.Millisecond}, // by default before --peer-timeout: it counts from the put
		{setting: "--put-hold", text: `{"message":"in doubt, may be stored"}`},
		{setting: "--leader-hold", text: `{"message":"not enough in-sync replicas (1 of 2), not stored"}`, after: 1300 * time.Millisecond},
	} {
		got := happened[i]
		if got.setting != want.setting || got.text != want.text || i > 0 && got.after-happened[i-1].after < want.after {
			return fmt.Errorf("%v: number %d is not %v", happened, i, want)
		}
	}
	return nil
}

// topicLedBy creates topics until a broker leads one of them.
func (b *broker) topicLedBy(name, arguments string) (topic string) {
	b.t.Helper()
	n := len(view(b.t, b).Topics)
	b.eventually(name+" leads a topic", func() bool {
		n++
		topic = fmt.Sprint("t", n)
		b.post("/topic/create?topic="+topic+arguments, "")
		status, _ := b.post("/pub?topic="+topic, "x")
		return status == http.StatusOK && slices.ContainsFunc(view(b.t, b).Topics, func(v api.TopicView) bool {
			return v.Topic == topic && string(v.Partitions[0].Leader) == name && len(v.Partitions[0].ISR) == 2
		})
	})
	return topic
}

func view(t *testing.T, b *broker) (v api.ClusterView) {
	t.Helper()
	_, text := b.get("/v1/cluster")
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

// TestPromiseHeartbeatOfTheEmbeddedEtcd: a single member elects itself at a heartbeat.
func TestPromiseHeartbeatOfTheEmbeddedEtcd(t *testing.T) {
	b := prepare(t)
	began := time.Now()
	b.run("--etcd-election-timeout=6s")
	b.ready()
	require.Greater(t, time.Since(began), 600*time.Millisecond)
}
