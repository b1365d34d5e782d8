package loss

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// TestKillAllAfterAck: all brokers are killed right after the last of 5,000
// puts was acknowledged; after the restart all messages are there (P1). Each
// round keeps the data and the finishes of the rounds before.
func TestKillAllAfterAck(t *testing.T) {
	t.Parallel()
	for _, brokers := range []int{3, 1} {
		t.Run(fmt.Sprintf("%d brokers", brokers), func(t *testing.T) {
			killAllAfterAck(t, brokers)
		})
	}
}

func killAllAfterAck(t *testing.T, brokers int) {
	const topic, channel, each, perBroker = "kept", "reader", 5000, 12
	c := e2etest.Start(t, brokers)
	c.Create(topic, channel, 1)
	var s *e2etest.Sink
	var puts []*judge.Put
	for round := range e2etest.Rounds(5, 20) {
		bodies := e2etest.Numbered(fmt.Sprintf("round-%d", round), each)
		l := c.Put(topic, e2etest.NewFeed(bodies, each), perBroker)
		l.Wait()
		c.CrashAll()
		l.RequireUndisturbed()
		restarted := time.Now()
		require.NoError(t, c.StartAll())
		writable, extra := writable(c, topic, fmt.Sprintf("writable-%d", round))
		t.Logf("round %d: writable after %s", round, writable.Sub(restarted).Round(time.Millisecond))
		require.Less(t, writable.Sub(restarted), e2etest.Slack(5*time.Second))
		c.WaitReady()
		c.Back()
		if s == nil {
			s = c.Consume(topic, channel)
		} else {
			s.Attach(topic, channel)
		}
		puts = append(append(puts, l.Published()...), extra)
		s.WaitDistinct(len(puts))
		s.Stop()
	}
	s.Judge(puts)
	if brokers > 1 {
		c.Whole(topic)
		c.Check(topic)
	}
}

// writable puts one body at the first broker that takes it, and says when it was
// acknowledged.
func writable(c *e2etest.Cluster, topic, body string) (time.Time, *judge.Put) {
	c.T.Helper()
	put := &judge.Put{Producer: -1, Bodies: []string{body}}
	var at time.Time
	b := c.Brokers[len(c.Brokers)-1]
	c.Until("an acknowledged put", func() bool {
		sent, answer := record.Now(), e2etest.PutOnce(b, topic, body)
		put.Attempts = append(put.Attempts, record.Attempt(sent, answer))
		at = time.Now()
		return answer == judge.OK
	})
	return at, put
}

// TestOneNodeRealRecords: a lone broker, the real records as multi-puts, killed
// in the middle of consuming.
func TestOneNodeRealRecords(t *testing.T) {
	t.Parallel()
	const topic, channel, together = "records", "archive", 100
	all := e2etest.Records(t)
	c := e2etest.Start(t, 1)
	c.Create(topic, channel, 1)
	puts := e2etest.MultiPut(t, c.Brokers[0], topic, all, together)
	s := c.Consume(topic, channel)
	c.Until("half of the records", func() bool { return s.Distinct() > len(all)/2 })
	before, killed := s.Distinct(), time.Now()
	c.Crash("n1")
	require.Less(t, before, len(all), "killed in the middle")
	c.Restart("n1")
	s.WaitDistinct(len(all))
	c.Drained(topic, channel)
	s.Judge(puts)
	age, again := s.Forgotten(killed)
	t.Logf("killed after %d: %d came again, finished up to %s before", before, again, age.Round(time.Millisecond))
	require.Equal(t, e2etest.Checksum(all), s.Checksum())
}
