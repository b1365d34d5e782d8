package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestKillAllAfterAck: all brokers are killed right after the last of 5,000
// puts was acknowledged; after the restart all messages are there (P1). Each
// round keeps the data and the finishes of the rounds before.
func TestKillAllAfterAck(t *testing.T) {
	for _, brokers := range []int{3, 1} {
		t.Run(fmt.Sprintf("%d brokers", brokers), func(t *testing.T) {
			killAllAfterAck(t, brokers)
		})
	}
}

func killAllAfterAck(t *testing.T, brokers int) {
	const topic, channel, puts, perBroker = "kept", "reader", 5000, 12
	c := start(t, brokers)
	c.create(topic, channel, 1)
	var s *sink
	var seen history.History
	for round := range rounds(5, 20) {
		bodies := numbered(fmt.Sprintf("round-%d", round), puts)
		l := c.put(topic, newFeed(bodies, puts), perBroker)
		l.wait()
		c.killAll()
		l.requireUndisturbed()
		restarted := time.Now()
		require.NoError(t, c.StartAll())
		writable, extra := c.writable(topic, fmt.Sprintf("writable-%d", round))
		t.Logf("round %d: writable after %s", round, writable.Sub(restarted).Round(time.Millisecond))
		require.Less(t, writable.Sub(restarted), slack(5*time.Second))
		c.ready()
		c.back()
		if s == nil {
			s = c.consume(topic, channel)
		} else {
			s.attach(topic, channel)
		}
		seen.Puts = append(append(seen.Puts, renumber(l.puts, round)...), extra)
		s.waitDistinct(len(seen.Puts))
		s.stop()
	}
	seen.Deliveries = s.all()
	report := history.Check(seen, history.Limits{Redelivered: anyNumber})
	t.Log(report)
	require.Empty(t, report.Faults)
	if brokers > 1 {
		c.whole(topic)
		c.check(topic)
	}
}

// renumber keeps the producers of different rounds apart.
func renumber(puts []history.Put, round int) []history.Put {
	for i := range puts {
		puts[i].Producer += 1000 * round
	}
	return puts
}

// back notes that every broker is up again.
func (c *cluster) back() {
	for _, name := range names(c) {
		c.down.end(name)
	}
}

// writable puts one body at the first broker that takes it, and says when it was
// acknowledged.
func (c *cluster) writable(topic, body string) (time.Time, history.Put) {
	c.t.Helper()
	put := history.Put{Producer: -1, Body: body}
	var at time.Time
	b := c.Brokers[len(c.Brokers)-1]
	c.until("an acknowledged put", func() bool {
		answer := putOnce(b, topic, body)
		put.Answers = append(put.Answers, answer)
		at = time.Now()
		return answer == history.OK
	})
	return at, put
}

// putOnce publishes over a connection of its own.
func putOnce(b devcluster.Broker, topic, body string) history.Answer {
	cfg := nsq.NewConfig()
	p, err := nsq.NewProducer(b.TCP, cfg)
	if err != nil {
		panic(err) // the address is ours
	}
	defer p.Stop()
	p.SetLogger(clusters.Silent(), nsq.LogLevelError)
	return clusters.Classify(p.Publish(topic, []byte(body)))
}

// TestOneNodeRealRecords: a lone broker, the real records as multi-puts, killed
// in the middle of consuming.
func TestOneNodeRealRecords(t *testing.T) {
	const topic, channel, together = "records", "archive", 100
	all := records(t)
	c := start(t, 1)
	c.create(topic, channel, 1)
	puts := multiPut(t, c.Brokers[0], topic, all, together)
	s := c.consume(topic, channel)
	c.until("half of the records", func() bool { return s.distinct() > len(all)/2 })
	before, killed := s.distinct(), time.Now()
	c.kill("n1")
	require.Less(t, before, len(all), "killed in the middle")
	c.restart("n1")
	s.waitDistinct(len(all))
	c.drained(topic, channel)
	report := history.Check(history.History{Puts: puts, Deliveries: s.all()}, history.Limits{Redelivered: anyNumber})
	age, again := s.forgotten(killed)
	t.Logf("killed after %d: %d came again, finished up to %s before; %s", before, again, age.Round(time.Millisecond), report)
	require.Empty(t, report.Faults)
	require.Equal(t, checksum(all), s.checksum())
}

// multiPut publishes bodies in groups, all of a group at once.
func multiPut(t *testing.T, b devcluster.Broker, topic string, bodies []string, together int) (puts []history.Put) {
	t.Helper()
	p, err := nsq.NewProducer(b.TCP, nsq.NewConfig())
	require.NoError(t, err)
	defer p.Stop()
	p.SetLogger(clusters.Silent(), nsq.LogLevelError)
	for from := 0; from < len(bodies); from += together {
		group := bodies[from:min(from+together, len(bodies))]
		raw := make([][]byte, len(group))
		for i, body := range group {
			raw[i] = []byte(body)
			puts = append(puts, history.Put{Body: body, Answers: []history.Answer{history.OK}})
		}
		require.NoError(t, p.MultiPublish(topic, raw))
	}
	return puts
}
