package e2e

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

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// ordered watches an ordered channel: what it delivers to whichever consumer
// never steps back behind a finish.
type ordered struct {
	mu      sync.Mutex
	done    int64 // highest sequence finished; -1 = none
	seen    map[int64]bool
	again   int // deliveries of the message whose finish was under way
	faults  []string
	holding time.Duration // how long a message is worked on
}

// sequenceOf reads the place in the log out of a message id (nsqd/msgid/msgid.go).
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
	pause(o.holding)
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
func (c *cluster) watchOrdered(o *ordered, topic, channel string, brokers ...devcluster.Broker) {
	c.t.Helper()
	cfg := nsq.NewConfig()
	cfg.MaxAttempts, cfg.MaxInFlight, cfg.LookupdPollInterval = 0, 2*len(brokers), 250*time.Millisecond
	consumer, err := nsq.NewConsumer(topic, channel, cfg)
	require.NoError(c.t, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddHandler(o)
	for _, b := range brokers {
		require.NoError(c.t, consumer.ConnectToNSQD(b.TCP))
	}
	c.t.Cleanup(func() {
		consumer.Stop()
		<-consumer.StopChan
	})
}

// TestChannelsThroughLeaderKills: eight channels, two of them ordered, producers
// and consumers at all brokers, the leader killed again and again (P5).
func TestChannelsThroughLeaderKills(t *testing.T) {
	const topic, perSecond = "events", 300
	kills := rounds(3, 24)
	c := start(t, 3)
	c.post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}})
	var sinks []*sink
	for i := range 6 {
		c.post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {fmt.Sprintf("c%d", i)}, "from": {"earliest"}})
		sinks = append(sinks, c.consume(topic, fmt.Sprintf("c%d", i)))
	}
	var orders []*ordered
	for i := range 2 {
		o := &ordered{done: -1, seen: map[int64]bool{}}
		name := fmt.Sprintf("o%d", i)
		c.post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {name}, "from": {"earliest"}, "ordered": {"true"}})
		c.watchOrdered(o, topic, name, c.Brokers...)
		orders = append(orders, o)
	}
	c.whole(topic)
	all := numbered("event", perSecond*5*(kills+1))
	f := newFeed(all, 0)
	l := c.put(topic, f, 4)
	begin := time.Now()
	allow := func() { f.allow(int(time.Since(begin).Seconds() * perSecond)) }
	steadily := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); allow() {
			pause(pollEvery)
		}
	}
	againTotal, oldest := 0, time.Duration(0)
	for range kills {
		steadily(3 * time.Second)
		victim, killed := c.leader(topic), time.Now()
		c.kill(victim)
		steadily(time.Second)
		c.restart(victim)
		c.until("all replicas in sync", func() bool { allow(); return c.inSync(topic) })
		steadily(time.Second)
		for _, s := range sinks {
			age, n := s.forgotten(killed)
			againTotal, oldest = againTotal+n, max(oldest, age)
		}
	}
	f.allow(len(all))
	l.wait()
	for i, s := range sinks {
		s.waitDistinct(len(all))
		c.drained(topic, fmt.Sprintf("c%d", i))
		report := history.Check(l.history(s), history.Limits{Redelivered: anyNumber})
		require.Empty(t, report.Faults, "channel c%d", i)
	}
	stored := c.stored(topic)
	for i, o := range orders {
		c.until(fmt.Sprintf("channel o%d", i), func() bool { return o.finished() == stored })
		require.Empty(t, o.faults, "channel o%d", i)
		t.Logf("ordered channel o%d: %d messages, %d came again with their finish under way", i, o.finished(), o.again)
		require.LessOrEqual(t, o.again, 2*kills)
	}
	l.requireUndisturbed()
	t.Logf("%d kills, %d messages on 6 channels: %d came again after a finish, finished up to %s before the kill",
		kills, len(all), againTotal, oldest.Round(time.Millisecond))
	require.Less(t, oldest, slack(200*time.Millisecond), "finishes are replicated within 10 ms and a round trip")
	c.check(topic)
}

// inSync reports whether every replica of a topic is in sync.
func (c *cluster) inSync(topic string) bool {
	v, ok := c.topic(topic)
	for _, p := range v.Partitions {
		ok = ok && p.Leader != "" && len(p.ISR) == len(p.Replicas)
	}
	return ok
}

// stored is how many messages a topic of one partition has.
func (c *cluster) stored(topic string) int {
	v, ok := c.topic(topic)
	require.True(c.t, ok)
	return int(v.Partitions[0].CommittedSequence)
}

// channelStats adds up what the leaders report of a channel.
func (c *cluster) channelStats(topic, channel string) (sum edge.ChannelStats) {
	for _, b := range c.Brokers {
		var s struct{ Topics []edge.TopicStats }
		if c.get(b, "/stats?format=json&topic="+url.QueryEscape(topic)+"&channel="+url.QueryEscape(channel), &s) != nil {
			continue
		}
		for _, t := range s.Topics {
			for _, ch := range t.Channels {
				sum.Depth += ch.Depth
				sum.InFlightCount += ch.InFlightCount
				sum.DeferredCount += ch.DeferredCount
			}
		}
	}
	return sum
}

