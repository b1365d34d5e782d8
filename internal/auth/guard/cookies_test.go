package guard_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// anybody is an auth service that knows everybody, by the secret.
type anybody struct{}

func (anybody) Query(_ context.Context, r authd.Request) (*authd.State, error) {
	return &authd.State{Identity: r.Secret, Authorizations: []authd.Authorization{{}}}, nil
}

// A sign-in of a browser has an end, and their number is bounded: for a user, and for all.
func TestSignInsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard.New(guard.Options{External: anybody{}, Log: quiet()})
		signIn := func(name string) string {
			s, cookie, expires, err := g.SignIn(t.Context(), from("192.0.2.1", name))
			require.NoError(t, err)
			require.Equal(t, "auth-service:"+name, s.Identity())
			require.Equal(t, time.Now().Add(guard.CookieLifetime), expires)
			time.Sleep(time.Millisecond)
			return cookie
		}
		holds := func(cookie string) bool {
			s, _, err := g.ByCookie(cookie, guard.Credentials{Address: "192.0.2.1:7", TLS: true})
			if err != nil {
				require.ErrorIs(t, err, guard.ErrNoSignIn)
			}
			return s != nil
		}
		other, first := signIn("other"), signIn("joe")
		for range 31 {
			signIn("joe")
		}
		require.True(t, holds(first) && holds(other))
		last := signIn("joe")
		require.False(t, holds(first), "the oldest of the user ends")
		require.True(t, holds(last) && holds(other))
		require.False(t, holds(""))
		require.True(t, g.SignOut(last))
		require.False(t, g.SignOut(last))
		require.False(t, holds(last))

		strangers := 0
		for holds(other) {
			strangers++
			require.LessOrEqual(t, strangers, 4096)
			signIn("stranger" + time.Duration(strangers).String())
		}
		require.Greater(t, strangers, 4000)

		late := signIn("late")
		time.Sleep(guard.CookieLifetime - time.Second)
		require.True(t, holds(late))
		time.Sleep(2 * time.Second)
		require.False(t, holds(late))
	})
}

// A request that a browser began before it signed out, such as a stream, loses its rights then, and when the sign-in expires.
func TestASignOutEndsWhatItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		r := access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, Log: quiet(), Bootstrap: []byte(strings.Repeat("b", 32))})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.Watch(ctx, store)
		synctest.Wait()
		g := guard.New(guard.Options{Users: r, Log: quiet()})
		need := guard.Need{Right: access.Consume, Topic: "t"}
		for how, wait := range map[string]time.Duration{"signed out": 0, "displaced": 0, "expired": guard.CookieLifetime + 5*time.Second} {
			_, cookie, _, err := g.SignIn(t.Context(), from("192.0.2.1", strings.Repeat("b", 32)))
			require.NoError(t, err)
			s, _, err := g.ByCookie(cookie, guard.Credentials{Address: "192.0.2.1:7", TLS: true})
			require.NoError(t, err)
			require.NoError(t, s.Allow(t.Context(), need))
			began, end := s.While(t.Context(), need)
			synctest.Wait()
			require.NoError(t, began.Err())
			switch how {
			case "signed out":
				require.True(t, g.SignOut(cookie))
			case "displaced":
				for range 32 {
					time.Sleep(time.Millisecond)
					_, _, _, err := g.SignIn(t.Context(), from("192.0.2.1", strings.Repeat("b", 32)))
					require.NoError(t, err)
				}
			}
			time.Sleep(wait)
			synctest.Wait()
			require.ErrorIs(t, context.Cause(began), guard.ErrLogin, how)
			require.ErrorIs(t, s.Allow(t.Context(), need), guard.ErrLogin, how)
			end()
		}
	})
}

