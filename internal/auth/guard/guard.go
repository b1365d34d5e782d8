package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

var (
	// ErrLogin means that the right requires credentials, and the client gave none.
	ErrLogin = errors.New("guard: credentials are required")
	// errBadLogin means that no user has these credentials, and that the auth service denies them.
	errBadLogin = errors.New("guard: no user has these credentials")
	// ErrDenied means that the identity does not have the right.
	ErrDenied = errors.New("guard: the right is not granted")
	// ErrTooManyFailures means that too many logins of this address wait for the auth service; it was not queried.
	ErrTooManyFailures = errors.New("guard: too many logins of this address wait for the auth service")
	// ErrAuthService means that the auth service gave no usable answer: it cannot be reached, or its answer says nothing about
	// the client.
	ErrAuthService = errors.New("guard: the auth service gave no usable answer")
	// ErrUnanswered means that the last answer about a client expired longer ago than AnswerHolds.
	ErrUnanswered = errors.New("guard: the auth service has given no usable answer for too long")
	// ErrNoAuthorizations means that the auth service recognised the client and grants it nothing.
	ErrNoAuthorizations = errors.New("guard: the auth service grants nothing")
	// ErrDisabled means that there is neither a user nor an auth service.
	ErrDisabled = errors.New("guard: there are no users, and no auth service")
)

// Querier asks an auth service; *authd.Client is one.
type Querier interface {
	Query(ctx context.Context, r authd.Request) (*authd.State, error)
}

// maxSecret bounds a secret in bytes. A longer one is not even hashed.
const maxSecret = 8 << 10

// Options of a Guard.
type Options struct {
	Users    *access.Registry // nil without any
	External Querier          // nil = no auth service
	// NotReady returns the reason why the users are not read yet; nil = the reason of Users.
	NotReady func() string
	// Answered counts a put that a user's publish rate refuses; nil = none is counted.
	Answered func(err error)
	// AuditFile receives every entry of the audit; nil = no file. The caller closes it.
	AuditFile *AuditFile
	Log       logrus.FieldLogger
}

// Guard checks logins and rights for all client ports of a broker. Its methods may be called by any goroutine.
type Guard struct {
	o       Options
	turns   *turns
	answers *answers
	cookies *cookies
	rates   limits.Rates[string] // by user
	// Audit keeps the last administrative actions.
	Audit *Audit
}

// New makes a guard.
func New(o Options) *Guard {
	return &Guard{o: o, turns: newTurns(), answers: newAnswers(o.External, o.Log), cookies: newCookies(), Audit: newAudit(o.Log, o.AuditFile)}
}

// Credentials are the credentials that a client presented.
type Credentials struct {
	Address string // host:port; "" of a unix socket
	TLS     bool
	// CommonName is the name in the certificate that the client presented.
	CommonName string
	// Verified: an authority of --tls-root-ca-file signed the certificate.
	Verified bool
	Secret   string
}

func (c *Credentials) host() string {
	host, _, _ := net.SplitHostPort(c.Address) // a unix socket has none
	return host
}

func (c *Credentials) request() authd.Request {
	return authd.Request{RemoteIP: c.host(), TLS: c.TLS, CommonName: c.CommonName, Secret: c.Secret}
}

// Session is one admitted client. Its methods may be called by any goroutine.
type Session struct {
	guard *Guard
	creds Credentials
	id    access.Identity
	early bool // started before the users were read
	// signIn is the sign-in of the request's cookie; nil without a cookie.
	signIn *signedIn
	state  atomic.Pointer[authd.State] // nil unless the auth service knows the client
	answer *answer                     // nil unless the auth service knows the client; shared by all clients with its credentials
}

// Enforced reports whether rights are enforced. Before the users are read, it is true only if rights are enforced even without
// users. Allow does not use it.
func (g *Guard) Enforced() bool {
	p, _ := g.policy()
	return p != nil && p.Enforced() || g.o.External != nil || g.o.Users != nil && g.o.Users.Always()
}

// Open reports whether every client may do everything. It is false before the users are read.
func (g *Guard) Open() bool { return g.Ready() == nil && !g.Enforced() }

// Begun reports whether clients can log in, because there is an administrator, a bootstrap token or an auth service.
func (g *Guard) Begun() bool {
	p, _ := g.policy()
	return p != nil && (p.Administered() || p.User(access.BootstrapUser) != nil) || g.o.External != nil
}

