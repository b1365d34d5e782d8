package tcp

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// auth: AUTH\n, then the secret.
func (c *conn) auth(ctx context.Context, verb string) error {
	if c.state.Load() != stateInit {
		return fatal(codeInvalid, "cannot AUTH in current state")
	}
	if len(c.params) != 1 {
		return fatal(codeInvalid, "AUTH invalid number of parameters")
	}
	secret, err := c.readBody(verb)
	if err != nil {
		return err
	}
	if c.authed {
		return fatal(codeInvalid, "AUTH already set")
	}
	session, err := c.login(ctx, string(secret))
	switch {
	case errors.Is(err, guard.ErrDisabled):
		return fatal(codeAuthDisabled, "AUTH disabled")
	case errors.Is(err, guard.ErrNoAuthorizations):
		return fatal(codeUnauthorized, "AUTH no authorizations found")
	case errors.Is(err, guard.ErrTooManyFailures):
		return fatal(codeAuthFailed, "AUTH failed: too many logins of this address wait for the authorization service, try again")
	case errors.Is(err, outcome.ErrNotReady):
		return fatal(codeAuthFailed, "AUTH failed %s", err)
	case errors.Is(err, guard.ErrAuthService), errors.Is(err, context.DeadlineExceeded):
		return errNoAuthService
	case err != nil:
		return fatal(codeAuthFailed, "AUTH failed")
	}
	return c.authorized(ctx, session)
}

// errNoAuthService ends the connection of a client whose rights cannot be determined.
var errNoAuthService = fatal(codeAuthFailed, "AUTH failed: the authorization service gives no usable answer, try again")

// login returns the session of a secret. A broker may require clients to send some secret even if they have rights
// without one. Such clients send the word "anonymous" or "certificate".
func (c *conn) login(ctx context.Context, secret string) (*guard.Session, error) {
	const certificate = "certificate"
	before := c.session.Load()
	if c.h.backend.Guard.Enforced() && (secret == access.AnonymousUser || secret == certificate && before.LoggedIn()) {
		return before, nil
	}
	creds := c.credentials()
	creds.Secret = secret
	ctx, cancel := context.WithTimeout(ctx, c.h.opts.LoginTimeout)
	defer cancel()
	return c.h.backend.Guard.Login(ctx, creds)
}

func (c *conn) authorized(ctx context.Context, session *guard.Session) error {
	identity, url := session.Identity(), ""
	if state := session.External(); state != nil {
		identity, url = state.Identity, state.IdentityURL
	}
	reply, err := json.Marshal(struct {
		Identity    string `json:"identity"`
		IdentityURL string `json:"identity_url"`
		Count       int    `json:"permission_count"`
	}{identity, url, session.Permissions()})
	if err != nil {
		return fatal(codeAuthError, "AUTH error %s", err)
	}
	if session.LoggedIn() && !c.h.seat(c, session.Identity()) {
		return errTooManyOfUser
	}
	c.authed = true
	c.session.Store(session)
	c.setShare()
	if session.LoggedIn() {
		c.takeSeat()
	}
	c.describe(func(a *about) { a.Authed, a.AuthIdentity, a.AuthIdentityURL = true, identity, url })
	return c.respond(ctx, reply)
}

// begin sets the identity that the client has without a secret: at the start, and after it has presented a certificate.
func (c *conn) begin() {
	c.session.Store(c.h.backend.Guard.Begin(c.credentials()))
	c.setShare()
}

// beginAgain sets the identity of a client that connected before the users were read.
func (c *conn) beginAgain() {
	if !c.session.Load().Early() {
		return
	}
	if c.begin(); !c.session.Load().Early() {
		c.start.known = time.Now()
	}
}

func (c *conn) credentials() guard.Credentials {
	a := c.about.Load()
	r := guard.Credentials{Address: a.RemoteAddress, TLS: a.TLS}
	if certs := a.tlsState.PeerCertificates; len(certs) > 0 {
		r.CommonName, r.Verified = certs[0].Subject.CommonName, len(a.tlsState.VerifiedChains) > 0
	}
	return r
}

// authorize checks that the client may run a command. An empty channel means publishing. Before the users are read,
// nothing is allowed: the command is read to its end and answered with "not ready".
func (c *conn) authorize(ctx context.Context, verb, topic, channel string) error {
	c.unjudged, c.verb = nil, verb
	c.beginAgain()
	switch err := c.session.Load().Allow(ctx, need(topic, channel)); {
	case err == nil:
		c.in.most, c.vouched = maxInput, true
	case errors.Is(err, guard.ErrLogin):
		return fatal(codeAuthFirst, "AUTH required before %s", verb)
	case errors.Is(err, guard.ErrAuthService):
		return errNoAuthService
	case guard.IsLoss(err):
		return fatal(codeUnauthorized, "AUTH failed for %s on %q %q", verb, topic, channel)
	default:
		c.unjudged = err
	}
	return nil
}

func need(topic, channel string) guard.Need {
	if channel == "" {
		return guard.Need{Right: access.Publish, Topic: topic}
	}
	return guard.Need{Right: access.Consume, Topic: topic, Channel: channel}
}

// authorizeReserved checks a put with a header that requires the right to administer the topic (api.TakesAdminister).
// If the client's rights could not be determined, the put is refused for that reason.
func (c *conn) authorizeReserved(ctx context.Context, verb, name string) error {
	if c.unjudged != nil {
		return nil
	}
	session := c.session.Load()
	err := session.Allow(ctx, guard.Need{Right: access.Administer, Topic: c.topic})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, guard.ErrAuthService), !guard.IsLoss(err):
		return errNoAuthService
	}
	c.h.backend.Guard.Note(session.Requester(verb), name+" on topic "+c.topic, err)
	return fatal(codeUnauthorized, "AUTH failed for %s with %s on %q: it takes the right to administer the topic", verb, name, c.topic)
}

// recheckEvery is the interval of the checks when the users do not change: an answer of an auth service expires.
const recheckEvery = 5 * time.Second

type subscribed struct {
	topic, channel string
	wait           *metrics.Wait
}

// Recheck ends the subscriptions of clients that have lost their right: at once when the users change, and within
// recheckEvery of the expiry of an auth service's answer. It runs until ctx ends.
func (h *Handler) Recheck(ctx context.Context) {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		changed := h.backend.Guard.Changed()
		h.recheckAll(ctx)
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// recheckAll checks every subscription. An auth service without a usable answer ends one only when its last answer
// about the client has expired.
func (h *Handler) recheckAll(ctx context.Context) {
	for _, c := range h.snapshot() {
		of := c.consumes.Load()
		if of == nil {
			continue
		}
		if err := c.session.Load().Allow(ctx, need(of.topic, of.channel)); guard.IsLoss(err) {
			h.backend.Log.WithField("client", c.about.Load().RemoteAddress).WithField("topic", of.topic).WithField("channel", of.channel).
				Info("subscription ended: the client lost its right")
			c.revoke()
		}
	}
}

// revoke ends the connection of a client that has lost its right. Any goroutine may call it.
func (c *conn) revoke() {
	c.revoked.Store(true)
	c.ready.Store(0)
	c.interrupt()
}

// lost returns the error of a connection that revoke ended; otherwise err.
func (c *conn) lost(err error) error {
	of := c.consumes.Load()
	if !c.revoked.Load() || of == nil {
		return err
	}
	return fatal(codeUnauthorized, "AUTH failed for SUB on %q %q", of.topic, of.channel)
}
