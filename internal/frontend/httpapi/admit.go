package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

const loginTimeout = 10 * time.Second

// admit finds the client of a request, and checks its rights. The session is nil if the login failed.
func (a *endpoints) admit(q *request) (*guard.Session, error) {
	r := q.Request
	if q.route.first && a.mayBegin(r) { // also if an auth service would otherwise be queried about any secret
		return a.b.Guard.Begin(credentialsOf(r)), nil
	}
	s, err := a.session(r)
	if err != nil {
		return nil, err
	}
	if a.b.Guard.Open() {
		api.SeatOf(r.Context())(true)
	}
	for _, need := range q.route.needs(q.values) {
		if err := s.Allow(r.Context(), need); err != nil {
			if q.route.first && errors.Is(err, guard.ErrLogin) && a.b.Users.FirstFile() != "" && !a.administered() {
				return s, a.needsFirst()
			}
			return s, err
		}
	}
	if !api.SeatOf(r.Context())(s.LoggedIn()) {
		return s, errTooManyStrangers
	}
	return s, nil
}

// errTooManyStrangers refuses a request that requires no login, because too many connections have not logged in.
var errTooManyStrangers error = &failure{status: http.StatusServiceUnavailable, message: "TOO_MANY_CONNECTIONS", retryAfter: true}

// session logs the client of a request in: by its secret, else by the cookie of its browser, else by its certificate.
// While rights are not enforced, secrets are ignored: clients may have one before the first user is created.
func (a *endpoints) session(r *http.Request) (s *guard.Session, err error) {
	c := credentialsOf(r)
	if c.Secret = bearer(r); c.Secret != "" && a.b.Guard.Enforced() {
		ctx, cancel := context.WithTimeout(r.Context(), loginTimeout)
		defer cancel()
		s, err = a.b.Guard.Login(ctx, c)
	} else if s, _, err = a.byCookie(r); err != nil {
		c.Secret = ""
		s, err = a.b.Guard.Begin(c), nil
	}
	if err == nil && s.LoggedIn() {
		api.SeatOf(r.Context())(true)
	}
	return s, err
}

func credentialsOf(r *http.Request) guard.Credentials {
	c := guard.Credentials{Address: r.RemoteAddr, TLS: r.TLS != nil}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		c.CommonName, c.Verified = r.TLS.PeerCertificates[0].Subject.CommonName, len(r.TLS.VerifiedChains) > 0
	}
	return c
}

// bearer returns the secret in Authorization: Bearer SECRET; "": none was sent.
func bearer(r *http.Request) string {
	kind, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// deny writes the response to an unauthorized request, or to one that cannot be authorized yet.
func (a *endpoints) deny(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, outcome.ErrNotReady) || errors.Is(err, context.DeadlineExceeded) {
		err = guard.ErrAuthService
	}
	a.refuse(w, r, err)
}

// note writes the audit entry of one request, with its arguments in the order of the route, required ones first. Bodies
// and headers are left out: they may be secrets or messages.
func (a *endpoints) note(q *request, s *guard.Session, w *boundedWriter, refused error) {
	var required, others []string
	for _, x := range q.route.Arguments {
		if x.Required {
			required = append(required, x.Name)
		} else {
			others = append(others, x.Name)
		}
	}
	status := cmp.Or(w.status, http.StatusOK)
	e := guard.Entry{
		Time: time.Now(), Remote: q.RemoteAddr, Action: q.Method + " " + q.URL.Path, Status: status,
		Identity: "unknown", Result: guard.ResultOK,
		Detail: guard.Query(q.URL.RawQuery, append(required, others...)),
	}
	if s != nil {
		e.Identity = s.Identity()
	}
	switch {
	case refused != nil:
		e.Result = guard.ResultRefused
	case status >= http.StatusBadRequest:
		e.Result = guard.ResultFailed
	}
	a.b.Guard.Audit.Note(e)
}