// Ready is nil when the users have been read.
func (g *Guard) Ready() error {
	_, err := g.policy()
	return err
}

// policy is nil if the broker is configured without users.
func (g *Guard) policy() (*access.Policy, error) {
	if g.o.Users == nil {
		return nil, nil
	}
	if p := g.o.Users.Policy(); p != nil {
		return p, nil
	}
	why := access.ErrNotReady.Error()
	if g.o.NotReady != nil {
		why = g.o.NotReady()
	}
	return nil, fmt.Errorf("%w: %s", outcome.ErrNotReady, why)
}

// NotStored is the error of a put that was not admitted because the users are not read yet.
func NotStored(err error) error {
	if !errors.Is(err, outcome.ErrNotReady) {
		return err
	}
	return fmt.Errorf("%w, not stored: %s", outcome.ErrNotReady, strings.TrimPrefix(err.Error(), outcome.ErrNotReady.Error()+": "))
}

// Changed is closed when rights may have changed. It is nil without users.
func (g *Guard) Changed() <-chan struct{} {
	if g.o.Users == nil {
		return nil
	}
	return g.o.Users.Changed()
}

// Begin returns the session of a client that has sent no secret: anonymous, or the user that its verified certificate names.
func (g *Guard) Begin(c Credentials) *Session {
	s := &Session{guard: g, creds: c}
	p, err := g.policy()
	if s.early = err != nil; p != nil && c.Verified {
		s.id = p.ByCertificate(c.CommonName)
	}
	return s
}

// Early reports whether the session began before the users were read: the client is then anonymous, even with a certificate.
func (s *Session) Early() bool { return s.early }

