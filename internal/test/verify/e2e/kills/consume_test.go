package kills

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestConsumeThroughKills: leaders die while a consumer works through a backlog.
// Every message is finished at least once; what had been finished comes again
// only as far as the finish was on its way (P5).
func TestConsumeThroughKills(t *testing.T) {
	const kills = 3
	// On its way: one window of go-nsq (MaxInFlight), and the finishes of the last
	// milliseconds, which are replicated behind.
	const againMax = 3000
	all := e2etest.Records(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	puts := e2etest.MultiPut(t, c.Brokers[0], e2etest.Topic, all, 100)
	portion := len(all) / (kills + 1)
	s := c.ConsumeUpTo(e2etest.Topic, e2etest.Channel, portion)
	for i := range kills {
		s.WaitDistinct((i + 1) * portion)
		s.Allow((i+1)*portion + portion/2)
		s.WaitDistinct((i+1)*portion + portion/2)
		c.Until("the preferred broker leads", func() bool { return c.Preferred(e2etest.Topic) })
		victim := c.Leader(e2etest.Topic)
		s.Allow((i + 2) * portion)
		at, killed := s.Distinct(), time.Now()
		c.Crash(victim)
		s.WaitDistinct((i + 2) * portion)
		age, again := s.Forgotten(killed)
		t.Logf("kill %d, of %s, after %d: %d came again, finished up to %s before", i+1, victim, at, again, age.Round(time.Millisecond))
		require.Less(t, at, (i+2)*portion, "killed while consuming")
		c.Restart(victim)
		c.Whole(e2etest.Topic)
	}
	s.Allow(len(all))
	s.WaitDistinct(len(all))
	c.Drained(e2etest.Topic, e2etest.Channel)
	h := s.History(puts)
	h.Tolerance.AfterFinish = kills * againMax
	report := judge.Judge(h)
	t.Log(report)
	require.Empty(t, report.Violations)
	require.Equal(t, e2etest.Checksum(all), s.Checksum())
	c.Check(e2etest.Topic)
}
