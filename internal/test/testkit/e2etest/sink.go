package e2etest

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// Sink is a go-nsq consumer that finds the brokers through /lookup on all of
// them and finishes every message, as far as it is allowed to: beyond that it
// holds what it got, so that a test decides how far it is when a broker dies.
type Sink struct {
	c          *Cluster
	topic      string
	channel    string
	consumer   *nsq.Consumer
	mu         sync.Mutex
	more       *sync.Cond
	allowed    int // different bodies that may be finished
	deliveries []*judge.Delivery
	bodies     map[string]bool
	finished   map[string]time.Time // id → its first finish
	again      []time.Time          // finishes that were forgotten: the message came again
}

// Consume attaches a consumer; it is stopped at the end of the test.
func (c *Cluster) Consume(topic, channel string) *Sink {
	c.T.Helper()
	return c.ConsumeUpTo(topic, channel, math.MaxInt)
}

// ConsumeUpTo attaches a consumer that finishes n different bodies, and more
// when it is allowed to.
func (c *Cluster) ConsumeUpTo(topic, channel string, n int) *Sink {
	c.T.Helper()
	s := &Sink{c: c, topic: topic, channel: channel, bodies: map[string]bool{}, finished: map[string]time.Time{}, allowed: n}
	s.more = sync.NewCond(&s.mu)
	s.Attach(topic, channel)
	c.T.Cleanup(func() {
		s.Allow(math.MaxInt)
		s.Stop()
	})
	return s
}

// Allow lets n different bodies be finished.
func (s *Sink) Allow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = max(s.allowed, n)
	s.more.Broadcast()
}

// Attach connects a new consumer that continues where the last one was stopped.
func (s *Sink) Attach(topic, channel string) {
	s.c.T.Helper()
	cfg := nsq.NewConfig()
	cfg.LookupdPollInterval, cfg.LookupdPollJitter = 250*time.Millisecond, 0
	cfg.MaxInFlight, cfg.MaxAttempts = 300, 0
	consumer, err := nsq.NewConsumer(topic, channel, cfg)
	require.NoError(s.c.T, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddConcurrentHandlers(nsq.HandlerFunc(s.handle), 16)
	var lookups []string
	for _, b := range s.c.Brokers {
		lookups = append(lookups, b.HTTP)
	}
	require.NoError(s.c.T, consumer.ConnectToNSQLookupds(lookups))
	s.consumer = consumer
}

func (s *Sink) handle(m *nsq.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, d := string(m.ID[:]), record.Received(s.channel, m)
	if before, ok := s.finished[id]; ok {
		s.again = append(s.again, before)
	}
	s.deliveries = append(s.deliveries, d)
	s.bodies[d.Body] = true
	for len(s.bodies) > s.allowed {
		s.more.Wait()
	}
	record.Finished(d)
	if _, ok := s.finished[id]; !ok {
		s.finished[id] = time.Now()
	}
	return nil
}

// Stop ends the consumer; twice is fine.
func (s *Sink) Stop() {
	s.consumer.Stop()
	<-s.consumer.StopChan
}

// All are the deliveries so far.
func (s *Sink) All() []*judge.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*judge.Delivery, len(s.deliveries))
	for i, d := range s.deliveries {
		now := *d // a handler may be at it
		all[i] = &now
	}
	return all
}

// History is what the producers of the topic and the consumer saw.
func (s *Sink) History(puts []*judge.Put) *judge.History {
	return record.History(s.topic, puts, s.All(), s.channel)
}

// Judge requires that what the producers of the topic and the consumer saw is right.
func (s *Sink) Judge(puts []*judge.Put) judge.Report {
	s.c.T.Helper()
	report := judge.Judge(s.History(puts))
	s.c.T.Log(report)
	require.Empty(s.c.T, report.Violations)
	return report
}

// Distinct is the number of different bodies so far.
func (s *Sink) Distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

// WaitDistinct waits until n different bodies arrived.
func (s *Sink) WaitDistinct(n int) {
	s.c.T.Helper()
	got, deadline := 0, time.Now().Add(WaitLimit)
	for {
		now := s.Distinct()
		if now >= n {
			return
		}
		if now > got {
			got, deadline = now, time.Now().Add(WaitLimit)
		}
		if time.Now().After(deadline) {
			s.c.T.Errorf("%d of %d different bodies arrived, and no further one within %s", got, n, WaitLimit)
			return // the judgement of the history says which are missing
		}
		Pause(PollEvery)
	}
}

// Forgotten is how long before a fault the oldest finish was that it undid.
func (s *Sink) Forgotten(fault time.Time) (age time.Duration, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.again {
		if at.Before(fault) {
			age = max(age, fault.Sub(at))
		}
	}
	n = len(s.again)
	s.again = nil
	return age, n
}

// Checksum is one number for the distinct bodies, whatever their order.
func (s *Sink) Checksum() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]string, 0, len(s.bodies))
	for body := range s.bodies {
		all = append(all, body)
	}
	return Checksum(all)
}

// Checksum is one number for bodies, whatever their order.
func Checksum(bodies []string) string {
	sorted := slices.Sorted(slices.Values(bodies))
	h := sha256.New()
	for _, body := range sorted {
		fmt.Fprintln(h, body)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