// Login returns the session of a client that has sent a secret. A user's token is verified at once. Any other secret may wait for
// a query to the auth service. Errors wrap errBadLogin, ErrTooManyFailures, ErrAuthService, ErrDisabled or ErrNoAuthorizations,
// or are that of Ready or of ctx.
func (g *Guard) Login(ctx context.Context, c Credentials) (*Session, error) {
	p, err := g.policy()
	switch {
	case err != nil:
		return nil, err
	case g.o.External == nil && (p == nil || !p.Enforced()):
		return nil, ErrDisabled
	}
	if len(c.Secret) > maxSecret {
		return nil, errBadLogin
	}
	s := &Session{guard: g, creds: c}
	if p != nil {
		id, err := g.o.Users.Verify(c.Secret)
		if err == nil {
			s.id, s.creds.Secret = id, "" // only an auth service needs the secret again
			return s, nil
		}
		if !errors.Is(err, access.ErrBadToken) {
			return nil, err
		}
	}
	if g.o.External == nil {
		return nil, errBadLogin
	}
	if err := s.introduce(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// introduce queries the auth service about a client that logs in. A client with a cached answer does not queue (turns),
// even if the answer has expired and is queried again.
func (s *Session) introduce(ctx context.Context) error {
	g, r := s.guard, s.creds.request()
	if s.answer = g.answers.find(r); s.answer == nil {
		done, err := g.turns.take(ctx, s.creds.host())
		if err != nil {
			return err
		}
		s.answer, err = g.answers.ask(ctx, r)
		done(err != nil && (denial(err) || errors.Is(err, authd.ErrInvalidAnswer)))
		if err != nil {
			return err
		}
	}
	_, err := s.ask(ctx)
	return err
}

// ask returns the current answer of the auth service about the client; see answers.current.
func (s *Session) ask(ctx context.Context) (*authd.State, error) {
	state, err := s.guard.answers.current(ctx, s.answer, s.creds.request())
	if err == nil {
		s.state.Store(state)
	}
	return state, err
}

// Unanswered is how long the auth service has given no usable answer; 0: it answers, or none is configured.
func (g *Guard) Unanswered() time.Duration { return g.answers.unanswered(time.Now()) }

// External is the auth service's answer about the client, nil without a query.
func (s *Session) External() *authd.State { return s.state.Load() }

// Identity is the name of the client in the audit and in /stats.
func (s *Session) Identity() string {
	if state := s.state.Load(); state != nil {
		return "auth-service:" + state.Identity
	}
	return s.id.String()
}

// LoggedIn reports whether the client has shown credentials.
func (s *Session) LoggedIn() bool { return s.state.Load() != nil || s.id.Kind == access.Named }

// Permissions is the number of grants of the client.
func (s *Session) Permissions() int {
	if state := s.state.Load(); state != nil {
		return len(state.Authorizations)
	}
	if p, err := s.guard.policy(); err == nil && p != nil {
		return p.Permissions(s.id)
	}
	return 0
}

// Need is a right together with the object for which it is required.
type Need struct {
	Right access.Right
	Topic string
	// Channel is the channel that the auth service must allow for Consume.
	Channel string
}

// user is the user of the cluster whose quota counts for the client, "" if rights are not enforced, or if the client
// was authorized by an auth service.
func (s *Session) user() (string, access.Quota) {
	p, err := s.guard.policy()
	if err != nil || p == nil || !p.Enforced() || s.state.Load() != nil {
		return "", access.Quota{}
	}
	return s.id.String(), p.Quota(s.id)
}

// Requester describes the client for quotas and the audit.
func (s *Session) Requester(action string) api.Requester {
	name, quota := s.user()
	return api.Requester{
		User: name, Identity: s.Identity(), Remote: s.creds.Address, Action: action,
		Topics: quota.Topics, Partitions: quota.Partitions, Channels: quota.Channels,
	}
}

// AllowPut is nil if the publish rate of the client's user admits a put now, otherwise ErrRateLimited. It is called
// once for each put. Without a rate it neither locks nor allocates.
func (s *Session) AllowPut(messages, bytes int) error {
	name, quota := s.user()
	if s.guard.rates.Allow(name, limits.Rate{Messages: quota.PutRate, Bytes: quota.PutBytesRate}, messages, bytes) {
		return nil
	}
	if s.guard.o.Answered != nil {
		s.guard.o.Answered(outcome.ErrRateLimited)
	}
	return outcome.ErrRateLimited
}

// Allow is nil if the client may do this now. Errors are ErrLogin, ErrDenied, ErrAuthService, or the error of Ready. It
// queries the auth service when its answer has expired; otherwise it neither waits nor allocates. Only a denial of the
// service takes rights away: without a usable answer the last one stays valid for AnswerHolds; after that the error
// wraps ErrUnanswered.
func (s *Session) Allow(ctx context.Context, n Need) error {
	p, err := s.guard.policy()
	switch {
	case err != nil:
		return err
	case n.Right == access.Open, s.guard.o.External == nil && (p == nil || !p.Enforced()):
		return nil
	case s.signIn.ended():
		return ErrLogin
	case p != nil && p.Enforced() && p.Allow(s.id, n.Right, n.Topic):
		return nil
	}
	state := s.state.Load()
	if state == nil {
		if s.id.Kind == access.Named {
			return ErrDenied
		}
		return ErrLogin
	}
	if state.Expired(time.Now()) {
		if state, err = s.ask(ctx); err != nil {
			return err
		}
	}
	if !external(state, n) {
		return ErrDenied
	}
	return nil
}

// external reports whether the auth service's answer satisfies a need.
func external(state *authd.State, n Need) bool {
	switch n.Right {
	case access.Publish:
		return state.Allows(n.Topic, "")
	case access.Consume:
		return n.Channel != "" && state.Allows(n.Topic, n.Channel)
	case access.Discover:
		return state.Knows(n.Topic)
	}
	return false
}

// recheckEvery is the time between the checks of While if the users do not change. They are necessary because an auth
// service's answer expires.
const recheckEvery = 5 * time.Second

// IsLoss reports whether an error of Allow says that the client does not have the right. Other errors mean that this is
// unknown.
func IsLoss(err error) bool {
	return errors.Is(err, ErrLogin) || errors.Is(err, ErrDenied) || denial(err) || errors.Is(err, ErrUnanswered)
}

// While returns a context that ends when the client loses the right: at once when the users change or its browser signs
// out, and within recheckEvery of the expiry of an auth service's answer. Its cause is the error of Allow. With a nil
// session the context ends only with ctx. The caller must call end.
func (s *Session) While(ctx context.Context, n Need) (_ context.Context, end func()) {
	if s == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(recheckEvery)
		defer tick.Stop()
		dropped := s.signIn.dropped()
		for {
			changed := s.guard.Changed()
			if err := s.Allow(ctx, n); IsLoss(err) {
				cancel(err)
				return
			}
			select {
			case <-changed:
			case <-dropped:
				dropped = nil // only once: without users it is not a loss
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Lost replaces the error of an operation that ended because its client lost the right: ctx is the context from While.
func Lost(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && IsLoss(cause) {
		return cause
	}
	return err
}
