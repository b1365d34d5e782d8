package e2etest

import (
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// Topic and Channel are those of UnderLoad.
const (
	Topic, Channel = "steady", "reader"
	SessionTTL     = 3 * time.Second // the default of --session-ttl
)

// Steady is a cluster under load that has not hit anything yet.
type Steady struct {
	*Cluster
	*Load
	Sink *Sink
}

// UnderLoad starts three brokers, producers at all of them and a consumer.
func UnderLoad(t *testing.T, partitions int) *Steady {
	t.Helper()
	return Start(t, 3).UnderLoad(partitions)
}

// UnderLoad makes a topic, producers at all brokers and a consumer.
func (c *Cluster) UnderLoad(partitions int) *Steady {
	c.T.Helper()
	c.Create(Topic, Channel, partitions)
	return c.Loaded(3)
}

// Loaded starts producers at all brokers, so many each, and a consumer.
func (c *Cluster) Loaded(perBroker int) *Steady {
	c.T.Helper()
	s := &Steady{Cluster: c, Sink: c.Consume(Topic, Channel)}
	const plenty = 2_000_000
	s.Load = c.Put(Topic, NewFeed(Numbered("m", plenty), plenty), perBroker)
	s.WaitAcked(1000)
	return s
}

// Finish ends the load and judges all that was seen.
func (s *Steady) Finish(t *testing.T) judge.Report {
	t.Helper()
	s.Feed.End()
	s.Wait()
	s.Sink.WaitDistinct(int(s.acked.Load()))
	s.Drained(Topic, Channel)
	report := s.Load.Judge(s.Sink)
	t.Logf("%+v", s.Counters())
	s.RequireUndisturbed()
	s.Whole(Topic)
	s.Check(Topic)
	return report
}
