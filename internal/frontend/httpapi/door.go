package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// loginTimeout bounds what a request waits for its secret to be judged.
const loginTimeout = 10 * time.Second

// door is a router whose routes all have a right. The router inside is not reachable, so
// that no route passes by.
type door struct {
	api    *endpoints
	inner  *httprouter.Router
	rules  map[string]Rule
	served map[string]bool
}

func (a *endpoints) door(rules []Rule) *door {
	d := &door{api: a, inner: a.router(), rules: map[string]Rule{}, served: map[string]bool{}}
	for _, rule := range rules {
		d.rules[rule.Method+" "+rule.Path] = rule
	}
	return d
}

// HandlerFunc adds a route. It panics if the route has no rule or no description.
func (d *door) HandlerFunc(method, path string, h http.HandlerFunc) { d.Handler(method, path, h) }

// Handler adds a route. It panics if the route has no rule or no description.
func (d *door) Handler(method, path string, h http.Handler) {
	rule, ok := d.rules[method+" "+path]
	if !ok {
		panic("httpapi: " + method + " " + path + " has no right: add a rule to rights.go")
	}
	route, ok := DescriptionOf(method, path)
	if !ok {
		panic("httpapi: " + method + " " + path + " is not described: add its arguments to routes.go")
	}
	d.served[method+" "+path] = true
	d.inner.Handler(method, path, d.api.guarded(rule, d.api.bounded(d.api.takes(route, h))))
}

// profiles adds Go's profiles; index is the path of their list.
func (d *door) profiles(index string) {
	for route, h := range Handlers(index) {
		method, path, _ := strings.Cut(route, " ")
		d.Handler(method, path, h)
	}
}

// ServeHTTP keeps foreign pages out before a route is looked for. HEAD of a probe is its GET
// without the body, which the server leaves out; HEAD of /ping is refused, as by NSQ.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if b := d.api.b.Browsers; b != nil {
		if code := b.Refusal(r); code != "" {
			d.api.refuse(w, r, fail(http.StatusForbidden, code))
			return
		}
	}
	if r.Method == http.MethodHead && api.IsProbe(r.URL.Path) && r.URL.Path != "/ping" {
		get := *r
		get.Method = http.MethodGet
		r = &get
	}
	d.inner.ServeHTTP(w, r)
}

type identityKey struct{}

// identityOf is the client of a request that a door let in.
func identityOf(r *http.Request) *guard.Session {
	s, _ := r.Context().Value(identityKey{}).(*guard.Session)
	return s
}

// guarded serves a route to those who have its rights, and notes what is audited.
func (a *endpoints) guarded(rule Rule, h http.Handler) http.Handler {
	if a.b.Guard == nil || rule.Right == access.Open {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := a.admit(r, rule)
		if s != nil {
			ctx := api.WithRequester(r.Context(), func() api.Requester {
				who := s.Requester(r.Method + " " + r.URL.Path)
				who.Audited = rule.Audited
				return who
			})
			r = r.WithContext(context.WithValue(ctx, identityKey{}, s))
		}
		if !rule.Audited {
			if err != nil {
				a.deny(w, r, err)
				return
			}
			h.ServeHTTP(w, r)
			return
		}
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		if err != nil {
			a.deny(seen, r, err)
		} else {
			h.ServeHTTP(seen, r)
		}
		a.note(r, s, seen.status, err)
	})
}

// admit finds the client of a request, and asks for the rights of the route. The session
// is nil if the login failed.
func (a *endpoints) admit(r *http.Request, rule Rule) (*guard.Session, error) {
	if rule.first && a.mayBegin(r) { // also where any secret would be asked of an auth service
		return a.b.Guard.Begin(credentialsOf(r)), nil
	}
	s, err := a.session(r)
	if err != nil {
		return nil, err
	}
	if a.b.Guard.Open() {
		api.SeatOf(r.Context())(true)
	}
	for _, need := range rule.needs(r) {
		if err := s.Allow(r.Context(), need); err != nil {
			if rule.first && errors.Is(err, guard.ErrLogin) && a.b.Users.FirstFile() != "" && !a.administered() {
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

// errTooManyStrangers refuses a request that needs no login: too many connections have none.
var errTooManyStrangers error = &failure{status: http.StatusServiceUnavailable, message: "TOO_MANY_CONNECTIONS", retryAfter: true}

// session logs the client of a request in: by its secret, else by the cookie of its browser, else
// by its certificate. While rights are not enforced, a secret is not
// looked at: clients may have one already before the first user is made.
func (a *endpoints) session(r *http.Request) (*guard.Session, error) {
	s, err := a.loginOf(r)
	if err == nil && s.LoggedIn() {
		api.SeatOf(r.Context())(true)
	}
	return s, err
}

func (a *endpoints) loginOf(r *http.Request) (*guard.Session, error) {
	c := credentialsOf(r)
	if c.Secret = bearer(r); c.Secret == "" || !a.b.Guard.Enforced() {
		if s, _, err := a.byCookie(r); err == nil {
			return s, nil
		}
		c.Secret = ""
		return a.b.Guard.Begin(c), nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginTimeout)
	defer cancel()
	return a.b.Guard.Login(ctx, c)
}

// credentialsOf are those of the connection of a request.
func credentialsOf(r *http.Request) guard.Credentials {
	c := guard.Credentials{Address: r.RemoteAddr, TLS: r.TLS != nil}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		c.CommonName, c.Verified = r.TLS.PeerCertificates[0].Subject.CommonName, len(r.TLS.VerifiedChains) > 0
	}
	return c
}

// bearer is the secret in Authorization: Bearer SECRET; "" = there is none.
func bearer(r *http.Request) string {
	kind, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// deny writes the response to an unauthorized request, or to one that cannot be authorized yet.
func (a *endpoints) deny(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, api.ErrNotReady) || errors.Is(err, context.DeadlineExceeded) {
		err = guard.ErrAuthService
	}
	a.refuse(w, r, err)
}

// note writes the audit of one request. Bodies and headers are left out: they may be
// secrets or messages. Arguments are no secrets.
func (a *endpoints) note(r *http.Request, s *guard.Session, status int, refused error) {
	e := guard.Entry{
		Time: time.Now(), Remote: r.RemoteAddr, Action: r.Method + " " + r.URL.Path, Detail: guard.Query(r.URL.RawQuery, objectsOf(r)), Status: status,
		Identity: "unknown", Result: guard.ResultOK,
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

// objectsOf are the arguments that a route reads, those that it requires first.
func objectsOf(r *http.Request) (names []string) {
	route, _ := DescriptionOf(r.Method, r.URL.Path)
	for _, required := range []bool{true, false} {
		for _, a := range route.Arguments {
			if a.Required == required {
				names = append(names, a.Name)
			}
		}
	}
	return names
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
