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
	// probeEvery is how often the metadata is asked while a leader depends on it,
	// idleProbe how often else.
	probeEvery, idleProbe = 200 * time.Millisecond, time.Second
	// answerTimeout bounds one question: half of the time for which a leader serves after an
	// answer of the metadata.
	answerTimeout = 500 * time.Millisecond
)

// Contact asks the metadata store for this broker's registration, and remembers when it
// answered. Everything continues without the store until a leader is lost; a leader that does not
// reach its replicas serves only while the store names its registration.
type Contact struct {
	session *Session
	began   time.Time
	// Times since began, in ns, which no setting of the clock changes: when a leader last
	// depended on the store, when a question was asked that the store answered, and one
	// whose answer named this broker's registration.
	sought, answered, named atomic.Int64
}

// NewContact begins now: the store has answered until here.
func NewContact(s *Session) *Contact { return &Contact{session: s, began: time.Now()} }

// Named is when the store last named this broker's registration, as far as it was asked
// before now. Keep asks more often for a while.
func (c *Contact) Named(now time.Time) time.Time {
	age := now.Sub(c.began)
	c.sought.Store(int64(age))
	return now.Add(time.Duration(c.named.Load()) - age)
}

// Unheard is how long the store has not answered, 0 if for less than a registration
// lives: an election among its members takes a moment, too.
func (c *Contact) Unheard() time.Duration {
	d := time.Since(c.began) - time.Duration(c.answered.Load())
	if d < c.session.o.TTL {
		return 0
	}
	return d
}

// Keep asks, more often while a leader depends on the answer, and logs when the store
// does not answer and when it answers again. It returns when ctx ends.
func (c *Contact) Keep(ctx context.Context) {
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

// ask asks once. The time of the question counts, not that of the answer.
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
