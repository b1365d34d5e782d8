package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// cookieName is the name of the cookie of a browser that has signed in. The prefix makes the browser refuse one that
// another host, or a page without TLS, sets.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-lockstep_session"
	}
	return "lockstep_session"
}

// sessionRoutes are for browsers that sign in and out. They require no right; the endpoints note the sign-ins
// in the audit.
var sessionRoutes = []Route{
	get("/v1/session", access.Open, (*endpoints).currentSession,
		"The client of this request, for a page: its identity, and whether it may observe and administer.").
		replies(SessionView{}).local(),
	post("/v1/session", access.Open, (*endpoints).signIn,
		"Sign in with Authorization: Bearer SECRET. The answer sets a cookie that stands for the secret at this broker for "+
			"12 hours; 409 LOGIN_DISABLED while there are no users.").
		replies(SessionView{}).lenient().local(),
	post("/v1/session/logout", access.Open, (*endpoints).signOut, "End the session of the cookie.").lenient().local(),
}

// SessionView is the answer of /v1/session.
type SessionView struct {
	Enforced   bool   `json:"enforced"` // rights are asked for
	Begun      bool   `json:"begun"`    // there is an administrator, or an auth service, or a bootstrap token
	Identity   string `json:"identity"`
	SignedIn   bool   `json:"signed_in"`  // by the cookie
	ExpiresMS  *int64 `json:"expires_ms"` // of the cookie
	Observe    bool   `json:"observe"`
	Administer bool   `json:"administer"` // the cluster
}

func (a *endpoints) currentSession(q *request) (any, error) {
	s, err := a.session(q.Request)
	if err != nil { // with wrong credentials a client has the rights of a client without credentials
		s = a.b.Guard.Begin(guard.Credentials{Address: q.RemoteAddr})
	}
	_, expires, _ := a.byCookie(q.Request) // without a valid cookie expires is zero
	return a.viewOf(q.Context(), s, expires), nil
}

// viewOf shows a session; expires is the end of its cookie, zero without one.
func (a *endpoints) viewOf(ctx context.Context, s *guard.Session, expires time.Time) SessionView {
	may := func(right access.Right) bool { return s.Allow(ctx, guard.Need{Right: right}) == nil }
	v := SessionView{
		Enforced: a.b.Guard.Enforced(), Begun: a.b.Guard.Begun(), Identity: s.Identity(),
		Observe: may(access.Observe), Administer: may(access.AdministerCluster),
	}
	if !expires.IsZero() {
		ms := expires.UnixMilli()
		v.SignedIn, v.ExpiresMS = true, &ms
	}
	return v
}

func (a *endpoints) signIn(q *request) (any, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := a.signInWith(w, r)
		client := s
		if client == nil && bearer(r) == "" {
			client = a.b.Guard.Begin(guard.Credentials{Address: r.RemoteAddr})
		}
		a.note(q, client, w.(*boundedWriter), err)
	}), nil
}

func (a *endpoints) signInWith(w http.ResponseWriter, r *http.Request) (*guard.Session, error) {
	c := credentialsOf(r)
	if c.Secret = bearer(r); c.Secret == "" {
		a.deny(w, r, guard.ErrLogin)
		return nil, guard.ErrLogin
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginTimeout)
	defer cancel()
	s, cookie, expires, err := a.b.Guard.SignIn(ctx, c)
	switch {
	case errors.Is(err, guard.ErrDisabled):
		a.refuse(w, r, fail(http.StatusConflict, "LOGIN_DISABLED"))
		return nil, err
	case err != nil:
		a.deny(w, r, err)
		return nil, err
	}
	api.SeatOf(r.Context())(true)
	if old, err := r.Cookie(cookieName(r)); err == nil { // the browser drops the cookie now
		a.b.Guard.SignOut(old.Value)
	}
	http.SetCookie(w, a.cookie(r, cookie, int(time.Until(expires).Seconds())))
	w.Header().Set("Cache-Control", "no-store")
	respond(w, http.StatusOK, a.viewOf(ctx, s, expires))
	return s, nil
}

// signOut ends the session of the cookie; a bearer token stays valid.
func (a *endpoints) signOut(q *request) (any, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := a.session(r)
		http.SetCookie(w, a.cookie(r, "", -1))
		c, none := r.Cookie(cookieName(r))
		ended := none == nil && err == nil && a.b.Guard.SignOut(c.Value) // also from another address
		if err == nil && !s.LoggedIn() && !ended {
			err = guard.ErrLogin
		}
		if err != nil {
			a.deny(w, r, err)
		} else {
			respond(w, http.StatusOK, nil)
		}
		a.note(q, s, w.(*boundedWriter), err)
	}), nil
}

// cookie makes the cookie of a session; a negative age removes it. Scripts cannot read it, and pages of other sites
// cannot send it.
func (a *endpoints) cookie(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	}
}

// byCookie returns the session of the request's cookie. guard.ErrNoSignIn.
func (a *endpoints) byCookie(r *http.Request) (*guard.Session, time.Time, error) {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil, time.Time{}, guard.ErrNoSignIn
	}
	return a.b.Guard.ByCookie(c.Value, credentialsOf(r))
}
