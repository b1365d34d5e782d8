package channels

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// ordered watches an ordered channel: what it delivers to whichever consumer
// never steps back behind a finish.
type ordered struct {
	mu      sync.Mutex
	done    int64 // highest sequence finished; -1 = none
	seen    map[int64]bool
	again   int // deliveries of the message whose finish was in progress
	faults  []string
	holding time.Duration // how long a message is worked on
}

// sequenceOf reads the place in the log out of a message id (internal/api/place.go).
func sequenceOf(id nsq.MessageID) int64 {
	n, err := strconv.ParseUint(string(id[:]), 16, 64)
	if err != nil {
		return -1
	}
	return int64(n & (1<<42 - 1))
}

// HandleMessage implements nsq.Handler.
func (o *ordered) HandleMessage(m *nsq.Message) error {
	seq := sequenceOf(m.ID)
	o.mu.Lock()
	switch {
	case seq == o.done:
		o.again++
	case seq < o.done:
		o.faults = append(o.faults, fmt.Sprintf("%s: message %d after the finish of %d, from %s",
			time.Now().Format("15:04:05.000"), seq, o.done, m.NSQDAddress))
	case seq > o.done+1:
		o.faults = append(o.faults, fmt.Sprintf("message %d after %d: one was left out", seq, o.done))
	}
	o.mu.Unlock()
	e2etest.Pause(o.holding)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = max(o.done, seq)
	o.seen[seq] = true
	return nil
}

func (o *ordered) finished() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.seen)
}

// watchOrdered attaches one consumer to an ordered channel, connected to these brokers.
func watchOrdered(c *e2etest.Cluster, o *ordered, topic, channel string, brokers ...devcluster.Broker) {
	c.T.Helper()
	cfg := nsq.NewConfig()
	cfg.MaxAttempts, cfg.MaxInFlight, cfg.LookupdPollInterval = 0, 2*len(brokers), 250*time.Millisecond
	consumer, err := nsq.NewConsumer(topic, channel, cfg)
	require.NoError(c.T, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddHandler(o)
	for _, b := range brokers {
		require.NoError(c.T, consumer.ConnectToNSQD(b.TCP))
	}
	c.T.Cleanup(func() {
		consumer.Stop()
		<-consumer.StopChan
	})
}

// TestChannelsThroughLeaderKills: eight channels, two of them ordered, producers
// and consumers at all brokers, the leader killed again and again (P5).
func TestChannelsThroughLeaderKills(t *testing.T) {
	const topic, perSecond = "events", 300
	kills := e2etest.Rounds(3, 24)
	c := e2etest.Start(t, 3)
	c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}})
	var sinks []*e2etest.Sink
	for i := range 6 {
		c.Post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {fmt.Sprintf("c%d", i)}, "from": {"earliest"}})
		sinks = append(sinks, c.Consume(topic, fmt.Sprintf("c%d", i)))
	}
	var orders []*ordered
	for i := range 2 {
		o := &ordered{done: -1, seen: map[int64]bool{}}
		name := fmt.Sprintf("o%d", i)
		c.Post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {name}, "from": {"earliest"}, "ordered": {"true"}})
		watchOrdered(c, o, topic, name, c.Brokers...)
		orders = append(orders, o)
	}
	c.Whole(topic)
	all := e2etest.Numbered("event", perSecond*5*(kills+1))
	f := e2etest.NewFeed(all, 0)
	l := c.Put(topic, f, 4)
	begin := time.Now()
	allow := func() { f.Allow(int(time.Since(begin).Seconds() * perSecond)) }
	steadily := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); allow() {
			e2etest.Pause(e2etest.PollEvery)
		}
	}
	againTotal, oldest := 0, time.Duration(0)
	for range kills {
		steadily(3 * time.Second)
		victim, killed := c.Leader(topic), time.Now()
		c.Crash(victim)
		steadily(time.Second)
		c.Restart(victim)
		c.Until("all replicas in sync", func() bool { allow(); return inSync(c, topic) })
		steadily(time.Second)
		for _, s := range sinks {
			age, n := s.Forgotten(killed)
			againTotal, oldest = againTotal+n, max(oldest, age)
		}
	}
	f.Allow(len(all))
	l.Wait()
	for i, s := range sinks {
		s.WaitDistinct(len(all))
		c.Drained(topic, fmt.Sprintf("c%d", i))
		l.Judge(s)
	}
	stored := stored(c, topic)
	for i, o := range orders {
		c.Until(fmt.Sprintf("channel o%d", i), func() bool { return o.finished() == stored })
		require.Empty(t, o.faults, "channel o%d", i)
		t.Logf("ordered channel o%d: %d messages, %d came again with their finish under way", i, o.finished(), o.again)
		require.LessOrEqual(t, o.again, 2*kills)
	}
	l.RequireUndisturbed()
	t.Logf("%d kills, %d messages on 6 channels: %d came again after a finish, finished up to %s before the kill",
		kills, len(all), againTotal, oldest.Round(time.Millisecond))
	require.Less(t, oldest, e2etest.Slack(200*time.Millisecond), "finishes are replicated within 10 ms and a round trip")
	c.Check(topic)
}

// inSync reports whether every replica of a topic is in sync.
func inSync(c *e2etest.Cluster, topic string) bool {
	v, ok := c.Topic(topic)
	for _, p := range v.Partitions {
		ok = ok && p.Leader != "" && len(p.ISR) == len(p.Replicas)
	}
	return ok
}

