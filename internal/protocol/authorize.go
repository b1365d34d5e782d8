package protocol

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/lockstepmq/lockstep/internal/auth"
)

// auth: AUTH\n, then the secret.
func (c *conn) auth(ctx context.Context) error {
	if c.state.Load() != stateInit {
		return fatal(codeInvalid, "cannot AUTH in current state")
	}
	if len(c.params) != 1 {
		return fatal(codeInvalid, "AUTH invalid number of parameters")
	}
	secret, err := c.readBody("AUTH")
	if err != nil {
		return err
	}
	if c.authState != nil {
		return fatal(codeInvalid, "AUTH already set")
	}
	if c.h.backend.Auth == nil {
		return fatal(codeAuthDisabled, "AUTH disabled")
	}
	state, err := c.h.backend.Auth.Query(ctx, c.authRequest(string(secret)))
	if err != nil {
		c.h.backend.Log.WithError(err).WithField("client", c.about.Load().remote).Warn("authorization query failed")
		return fatal(codeAuthFailed, "AUTH failed")
	}
	if len(state.Authorizations) == 0 {
		return fatal(codeUnauthorized, "AUTH no authorizations found")
	}
	return c.authorized(ctx, state, string(secret))
}

func (c *conn) authorized(ctx context.Context, state *auth.State, secret string) error {
	reply, err := json.Marshal(struct {
		Identity    string `json:"identity"`
		IdentityURL string `json:"identity_url"`
		Count       int    `json:"permission_count"`
	}{state.Identity, state.IdentityURL, len(state.Authorizations)})
	if err != nil {
		return fatal(codeAuthError, "AUTH error %s", err)
	}
	c.authState, c.secret = state, secret
	c.describe(func(a *about) { a.auth = state })
	return c.respond(ctx, reply)
}

// authRequest describes the client to the auth service.
func (c *conn) authRequest(secret string) auth.Request {
	a := c.about.Load()
	r := auth.Request{TLS: a.tls, Secret: secret}
	r.RemoteIP, _, _ = net.SplitHostPort(a.remote) // a unix socket has none
	if certs := a.tlsState.PeerCertificates; len(certs) > 0 {
		r.CommonName = certs[0].Subject.CommonName
	}
	return r
}

// authorize checks a command against what the client may do, asking the auth
// service again when its answer is too old. channel "" means publishing.
func (c *conn) authorize(ctx context.Context, verb, topic, channel string) error {
	if c.h.backend.Auth == nil {
		return nil
	}
	if c.authState == nil {
		return fatal(codeAuthFirst, "AUTH required before %s", verb)
	}
	if c.authState.Expired(time.Now()) {
		state, err := c.h.backend.Auth.Query(ctx, c.authRequest(c.secret))
		if err != nil {
			c.h.backend.Log.WithError(err).WithField("client", c.about.Load().remote).Warn("authorization query failed")
			return fatal(codeAuthFailed, "AUTH failed")
		}
		c.authState = state
		c.describe(func(a *about) { a.auth = state })
	}
	if !c.authState.Allows(topic, channel) {
		return fatal(codeUnauthorized, "AUTH failed for %s on %q %q", verb, topic, channel)
	}
	return nil
}

// authorizePut checks PUB and DPUB. Their body comes before the check, so that
// a short body is reported first, as in stock NSQ.
func (c *conn) authorizePut(ctx context.Context, verb string, size int) error {
	err := c.authorize(ctx, verb, c.topic, "")
	if err == nil {
		return nil
	}
	if c.in.skip(int64(size)) != nil {
		return fatal(codeBadMessage, "%s failed to read message body", verb)
	}
	return err
}