// TestDelaysOutliveAllBrokers: 10,000 delayed messages and 1,000 in flight when
// every broker is killed; all are there afterwards, the deadlines hold (P6).
func TestDelaysOutliveAllBrokers(t *testing.T) {
	const topic, channel, delayed, held = "jobs", "workers", 10_000, 1_000
	const wait = 25 * time.Second
	c := start(t, 3)
	c.create(topic, channel, 1)
	multiPut(t, c.Brokers[0], topic, numbered("held", held), 100)
	holder := c.hold(topic, channel, held)
	before := time.Now()
	for i := range delayed / 1000 {
		body := strings.Join(numbered(fmt.Sprintf("delayed-%d", i), 1000), "\n")
		resp, err := c.http.Post(fmt.Sprintf("http://%s/mpub?topic=%s&defer=%d", c.Brokers[i%3].HTTP, topic, wait.Milliseconds()), "", strings.NewReader(body))
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode)
	}
	after := time.Now()
	c.until("1,000 in flight and 10,000 deferred", func() bool {
		s := c.channelStats(topic, channel)
		return s.InFlightCount == held && s.DeferredCount == delayed && s.Depth == 0
	})
	c.killAll()
	holder()
	require.NoError(t, c.StartAll())
	c.ready()
	c.back()
	c.until("everything as it was", func() bool {
		s := c.channelStats(topic, channel)
		return s.DeferredCount == delayed && int(s.Depth)+s.InFlightCount == held
	})
	require.Less(t, time.Since(before), wait, "the brokers took longer to come back than the delay: void")
	var mu sync.Mutex
	due := map[string]time.Time{}
	workers := c.handle(topic, channel, 2500, func(m *nsq.Message) error {
		mu.Lock()
		defer mu.Unlock()
		due[string(m.Body)] = time.Now()
		return nil
	})
	defer workers()
	c.until("every message", func() bool { mu.Lock(); defer mu.Unlock(); return len(due) == held+delayed })
	early, late := time.Duration(0), time.Duration(0)
	for body, at := range due {
		if strings.HasPrefix(body, "delayed") {
			early = max(early, before.Add(wait).Sub(at))
			late = max(late, at.Sub(after.Add(wait)))
		}
	}
	t.Logf("10,000 due within %s: earliest %s before the first deadline, latest %s after the last one", after.Sub(before), early, late)
	require.LessOrEqual(t, early, time.Duration(0))
	require.Less(t, late, slack(time.Second))
	c.drained(topic, channel)
}

// handle attaches a consumer to all brokers and returns its end.
func (c *cluster) handle(topic, channel string, inFlight int, h nsq.HandlerFunc) (stop func()) {
	c.t.Helper()
	cfg := nsq.NewConfig()
	cfg.MaxAttempts, cfg.MaxInFlight, cfg.LookupdPollInterval = 0, inFlight, 250*time.Millisecond
	consumer, err := nsq.NewConsumer(topic, channel, cfg)
	require.NoError(c.t, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddConcurrentHandlers(h, 16)
	for _, b := range c.Brokers {
		require.NoError(c.t, consumer.ConnectToNSQD(b.TCP))
	}
	return func() {
		consumer.Stop()
		<-consumer.StopChan
	}
}

// hold takes n messages into flight and finishes none. Once the brokers are dead
// it is ended: go-nsq waits for answers to what it was given, so it gets some.
func (c *cluster) hold(topic, channel string, n int) (stop func()) {
	var mu sync.Mutex
	var held []*nsq.Message
	end := c.handle(topic, channel, 3*n, func(m *nsq.Message) error {
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
	const topic, channel = "steps", "walker"
	c := start(t, 3)
	c.post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "ordered": {"true"}})
	c.post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {channel}})
	c.whole(topic)
	const n = 20_000
	multiPut(t, c.Brokers[0], topic, numbered("step", n), 1000)
	o := &ordered{done: -1, seen: map[int64]bool{}, holding: time.Millisecond}
	for _, b := range c.Brokers { // one consumer for each broker: the stopped one keeps its own
		c.watchOrdered(o, topic, channel, b)
	}
	for round := range rounds(2, 20) {
		c.until("progress", func() bool { return o.finished() > 200*(2*round+1) })
		victim := c.leader(topic)
		c.down.begin(victim)
		require.NoError(t, c.Signal(victim, syscall.SIGSTOP))
		c.until("another leader", func() bool {
			v, ok := c.topic(topic)
			return ok && v.Partitions[0].Leader != "" && string(v.Partitions[0].Leader) != victim
		})
		at := o.finished()
		c.until("progress under the new leader", func() bool { return o.finished() > at+100 })
		require.NoError(t, c.Signal(victim, syscall.SIGCONT))
		c.down.end(victim)
		c.whole(topic)
		at = o.finished()
		c.until("progress after the old leader woke up", func() bool { return o.finished() > at+100 })
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Empty(t, o.faults)
	t.Logf("%d messages in order, %d came again with their finish under way", len(o.seen), o.again)
}
