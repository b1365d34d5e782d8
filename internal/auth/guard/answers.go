package guard

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/auth/authd"
)

const (
	// maxAnswers bounds the number of cached answers of the auth service.
	maxAnswers = 4096
	// AnswerHolds is how long the last answer about a client stays valid after its expiry, while the auth service gives
	// no usable answer. Only a denial ends it earlier.
	AnswerHolds = time.Hour
	// firstRetry is the time between a query without a usable answer and the next query about the same client. It
	// doubles, up to longestRetry.
	firstRetry, longestRetry = 5 * time.Second, time.Minute
	// denialHolds is how long after a denial the client is not queried again.
	denialHolds = 5 * time.Second
	// askTime bounds a query. retryTime bounds a query that follows one without a usable answer, while the last answer
	// is still valid, because a put waits for it.
	askTime, retryTime = 10 * time.Second, time.Second
	// troubleTime is how long after such a query no other client with a valid last answer is queried.
	troubleTime = time.Second
	// outageEnds is how long after the last query without a usable answer the outage counts as over, because there are no
	// queries.
	outageEnds = 5 * time.Minute
	// outageLine is the least time between two log lines about an outage.
	outageLine = 10 * time.Second
)

// answers has the last answers of the auth service. All connections and requests with the same credentials share one, so that
// they cost one query in its lifetime.
type answers struct {
	log      logrus.FieldLogger
	external Querier
	key      [sha256.Size]byte
	mu       sync.Mutex // taken alone, or after the lock of an answer
	of       map[[sha256.Size]byte]*answer
	outage   struct {
		since, last, logged time.Time // since: time of the first query without a usable answer after the last usable one
		trouble             time.Time // until then the auth service is not queried about clients whose answers are still valid
	}
}

// answer is the auth service's last answer about a client that it knew.
type answer struct {
	mu     sync.Mutex
	state  *authd.State  // the last good one
	denied error         // the denial of the client after that answer; nil: none
	next   time.Time     // the service is not queried before this time
	pause  time.Duration // pause until the next query; 0: the last query had a usable answer
	asking chan struct{} // closed at the end of the current query, or nil
}

func newAnswers(external Querier, log logrus.FieldLogger) *answers {
	a := &answers{external: external, log: log, of: map[[sha256.Size]byte]*answer{}}
	_, _ = rand.Read(a.key[:]) // never fails
	return a
}

// sum identifies a request without storing its secret.
func (a *answers) sum(r authd.Request) (sum [sha256.Size]byte) {
	m := hmac.New(sha256.New, a.key[:])
	_, _ = fmt.Fprintf(m, "%q %t %q %q", r.RemoteIP, r.TLS, r.CommonName, r.Secret) // a hash takes everything
	m.Sum(sum[:0])
	return sum
}