// stored is how many messages a topic of one partition has.
func stored(c *e2etest.Cluster, topic string) int {
	v, ok := c.Topic(topic)
	require.True(c.T, ok)
	return int(v.Partitions[0].CommittedSequence)
}

// TestDelaysOutliveAllBrokers: 10,000 delayed messages and 1,000 in flight when
// every broker is killed; all are there afterwards, the deadlines hold (P6).
func TestDelaysOutliveAllBrokers(t *testing.T) {
	t.Parallel()
	const topic, channel, delayed, held = "jobs", "workers", 10_000, 1_000
	const wait = 25 * time.Second
	c := e2etest.Start(t, 3)
	c.Create(topic, channel, 1)
	e2etest.MultiPut(t, c.Brokers[0], topic, e2etest.Numbered("held", held), 100)
	holder := hold(c, topic, channel, held)
	before := time.Now()
	for i := range delayed / 1000 {
		body := strings.Join(e2etest.Numbered(fmt.Sprintf("delayed-%d", i), 1000), "\n")
		resp, err := c.HTTP.Post(fmt.Sprintf("http://%s/mpub?topic=%s&defer=%d", c.Brokers[i%3].HTTP, topic, wait.Milliseconds()), "", strings.NewReader(body))
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode)
	}
	after := time.Now()
	c.Until("1,000 in flight and 10,000 deferred", func() bool {
		s := c.ChannelStats(topic, channel)
		return s.InFlightCount == held && s.DeferredCount == delayed && s.Depth == 0
	})
	c.CrashAll()
	holder()
	require.NoError(t, c.StartAll())
	c.WaitReady()
	c.Back()
	c.Until("everything as it was", func() bool {
		s := c.ChannelStats(topic, channel)
		return s.DeferredCount == delayed && int(s.Depth)+s.InFlightCount == held
	})
	require.Less(t, time.Since(before), wait, "the brokers took longer to come back than the delay: void")
	var mu sync.Mutex
	due := map[string]time.Time{}
	workers := c.Handle(topic, channel, 2500, func(m *nsq.Message) error {
		mu.Lock()
		defer mu.Unlock()
		due[string(m.Body)] = time.Now()
		return nil
	})
	defer workers()
	c.Until("every message", func() bool { mu.Lock(); defer mu.Unlock(); return len(due) == held+delayed })
	early, late := time.Duration(0), time.Duration(0)
	for body, at := range due {
		if strings.HasPrefix(body, "delayed") {
			early = max(early, before.Add(wait).Sub(at))
			late = max(late, at.Sub(after.Add(wait)))
		}
	}
	t.Logf("10,000 due within %s: earliest %s before the first deadline, latest %s after the last one", after.Sub(before), early, late)
	require.LessOrEqual(t, early, time.Duration(0))
	require.Less(t, late, e2etest.Slack(time.Second))
	c.Drained(topic, channel)
}

// hold takes n messages into flight and finishes none. Once the brokers are dead
// it is ended: go-nsq waits for answers to what it was given, so it gets some.
func hold(c *e2etest.Cluster, topic, channel string, n int) (stop func()) {
	var mu sync.Mutex
	var held []*nsq.Message
	end := c.Handle(topic, channel, 3*n, func(m *nsq.Message) error {
		m.DisableAutoResponse()
		mu.Lock()
		defer mu.Unlock()
		held = append(held, m)
		return nil
	})
	return func() {
		mu.Lock()
		for _, m := range held {
			m.Finish()
		}
		mu.Unlock()
		end()
	}
}

// TestStoppedLeaderOfAnOrderedChannel: a leader that is stopped, replaced and
// wakes up delivers nothing that its successor has already passed (P5).
func TestStoppedLeaderOfAnOrderedChannel(t *testing.T) {
	t.Parallel()
	const topic, channel = "steps", "walker"
	c := e2etest.Start(t, 3)
	c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "ordered": {"true"}})
	c.Post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {channel}})
	c.Whole(topic)
	const n = 20_000
	e2etest.MultiPut(t, c.Brokers[0], topic, e2etest.Numbered("step", n), 1000)
	o := &ordered{done: -1, seen: map[int64]bool{}, holding: time.Millisecond}
	for _, b := range c.Brokers { // one consumer for each broker: the stopped one keeps its own
		watchOrdered(c, o, topic, channel, b)
	}
	for round := range e2etest.Rounds(2, 20) {
		c.Until("progress", func() bool { return o.finished() > 200*(2*round+1) })
		victim := c.Leader(topic)
		c.Down.Begin(victim)
		require.NoError(t, c.Signal(victim, syscall.SIGSTOP))
		c.Until("another leader", func() bool {
			v, ok := c.Topic(topic)
			return ok && v.Partitions[0].Leader != "" && string(v.Partitions[0].Leader) != victim
		})
		at := o.finished()
		c.Until("progress under the new leader", func() bool { return o.finished() > at+100 })
		require.NoError(t, c.Signal(victim, syscall.SIGCONT))
		c.Down.End(victim)
		c.Whole(topic)
		at = o.finished()
		c.Until("progress after the old leader woke up", func() bool { return o.finished() > at+100 })
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Empty(t, o.faults)
	t.Logf("%d messages in order, %d came again with their finish under way", len(o.seen), o.again)
}
