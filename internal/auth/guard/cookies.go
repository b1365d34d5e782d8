package guard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

const (
	// cookieLifetime is how long a sign-in of a browser holds.
	cookieLifetime = 12 * time.Hour
	// maxCookies bounds the sign-ins of all users, maxUserCookies the sign-ins of one user.
	maxCookies     = 4096
	maxUserCookies = 32
)

// ErrNoSignIn means that a cookie belongs to no sign-in, or to one that has ended.
var ErrNoSignIn = errors.New("guard: the sign-in has ended")

// cookies holds the sign-ins of browsers at this broker. They are stored by the hash of the cookie: a copy of the
// memory grants nothing.
type cookies struct {
	mu sync.Mutex // a leaf
	of map[[sha256.Size]byte]*signedIn
}

type signedIn struct {
	session *Session
	expires time.Time
	over    chan struct{} // closed when the browser has signed out, or other sign-ins took its place
}

// ended reports whether the sign-in is no longer valid. A nil sign-in does not end.
func (in *signedIn) ended() bool {
	select {
	case <-in.dropped():
		return true
	default:
		return in != nil && time.Now().After(in.expires)
	}
}

// dropped is closed when the sign-in ends before it expires. It is nil without a sign-in.
func (in *signedIn) dropped() <-chan struct{} {
	if in == nil {
		return nil
	}
	return in.over
}

// dropLocked ends a sign-in, and with it the rights of its requests, such as streams.
func (c *cookies) dropLocked(key [sha256.Size]byte) (there bool) {
	in, there := c.of[key]
	if there {
		close(in.over)
		delete(c.of, key)
	}
	return there
}

func newCookies() *cookies { return &cookies{of: map[[sha256.Size]byte]*signedIn{}} }

// SignIn is Login for a browser: the cookie replaces the credentials until it expires, until SignOut, and until the
// user loses its credentials. Errors are those of Login.
func (g *Guard) SignIn(ctx context.Context, c Credentials) (s *Session, cookie string, expires time.Time, err error) {
	if s, err = g.Login(ctx, c); err != nil {
		return nil, "", expires, err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	cookie = base64.RawURLEncoding.EncodeToString(secret)
	expires = time.Now().Add(cookieLifetime)
	g.cookies.keep(sha256.Sum256([]byte(cookie)), &signedIn{s, expires, make(chan struct{})})
	return s, cookie, expires, nil
}

// keep adds a sign-in. If there are too many, the oldest sign-in ends: first the oldest of the same user.
func (c *cookies) keep(key [sha256.Size]byte, in *signedIn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var own, all [][sha256.Size]byte
	for k, x := range c.of {
		if x.ended() {
			c.dropLocked(k)
			continue
		}
		if all = append(all, k); x.session.Identity() == in.session.Identity() {
			own = append(own, k)
		}
	}
	older := func(a, b [sha256.Size]byte) int { return c.of[a].expires.Compare(c.of[b].expires) }
	switch {
	case len(own) >= maxUserCookies:
		c.dropLocked(slices.MinFunc(own, older))
	case len(all) >= maxCookies:
		c.dropLocked(slices.MinFunc(all, older))
	}
	c.of[key] = in
}

// ByCookie returns the session of a signed-in browser, for a request with the credentials of its connection. A cookie
// is valid only from the network of the sign-in, and only with the TLS and the client certificate that the sign-in had;
// otherwise the error is ErrNoSignIn. The sign-in itself remains valid.
func (g *Guard) ByCookie(cookie string, from Credentials) (*Session, time.Time, error) {
	key := sha256.Sum256([]byte(cookie))
	g.cookies.mu.Lock()
	in := g.cookies.of[key]
	g.cookies.mu.Unlock()
	if in == nil {
		return nil, time.Time{}, ErrNoSignIn
	}
	p, err := g.policy()
	if err != nil {
		return nil, time.Time{}, err
	}
	if in.ended() || p != nil && !p.Holds(in.session.id) {
		g.SignOut(cookie)
		return nil, time.Time{}, ErrNoSignIn
	}
	creds := in.session.creds
	switch {
	case Network(from.host()) != Network(creds.host()), creds.TLS && !from.TLS,
		creds.Verified && (!from.Verified || from.CommonName != creds.CommonName):
		return nil, time.Time{}, ErrNoSignIn
	}
	creds.Address, creds.TLS = from.Address, from.TLS
	s := &Session{guard: g, creds: creds, id: in.session.id, signIn: in, answer: in.session.answer}
	s.state.Store(in.session.state.Load())
	return s, in.expires, nil
}

// SignOut ends a sign-in; it reports whether there was one.
func (g *Guard) SignOut(cookie string) bool {
	key := sha256.Sum256([]byte(cookie))
	g.cookies.mu.Lock()
	defer g.cookies.mu.Unlock()
	return g.cookies.dropLocked(key)
}

// Browsers refuses requests from pages of other origins. A browser sends the requests of any page: a form of a foreign
// page could delete topics, and a host name that its owner points at this broker (DNS rebinding) would let a page read.
type Browsers struct {
	names []string
	cross *http.CrossOriginProtection
}

// NewBrowsers takes this broker's own names, and those of --http-allowed-host: a name, *.suffix, or * for any.
func NewBrowsers(names ...string) *Browsers {
	b := &Browsers{cross: http.NewCrossOriginProtection()}
	for _, n := range names {
		if n = strings.ToLower(strings.TrimSuffix(n, ".")); n != "" {
			b.names = append(b.names, n)
		}
	}
	return b
}

// Refusal is the error code for a request that a foreign page may have made, "" if the request is allowed.
func (b *Browsers) Refusal(r *http.Request) string {
	if !b.knows(r) {
		return "HOST_NOT_ALLOWED"
	}
	if b.cross.Check(r) != nil || foreignRead(r) {
		return "CROSS_ORIGIN"
	}
	return ""
}

// foreignRead reports whether a foreign page embeds an answer, also in a frame, without navigating there. The page
// could not read it, but a profile, for example, costs CPU time.
func foreignRead(r *http.Request) bool {
	site, mode, destination := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode"), r.Header.Get("Sec-Fetch-Dest")
	linked := mode == "navigate" && (destination == "document" || destination == "")
	return (site == "cross-site" || site == "same-site") && !linked
}

// knows reports whether the request names this broker in a way that the owner of a foreign name cannot arrange: by an address, by
// a name without dots, or by one of the allowed names.
func (b *Browsers) knows(r *http.Request) bool {
	if api.IsProbe(r.URL.Path) {
		return true
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	for _, n := range b.names {
		suffix, wild := strings.CutPrefix(n, "*")
		if n == host || wild && strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}