// A cookie that another server of the same host, or another user of the network, gets to see opens nothing elsewhere: over HTTPS
// its name keeps other hosts and plain text from setting it, and it is valid for the network of the sign-in alone.
func TestACookieIsBound(t *testing.T) {
	g := guard.New(guard.Options{External: anybody{}, Log: quiet()})
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Guard: g, Log: quiet()})
	shown := "" // the user in the certificate of the connection
	ask := func(method, path, remote string, secure bool, header ...string) *http.Response {
		r := httptest.NewRequest(method, path, nil)
		if r.RemoteAddr = remote; secure {
			r.TLS = &tls.ConnectionState{}
		}
		if secure && shown != "" {
			certificate := &x509.Certificate{Subject: pkix.Name{CommonName: shown}}
			r.TLS.PeerCertificates, r.TLS.VerifiedChains = []*x509.Certificate{certificate}, [][]*x509.Certificate{{certificate}}
		}
		r.Header.Set(header[0], header[1])
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	signedIn := func(remote string, secure bool, cookie string) bool {
		var v httpapi.SessionView
		require.NoError(t, json.NewDecoder(ask("GET", "/v1/session", remote, secure, "Cookie", cookie).Body).Decode(&v))
		return v.SignedIn
	}
	const home = "192.0.2.1:7"
	plain := ask("POST", "/v1/session", home, false, "Authorization", "Bearer s").Cookies()[0]
	require.Equal(t, "lockstep_session", plain.Name)
	secure := ask("POST", "/v1/session", home, true, "Authorization", "Bearer s").Cookies()[0]
	require.Equal(t, "__Host-lockstep_session", secure.Name)
	require.True(t, secure.Secure && secure.HttpOnly && secure.Path == "/" && secure.Domain == "" && secure.SameSite == http.SameSiteStrictMode)

	require.True(t, signedIn("192.0.2.1:8", false, plain.Name+"="+plain.Value), "the same address")
	require.False(t, signedIn("192.0.2.2:7", false, plain.Name+"="+plain.Value), "another address")
	require.False(t, signedIn("@", false, plain.Name+"="+plain.Value), "a unix socket")
	require.True(t, signedIn(home, true, secure.Name+"="+secure.Value))
	require.False(t, signedIn(home, true, plain.Name+"="+secure.Value), "another name")
	require.False(t, signedIn(home, false, plain.Name+"="+secure.Value), "without TLS")
	sixth := ask("POST", "/v1/session", "[2001:db8::1]:7", true, "Authorization", "Bearer s").Cookies()[0]
	require.True(t, signedIn("[2001:db8::2]:7", true, sixth.Name+"="+sixth.Value), "the same network")
	require.False(t, signedIn("[2001:db8:0:1::1]:7", true, sixth.Name+"="+sixth.Value))

	shown = "mary" // with a certificate, the cookie opens nothing without it
	certified := ask("POST", "/v1/session", home, true, "Authorization", "Bearer s").Cookies()[0]
	require.True(t, signedIn(home, true, certified.Name+"="+certified.Value))
	require.True(t, signedIn(home, true, secure.Name+"="+secure.Value), "a sign-in without a certificate asks for none")
	for _, shown = range []string{"joe", ""} {
		require.False(t, signedIn(home, true, certified.Name+"="+certified.Value), "the certificate %q", shown)
	}

	require.Equal(t, http.StatusOK, ask("POST", "/v1/session/logout", "192.0.2.2:7", false, "Cookie", plain.Name+"="+plain.Value).StatusCode, "it ends from anywhere")
	require.False(t, signedIn(home, false, plain.Name+"="+plain.Value))
	require.Equal(t, http.StatusUnauthorized, ask("POST", "/v1/session/logout", home, false, "Cookie", plain.Name+"="+plain.Value).StatusCode)
}

// A user that is deleted, or has a new token, is no longer signed in.
func TestASignInEndsWithItsCredentials(t *testing.T) {
	r, _ := users(t)
	g := guard.New(guard.Options{Users: r, Log: quiet()})
	for _, end := range []func(name string) error{
		func(name string) error { return r.Delete(t.Context(), name) },
		func(name string) error { _, err := r.Rotate(t.Context(), name); return err },
	} {
		token, err := r.Create(t.Context(), access.NewUser{Name: "shop"})
		require.NoError(t, err)
		require.NoError(t, r.Grant(t.Context(), "shop", "t", access.Publish))
		_, cookie, _, err := g.SignIn(t.Context(), from("192.0.2.1", token))
		require.NoError(t, err)
		s, _, err := g.ByCookie(cookie, guard.Credentials{Address: "192.0.2.1:4"})
		require.NoError(t, err)
		require.NoError(t, s.Allow(t.Context(), guard.Need{Right: access.Publish, Topic: "t"}))
		require.Equal(t, "192.0.2.1:4", s.Requester("").Remote, "the address of the request")
		require.NoError(t, end("shop"))
		wait.Until(t, func() bool {
			_, _, err := g.ByCookie(cookie, guard.Credentials{Address: "192.0.2.1:4"})
			return err != nil
		}, "the sign-in ends")
		require.Error(t, s.Allow(t.Context(), guard.Need{Right: access.Publish, Topic: "t"}))
	}
	_, _, _, err := g.SignIn(t.Context(), from("192.0.2.1", "wrong"))
	require.ErrorIs(t, err, guard.ErrBadLogin)
	_, _, _, err = guard.New(guard.Options{Log: quiet()}).SignIn(t.Context(), from("192.0.2.1", "any"))
	require.ErrorIs(t, err, guard.ErrDisabled)
}
