package e2e

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// sink is a go-nsq consumer that finds the brokers through /lookup on all of
// them and finishes every message, as far as it is allowed to: beyond that it
// holds what it got, so that a test decides how far it is when a broker dies.
type sink struct {
	c          *cluster
	consumer   *nsq.Consumer
	mu         sync.Mutex
	more       *sync.Cond
	allowed    int // different bodies that may be finished
	deliveries []history.Delivery
	bodies     map[string]bool
	finished   map[string]time.Time // id → its first finish
	again      []time.Time          // finishes that were forgotten: the message came again
}

// consume attaches a consumer; it is stopped at the end of the test.
func (c *cluster) consume(topic, channel string) *sink {
	c.t.Helper()
	return c.consumeUpTo(topic, channel, math.MaxInt)
}

// consumeUpTo attaches a consumer that finishes n different bodies, and more
// when it is allowed to.
func (c *cluster) consumeUpTo(topic, channel string, n int) *sink {
	c.t.Helper()
	s := &sink{c: c, bodies: map[string]bool{}, finished: map[string]time.Time{}, allowed: n}
	s.more = sync.NewCond(&s.mu)
	s.attach(topic, channel)
	c.t.Cleanup(func() {
		s.allow(math.MaxInt)
		s.stop()
	})
	return s
}

// allow lets n different bodies be finished.
func (s *sink) allow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = max(s.allowed, n)
	s.more.Broadcast()
}

// attach connects a new consumer that goes on where the last one was stopped.
func (s *sink) attach(topic, channel string) {
	s.c.t.Helper()
	cfg := nsq.NewConfig()
	cfg.LookupdPollInterval, cfg.LookupdPollJitter = 250*time.Millisecond, 0
	cfg.MaxInFlight, cfg.MaxAttempts = 300, 0
	consumer, err := nsq.NewConsumer(topic, channel, cfg)
	require.NoError(s.c.t, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddConcurrentHandlers(nsq.HandlerFunc(s.handle), 16)
	var lookups []string
	for _, b := range s.c.Brokers {
		lookups = append(lookups, b.HTTP)
	}
	require.NoError(s.c.t, consumer.ConnectToNSQLookupds(lookups))
	s.consumer = consumer
}

func (s *sink) handle(m *nsq.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, body, at := string(m.ID[:]), string(m.Body), len(s.deliveries)
	if before, ok := s.finished[id]; ok {
		s.again = append(s.again, before)
	}
	s.deliveries = append(s.deliveries, history.Delivery{ID: id, Body: body, Attempts: m.Attempts})
	s.bodies[body] = true
	for len(s.bodies) > s.allowed {
		s.more.Wait()
	}
	s.deliveries[at].FinishedAt = len(s.deliveries)
	if _, ok := s.finished[id]; !ok {
		s.finished[id] = time.Now()
	}
	return nil
}

// stop ends the consumer; twice is fine.
func (s *sink) stop() {
	s.consumer.Stop()
	<-s.consumer.StopChan
}

func (s *sink) all() []history.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deliveries)
}

func (s *sink) distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

// waitDistinct waits until n different bodies arrived.
func (s *sink) waitDistinct(n int) {
	s.c.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for s.distinct() < n {
		if time.Now().After(deadline) {
			s.c.t.Errorf("%d of %d different bodies arrived within %s", s.distinct(), n, waitLimit)
			return // the judgement of the history says which are missing
		}
		pause(pollEvery)
	}
}

// forgotten is how long before a fault the oldest finish was that it undid.
func (s *sink) forgotten(fault time.Time) (age time.Duration, n int) {
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

// checksum is one number for the distinct bodies, whatever their order.
func (s *sink) checksum() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]string, 0, len(s.bodies))
	for body := range s.bodies {
		all = append(all, body)
	}
	return checksum(all)
}

func checksum(bodies []string) string {
	sorted := slices.Sorted(slices.Values(bodies))
	h := sha256.New()
	for _, body := range sorted {
		fmt.Fprintln(h, body)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