// find returns the answer about a client, nil if the auth service has not known it, or has denied it since.
func (a *answers) find(r authd.Request) *answer {
	sum := a.sum(r)
	a.mu.Lock()
	known := a.of[sum]
	a.mu.Unlock()
	if known == nil {
		return nil
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.denied != nil {
		return nil
	}
	return known
}

// ask queries the auth service about a client that is not known. Errors are those of query.
func (a *answers) ask(ctx context.Context, r authd.Request) (*answer, error) {
	if known := a.find(r); known != nil { // another login with the same credentials came first
		return known, nil
	}
	state, err := a.query(ctx, r)
	a.note(ctx, err)
	if err != nil {
		return nil, err
	}
	known := a.keep(r)
	known.mu.Lock()
	defer known.mu.Unlock()
	known.state, known.denied, known.pause, known.next = state, nil, 0, time.Time{}
	return known, nil
}

func (a *answers) keep(r authd.Request) *answer {
	sum := a.sum(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.of[sum]
	if known == nil {
		if len(a.of) >= maxAnswers {
			clear(a.of)
		}
		// A login that finds the answer before its state is set treats it as denied.
		known = &answer{denied: errBadLogin}
		a.of[sum] = known
	}
	return known
}

// query asks the auth service. Errors wrap errBadLogin or ErrNoAuthorizations, which are denials, or ErrAuthService.
func (a *answers) query(ctx context.Context, r authd.Request) (*authd.State, error) {
	state, err := a.external.Query(ctx, r)
	switch {
	case errors.Is(err, authd.ErrDenied):
		err = fmt.Errorf("%w: %w", errBadLogin, err)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrAuthService, err)
	case len(state.Authorizations) == 0:
		err = ErrNoAuthorizations
	}
	return state, err
}

func denial(err error) bool {
	return errors.Is(err, errBadLogin) || errors.Is(err, ErrNoAuthorizations)
}

// note records the state of the auth service after a query, and logs changes. A query that its client abandoned says nothing about it.
func (a *answers) note(ctx context.Context, err error) {
	usable := err == nil || denial(err)
	if !usable && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	now, o := time.Now(), &a.outage
	a.mu.Lock()
	began, due := o.since, now.Sub(o.logged) >= outageLine
	switch {
	case usable:
		o.since = time.Time{}
	case began.IsZero():
		o.since = now
	}
	if !usable {
		if o.last = now; due {
			o.logged = now
		}
	}
	a.mu.Unlock()
	switch {
	case usable && due && !began.IsZero():
		a.log.WithField("for", now.Sub(began).Round(time.Second)).Info("the authorization service answers again")
	case !usable && due:
		a.log.WithError(err).Warnf("authorization query failed, refusing new clients; known clients keep their rights until %s after their last answer expires", AnswerHolds)
	}
}

// unanswered is how long the auth service has given no usable answer; 0: it answers, or there were no queries.
func (a *answers) unanswered(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := &a.outage; !o.since.IsZero() && now.Sub(o.last) < outageEnds {
		return max(now.Sub(o.since), time.Nanosecond)
	}
	return 0
}

func (a *answers) inTrouble(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.outage.trouble)
}

// current is the current answer about a client: the last answer while it is valid, otherwise the answer to a new query.
// If there is no usable new answer, the last one stays valid for AnswerHolds. Errors wrap errBadLogin,
// ErrNoAuthorizations, ErrUnanswered and ErrAuthService together, or are that of ctx.
func (a *answers) current(ctx context.Context, of *answer, r authd.Request) (*authd.State, error) {
	for {
		now, trouble := time.Now(), a.inTrouble(time.Now())
		of.mu.Lock()
		state, denied, asking := of.state, of.denied, of.asking
		holds := denied == nil && state.ExpiredFor(now) < AnswerHolds
		switch {
		case denied == nil && !state.Expired(now), holds && (now.Before(of.next) || trouble || of.pause > 0 && asking != nil):
			of.mu.Unlock()
			return state, nil
		case now.Before(of.next):
			of.mu.Unlock()
			denied = cmp.Or(denied, errUnanswered)
			return nil, denied
		case asking != nil:
			of.mu.Unlock()
			select {
			case <-asking:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		of.asking = make(chan struct{})
		limit := askTime
		if holds && of.pause > 0 {
			limit = retryTime
		}
		of.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, limit)
		next, err := a.query(limited, r)
		cancel()
		a.note(ctx, err)
		return a.settle(ctx, of, next, err)
	}
}

var errUnanswered = fmt.Errorf("%w: %w", ErrUnanswered, ErrAuthService)

func (a *answers) settle(ctx context.Context, of *answer, next *authd.State, err error) (*authd.State, error) {
	now := time.Now()
	of.mu.Lock()
	defer of.mu.Unlock()
	close(of.asking)
	of.asking = nil
	switch {
	case err == nil:
		of.state, of.denied, of.pause, of.next = next, nil, 0, time.Time{}
		return next, nil
	case denial(err):
		of.denied, of.pause, of.next = err, 0, now.Add(denialHolds)
		return nil, err
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, err
	}
	of.pause = min(max(2*of.pause, firstRetry), longestRetry)
	of.next = now.Add(of.pause)
	a.mu.Lock()
	a.outage.trouble = now.Add(troubleTime)
	a.mu.Unlock()
	switch {
	case of.denied != nil:
		return nil, of.denied
	case of.state.ExpiredFor(now) < AnswerHolds:
		return of.state, nil
	}
	return nil, fmt.Errorf("%w: %w", ErrUnanswered, err)
}
