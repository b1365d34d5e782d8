package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestConsumeThroughKills: leaders die while a consumer works through a backlog.
// Every message is finished at least once; what had been finished comes again
// only as far as the finish was on its way (P5).
func TestConsumeThroughKills(t *testing.T) {
	const kills = 3
	// On its way: one window of go-nsq (MaxInFlight), and the finishes of the last
	// milliseconds, which are replicated behind.
	const againMax = 3000
	all := records(t)
	c := start(t, 3)
	c.create(topic, channel, 1)
	puts := multiPut(t, c.Brokers[0], topic, all, 100)
	portion := len(all) / (kills + 1)
	s := c.consumeUpTo(topic, channel, portion)
	for i := range kills {
		s.waitDistinct((i + 1) * portion)
		s.allow((i + 2) * portion)
		s.waitDistinct((i+1)*portion + portion/2)
		victim := c.leader(topic)
		at, killed := s.distinct(), time.Now()
		c.kill(victim)
		s.waitDistinct((i + 2) * portion)
		age, again := s.forgotten(killed)
		t.Logf("kill %d, of %s, after %d: %d came again, finished up to %s before", i+1, victim, at, again, age.Round(time.Millisecond))
		require.Less(t, at, (i+2)*portion, "killed while consuming")
		c.restart(victim)
		c.whole(topic)
	}
	s.allow(len(all))
	s.waitDistinct(len(all))
	c.drained(topic, channel)
	report := history.Check(history.History{Puts: puts, Deliveries: s.all()}, history.Limits{Redelivered: kills * againMax})
	t.Log(report)
	require.Empty(t, report.Faults)
	require.Equal(t, checksum(all), s.checksum())
	c.check(topic)
}
