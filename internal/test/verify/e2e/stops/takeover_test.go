package stops

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// takeover watches one topic through one broker: its leader, and puts and a consumer
// that know no other broker.
type takeover struct {
	topic      string
	partitions int
	mu         sync.Mutex
	killed     time.Time
	first      map[int]time.Time // by partition: delivery of a message put after the kill
	started    map[int]time.Time // its leader was seen
}

// HandleMessage implements nsq.Handler; bodies are the time of the put.
func (o *takeover) HandleMessage(m *nsq.Message) error {
	at := time.Now()
	place, ok := judge.ParseID(string(m.ID[:]))
	if !ok {
		return fmt.Errorf("%q is no message id", m.ID[:])
	}
	put, err := strconv.ParseInt(string(m.Body), 10, 64)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil && o.first[place.Partition].IsZero() && put > o.killed.UnixNano() {
		o.first[place.Partition] = at
	}
	return err
}

// begin forgets what came before a kill.
func (o *takeover) begin(killed time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.killed, o.first, o.started = killed, map[int]time.Time{}, map[int]time.Time{}
}

// feed puts to all partitions through one broker, until ctx ends.
func (o *takeover) feed(ctx context.Context, c *e2etest.Cluster, b devcluster.Broker, wg *sync.WaitGroup) {
	for key := range 4 * o.partitions { // enough to meet every partition
		wg.Go(func() {
			for ctx.Err() == nil {
				path := fmt.Sprintf("http://%s/pub?topic=%s&key=%d", b.HTTP, o.topic, key)
				if r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(fmt.Sprint(time.Now().UnixNano()))); err == nil {
					if resp, err := c.HTTP.Do(r); err == nil {
						_ = resp.Body.Close()
					}
				}
				e2etest.Pause(e2etest.PollEvery)
			}
		})
	}
}

// TestTakeoverOfRelayedSubscriptions: a SUB lands on a broker that does not
// lead, the leader dies: the next message comes within 1 s of the new leader's
// start.
func TestTakeoverOfRelayedSubscriptions(t *testing.T) {
	c := e2etest.Start(t, 3)
	topics := []*takeover{{topic: "narrow", partitions: 1}, {topic: "wide", partitions: 8}}
	for _, o := range topics {
		o.begin(time.Now())
		c.Create(o.topic, "workers", o.partitions)
	}
	for range e2etest.Rounds(2, 12) {
		victim := c.Leader(topics[0].topic)
		takeOver(c, topics, victim, c.Other(victim))
	}
}

// takeOver kills a leader while clients work at another broker.
func takeOver(c *e2etest.Cluster, topics []*takeover, victim string, edge devcluster.Broker) {
	c.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, o := range topics {
		defer attachTo(c, edge, o.topic, "workers", o)()
		o.feed(ctx, c, edge, &wg)
		c.Until("messages of all partitions", func() bool { o.mu.Lock(); defer o.mu.Unlock(); return len(o.first) == o.partitions })
	}
	led := partitionsOf(c, topics, victim)
	killed := time.Now()
	c.Crash(victim)
	for _, o := range topics {
		o.begin(time.Now()) // what is put from now on comes from a successor
	}
	c.Until("the next messages", func() bool {
		all := true
		for _, o := range topics {
			all = look(c, o, victim) && all
		}
		return all
	})
	for _, o := range topics {
		o.requireSoon(c.T, led[o.topic], killed)
	}
	c.Restart(victim)
	for _, o := range topics {
		c.Whole(o.topic)
	}
}

// look notes which partitions have a leader again, and reports whether all have
// one and have delivered.
func look(c *e2etest.Cluster, o *takeover, victim string) (all bool) {
	v, all := c.Topic(o.topic)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range v.Partitions {
		n := p.Partition
		if o.started[n].IsZero() && p.Leader != "" && string(p.Leader) != victim {
			o.started[n] = time.Now()
		}
		all = all && !o.first[n].IsZero() && !o.started[n].IsZero()
	}
	return all
}

// requireSoon holds the next messages of partitions that lost their leader
// against the start of its successor.
func (o *takeover) requireSoon(t *testing.T, partitions []int, killed time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	worst, total := time.Duration(0), time.Duration(0)
	for _, n := range partitions {
		worst = max(worst, o.first[n].Sub(o.started[n]))
		total = max(total, o.first[n].Sub(killed))
	}
	t.Logf("%d of %d partitions lost their leader: next message at most %s after the new leader's start, %s after the kill",
		len(partitions), o.partitions, worst.Round(time.Millisecond), total.Round(time.Millisecond))
	require.Less(t, worst, e2etest.Slack(time.Second))
}

// partitionsOf lists the partitions that a broker leads, by topic.
func partitionsOf(c *e2etest.Cluster, topics []*takeover, leader string) map[string][]int {
	led := map[string][]int{}
	for _, o := range topics {
		v, _ := c.Topic(o.topic)
		for _, p := range v.Partitions {
			if string(p.Leader) == leader {
				led[o.topic] = append(led[o.topic], p.Partition)
			}
		}
	}
	return led
}

// attachTo attaches a consumer to one broker alone and returns its end.
func attachTo(c *e2etest.Cluster, b devcluster.Broker, topic, channel string, h nsq.Handler) (stop func()) {
	c.T.Helper()
	cfg := nsq.NewConfig()
	cfg.MaxAttempts, cfg.MaxInFlight = 0, 300
	consumer, err := nsq.NewConsumer(topic, channel, cfg)
	require.NoError(c.T, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddConcurrentHandlers(h, 4)
	require.NoError(c.T, consumer.ConnectToNSQD(b.TCP))
	return func() {
		consumer.Stop()
		<-consumer.StopChan
	}
}
