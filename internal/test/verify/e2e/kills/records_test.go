package kills

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

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
	all := e2etest.Records(t)
	c := e2etest.Start(t, 3)
	c.Create(topic, channel, partitions)
	portion := len(all) / (kills + 1)
	f := e2etest.NewFeed(all, portion)
	s := c.Consume(topic, channel)
	l := c.Put(topic, f, perBroker)
	var faults []e2etest.Fault
	for i := range kills {
		f.Allow((i + 2) * portion)
		l.WaitAcked((i+1)*portion - portion/2)
		leader := c.LeaderOf(topic, i%partitions)
		killed := time.Now()
		c.Crash(leader)
		l.WaitProgress(200)
		l.RequireLoad(killed)
		c.Restart(leader)
		c.Whole(topic)
		faults = append(faults, e2etest.Fault{What: "kill of a leader", Limit: time.Second, At: killed})
	}
	f.Allow(len(all))
	l.Wait()
	s.WaitDistinct(len(all))
	c.Drained(topic, channel)
	l.Judge(s)
	t.Logf("%+v", c.Counters())
	l.RequireUndisturbed()
	require.Equal(t, e2etest.Checksum(all), s.Checksum())
	l.RequireStalls(faults)
	c.Check(topic)
}
