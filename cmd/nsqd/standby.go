package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/httpapi"
	"github.com/lockstepmq/lockstep/internal/metrics"
	"github.com/lockstepmq/lockstep/internal/redact"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// repeatEvery is how often the log repeats the reason of a wait.
	repeatEvery = 30 * time.Second
	// usualWait is how long brokers that start together wait for each other.
	usualWait = time.Second
	// maxReasons bounds the stored reasons.
	maxReasons = 100
)

// standby answers clients in place of a broker that waits for its metadata or for other
// members: at once, definitely, and with the reason. From serve on it passes all requests to
// the broker, also those of earlier connections. It owns the reason, and logs it when it
// changes.
type standby struct {
	log     logrus.FieldLogger
	metrics *metrics.Recorder
	began   time.Time
	broker  atomic.Pointer[backends] // nil until the broker serves
	mu      struct {
		sync.Mutex
		why    string
		logged map[string]time.Time // time of the last log line of each reason
	}
}

// backends are the parts of a serving broker.
type backends struct {
	publisher   edge.Publisher
	subscribers edge.Subscribers
	api, lookup http.Handler
}

var (
	_ edge.Publisher   = (*standby)(nil)
	_ edge.Subscribers = (*standby)(nil)
)

func newStandby(log logrus.FieldLogger, m *metrics.Recorder) *standby {
	s := &standby{log: log, metrics: m, began: time.Now()}
	s.mu.logged = map[string]time.Time{}
	return s
}

// serve switches to the broker.
func (s *standby) serve(b backends) { s.broker.Store(&b) }

// step records a step of the start that usually takes no time.
func (s *standby) step(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.why = redact.Text(what)
}

// say records the reason of the wait. It logs the reason when it changes, and every
// repeatEvery.
func (s *standby) say(why string) {
	why = redact.Text(why)
	s.mu.Lock()
	s.mu.why = why
	now := time.Now()
	before, known := s.mu.logged[why]
	again := known && now.Sub(before) < repeatEvery
	if !again {
		if len(s.mu.logged) >= maxReasons {
			clear(s.mu.logged)
		}
		s.mu.logged[why] = now
	}
	s.mu.Unlock()
	if !again {
		s.log.Warn("NOT READY: " + why)
	}
}

// sayIfLong is say for a wait that every start has for a moment: only a longer one is logged.
func (s *standby) sayIfLong(why string) {
	if time.Since(s.began) < usualWait {
		s.step(why)
		return
	}
	s.say(why)
}

// why returns the reason for clients.
func (s *standby) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.why
}

// Admit implements edge.Publisher.
func (s *standby) Admit(ctx context.Context, topic string, bytes int) error {
	if b := s.broker.Load(); b != nil {
		return b.publisher.Admit(ctx, topic, bytes)
	}
	s.metrics.Answered(edge.ErrNotReady)
	return s.refused()
}

// Publish implements edge.Publisher.
func (s *standby) Publish(topic string, key []byte, d queue.Draft, a edge.Answerer) {
	if b := s.broker.Load(); b != nil {
		b.publisher.Publish(topic, key, d, a)
		return
	}
	a.Answer(edge.PutResult{Err: s.refused()}) // the put was never admitted
}

// PublishAt implements edge.Publisher.
func (s *standby) PublishAt(topic string, partition int, d queue.Draft, a edge.Answerer) {
	if b := s.broker.Load(); b != nil {
		b.publisher.PublishAt(topic, partition, d, a)
		return
	}
	a.Answer(edge.PutResult{Err: s.refused()}) // the put was never admitted
}

func (s *standby) refused() error { return fmt.Errorf("%w, not stored: %s", edge.ErrNotReady, s.why()) }

// Subscribe implements edge.Subscribers.
func (s *standby) Subscribe(ctx context.Context, r edge.SubscribeRequest) (edge.Subscription, error) {
	if b := s.broker.Load(); b != nil {
		return b.subscribers.Subscribe(ctx, r)
	}
	return nil, fmt.Errorf("%w: %s", edge.ErrNotReady, s.why())
}

// port returns the handler of an HTTP port; of selects it in the broker's backends.
func (s *standby) port(of func(*backends) http.Handler) http.Handler {
	waiting := httpapi.NotReady(s.why)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b := s.broker.Load(); b != nil {
			of(b).ServeHTTP(w, r)
			return
		}
		waiting.ServeHTTP(w, r)
	})
}
