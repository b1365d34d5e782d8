package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

const anyNumber = -1 // of redeliveries

// TestRecordsThroughLeaderKills: the real records through three brokers, the
// leader killed and restarted five times on the way (P1, P7).
func TestRecordsThroughLeaderKills(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			recordsThroughLeaderKills(t, partitions)
		})
	}
}

func recordsThroughLeaderKills(t *testing.T, partitions int) {
	const kills, perBroker = 5, 6
	const topic, channel = "records", "archive"
	all := records(t)
	c := start(t, 3)
	c.create(topic, channel, partitions)
	portion := len(all) / (kills + 1)
	f := newFeed(all, portion)
	s := c.consume(topic, channel)
	l := c.put(topic, f, perBroker)
	var faults []fault
	for i := range kills {
		f.allow((i + 2) * portion)
		l.waitAcked((i+1)*portion - portion/2)
		leader := c.leaderOf(topic, i%partitions)
		killed := time.Now()
		c.kill(leader)
		l.waitProgress(200)
		l.requireLoad(killed)
		c.restart(leader)
		c.whole(topic)
		faults = append(faults, fault{what: "kill of a leader", limit: time.Second, at: killed})
	}
	f.allow(len(all))
	l.wait()
	s.waitDistinct(len(all))
	c.drained(topic, channel)
	report := history.Check(l.history(s), history.Limits{Redelivered: anyNumber})
	t.Logf("%s\n%+v", report, c.counters())
	require.Empty(t, report.Faults)
	l.requireUndisturbed()
	require.Equal(t, checksum(all), s.checksum())
	l.requireStalls(faults)
	c.check(topic)
}
