package session

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// probeEvery is the pause between two requests while a leader depends on the metadata, idleProbe otherwise.
	probeEvery, idleProbe = 200 * time.Millisecond, time.Second
	// answerTimeout bounds one request: half of the time for which a leader may serve after an answer of the metadata.
	answerTimeout = 500 * time.Millisecond
)

// Contact reads this broker's registration regularly, and remembers when the metadata store answered. Without the store
// everything continues until a leader is lost. But a leader that does not reach its replicas serves only while the
// store confirms its registration.
type Contact struct {
	session *Session
	began   time.Time
	// Monotonic times since began, in ns: when a leader last depended on the store, when the last request that the store
	// answered was sent, and the last one that returned this broker's registration.
	sought, answered, named atomic.Int64
}

// NewContact starts measuring now, as if the store had just answered.
func NewContact(s *Session) *Contact { return &Contact{session: s, began: time.Now()} }

// Named is when the last request before now was sent to which the store returned this broker's registration. It makes
// Run query more often for a while.
func (c *Contact) Named(now time.Time) time.Time {
	age := now.Sub(c.began)
	c.sought.Store(int64(age))
	return now.Add(time.Duration(c.named.Load()) - age)
}

// Unheard is how long the store has not answered; 0 if that is less than the TTL of a registration, because an election
// among its members takes a moment.
func (c *Contact) Unheard() time.Duration {
	d := time.Since(c.began) - time.Duration(c.answered.Load())
	if d < c.session.o.TTL {
		return 0
	}
	return d
}

// Run queries the store regularly, and logs when the store stops answering and when it answers again. It returns when
// ctx ends.
func (c *Contact) Run(ctx context.Context) {
	var last time.Duration
	var logged bool
	log := c.session.o.Log
	concurrency.Every(ctx, probeEvery, func() {
		now := time.Since(c.began)
		if int64(now)-c.sought.Load() > 2*probeEvery.Nanoseconds() && now-last < idleProbe {
			return
		}
		last = now
		err := c.ask(ctx, now)
		switch silent := c.Unheard() > 0; {
		case silent && !logged:
			log.WithError(err).Warn("cannot reach the metadata: no leader is replaced, and nothing can be created or changed")
			logged = true
		case logged && !silent:
			log.Info("metadata is reachable again")
			logged = false
		}
	})
}

// ask queries once. now is when the request was sent, because the answer may be that old.
func (c *Contact) ask(ctx context.Context, now time.Duration) error {
	s := c.session
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	e, err := s.o.Store.Get(ctx, s.o.Keys.Live(s.node.Name))
	if err == nil || errors.Is(err, metadata.ErrNotFound) {
		c.answered.Store(int64(now))
	}
	if err == nil && ident.Incarnation(e.Create) == s.Newest() {
		c.named.Store(int64(now))
	}
	return err
}
