package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// repeatEvery is how often the log repeats the reason for a wait.
	repeatEvery = 30 * time.Second
	// usualWait is how long brokers that start together wait for each other.
	usualWait = time.Second
	// maxReasons bounds the stored reasons.
	maxReasons = 100
)

// standby replaces a broker that reads its disk, or waits for its metadata or for other members. Commands and requests
// of clients wait in it, as puts do, for at most hold; then they are answered definitely, with the reason. Probes do
// not wait. From serve on it passes all requests to the broker, also those of earlier connections. It owns the reason,
// and logs it when it changes.
type standby struct {
	log     logrus.FieldLogger
	metrics *metrics.Recorder
	hold    time.Duration // --put-hold
	began   time.Time
	broker  atomic.Pointer[backends] // nil until the broker serves
	over    chan struct{}            // closed when no request has to wait: the broker serves, or ends
	once    sync.Once                // closes over
	mu      struct {
		sync.Mutex
		why    string
		logged map[string]time.Time // time of the last log line of each reason
	}
}

type backends struct {
	publisher   api.Publisher
	subscribers api.Subscribers
	api, lookup http.Handler
}

var (
	_ api.Publisher   = (*standby)(nil)
	_ api.Subscribers = (*standby)(nil)
)

func newStandby(log logrus.FieldLogger, m *metrics.Recorder, hold time.Duration) *standby {
	s := &standby{log: log, metrics: m, hold: hold, began: time.Now(), over: make(chan struct{})}
	s.mu.logged = map[string]time.Time{}
	return s
}

func (s *standby) serve(b backends) {
	s.broker.Store(&b)
	s.end()
}

// end ends all waits: a process that stops no longer serves.
func (s *standby) end() { s.once.Do(func() { close(s.over) }) }

// await is where every command and request of a client waits for the broker to start. It returns when the broker
// serves, or hold after the request arrived at the latest, and reports whether the broker serves. The caller has not
// read the body of the request, so a waiting request takes no memory beyond its connection's.
func (s *standby) await(ctx context.Context, arrived time.Time) bool {
	if s.broker.Load() != nil {
		return true
	}
	limit := time.NewTimer(time.Until(arrived.Add(s.hold)))
	defer limit.Stop()
	select {
	case <-s.over:
	case <-limit.C:
	case <-ctx.Done():
	}
	return s.broker.Load() != nil
}

// step records a step of the start that usually takes no time.
func (s *standby) step(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.why = redact.Text(what)
}

// say records the reason of the wait. It logs the reason when it changes, and every repeatEvery.
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
		s.log.WithField("reason", why).Warn("not ready")
	}
}

// sayIfLong is say for a wait that occurs briefly at every start: the reason is logged only if the wait is long.
func (s *standby) sayIfLong(why string) {
	if time.Since(s.began) < usualWait {
		s.step(why)
		return
	}
	s.say(why)
}

func (s *standby) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.why
}

func (s *standby) Admit(ctx context.Context, topic string, bytes int) error {
	if b := s.broker.Load(); b != nil {
		return b.publisher.Admit(ctx, topic, bytes)
	}
	s.metrics.Answered(outcome.ErrNotReady)
	return s.refused()
}

func (s *standby) Publish(topic string, partition int, key []byte, d queue.Draft, a api.Answerer) {
	if b := s.broker.Load(); b != nil {
		b.publisher.Publish(topic, partition, key, d, a)
		return
	}
	a.Answer(api.PutResult{Err: s.refused()}) // the put was never admitted
}

func (s *standby) refused() error {
	return fmt.Errorf("%w, not stored: %s", outcome.ErrNotReady, s.why())
}

func (s *standby) Subscribe(ctx context.Context, r api.SubscribeRequest) (api.Subscription, error) {
	if b := s.broker.Load(); b != nil {
		return b.subscribers.Subscribe(ctx, r)
	}
	return nil, fmt.Errorf("%w: %s", outcome.ErrNotReady, s.why())
}

// port returns the handler of an HTTP port: probes are answered at once. of selects the handler from the broker's
// backends.
func (s *standby) port(of func(*backends) http.Handler) http.Handler {
	waiting := httpapi.NotReady(s.why)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.broker.Load() == nil && (api.IsProbe(r.URL.Path) || !s.await(r.Context(), time.Now())) {
			waiting.ServeHTTP(w, r)
			return
		}
		of(s.broker.Load()).ServeHTTP(w, r)
	})
}
