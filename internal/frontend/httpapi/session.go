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

// cookieName is the name of the cookie of a browser that has signed in. The prefix makes the browser refuse one that another
// host, or a page without TLS, sets.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-lockstep_session"
	}
	return "lockstep_session"
}

// sessionRules are the routes at which a browser signs in and out. They take no right; the
// handlers note the sign-ins in the audit.
var sessionRules = []Rule{
	{Method: "GET", Path: "/v1/session"},
	{Method: "POST", Path: "/v1/session", Audited: true},
	{Method: "POST", Path: "/v1/session/logout", Audited: true},
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

// sessionsOnly adds the endpoints of /v1/session.
func (a *endpoints) sessionsOnly(r *door) {
	if a.b.Guard == nil {
		return
	}
	r.HandlerFunc(http.MethodGet, "/v1/session", a.serve(a.currentSession))
	r.HandlerFunc(http.MethodPost, "/v1/session", a.signIn)
	r.HandlerFunc(http.MethodPost, "/v1/session/logout", a.signOut)
}

// currentSession: GET /v1/session.
func (a *endpoints) currentSession(r *http.Request) (any, error) {
	s, err := a.session(r)
	if err != nil { // wrong credentials give the rights of a client without any
		s = a.b.Guard.Begin(guard.Credentials{Address: r.RemoteAddr})
	}
	_, expires, _ := a.byCookie(r) // without a good cookie zero
	return a.viewOf(r.Context(), s, expires), nil
}

// viewOf shows a session; expires is the end of its cookie, zero without one.
func (a *endpoints) viewOf(ctx context.Context, s *guard.Session, expires time.Time) SessionView {
	may := func(right access.Right) bool { return s.Allow(ctx, guard.Need{Right: right}) == nil }
	v := SessionView{Enforced: a.b.Guard.Enforced(), Begun: a.b.Guard.Begun(), Identity: s.Identity(), Observe: may(access.Observe), Administer: may(access.AdministerCluster)}
	if !expires.IsZero() {
		ms := expires.UnixMilli()
		v.SignedIn, v.ExpiresMS = true, &ms
	}
	return v
}

// signIn: POST /v1/session with Authorization: Bearer SECRET.
func (a *endpoints) signIn(w http.ResponseWriter, r *http.Request) {
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	s, err := a.signInWith(seen, r)
	who := s
	if who == nil && bearer(r) == "" {
		who = a.b.Guard.Begin(guard.Credentials{Address: r.RemoteAddr})
	}
	a.note(r, who, seen.status, err)
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
	if old, err := r.Cookie(cookieName(r)); err == nil { // the browser forgets it now
		a.b.Guard.SignOut(old.Value)
	}
	http.SetCookie(w, a.cookie(r, cookie, int(time.Until(expires).Seconds())))
	w.Header().Set("Cache-Control", "no-store")
	respond(w, http.StatusOK, a.viewOf(ctx, s, expires))
	return s, nil
}

// signOut: POST /v1/session/logout. The cookie's session ends; a bearer token stays valid.
func (a *endpoints) signOut(w http.ResponseWriter, r *http.Request) {
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	s, err := a.session(r)
	http.SetCookie(seen, a.cookie(r, "", -1))
	c, none := r.Cookie(cookieName(r))
	ended := none == nil && err == nil && a.b.Guard.SignOut(c.Value) // also from another address
	if err == nil && !s.LoggedIn() && !ended {
		err = guard.ErrLogin
	}
	if err != nil {
		a.deny(seen, r, err)
	} else {
		respond(seen, http.StatusOK, nil)
	}
	a.note(r, s, seen.status, err)
}

// cookie makes the cookie of a session; a negative age removes it. No script reads it, and no page
// of another site sends it.
func (a *endpoints) cookie(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{Name: cookieName(r), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode}
}

// byCookie gives the session of the request's cookie. guard.ErrNoSignIn.
func (a *endpoints) byCookie(r *http.Request) (*guard.Session, time.Time, error) {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil, time.Time{}, guard.ErrNoSignIn
	}
	return a.b.Guard.ByCookie(c.Value, credentialsOf(r))
}
