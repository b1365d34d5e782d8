package guard_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/access"
	"github.com/lockstepmq/lockstep/internal/auth"
	"github.com/lockstepmq/lockstep/internal/guard"
	"github.com/lockstepmq/lockstep/internal/testkit/wait"
)

// anybody is an auth service that knows everybody, by the secret.
type anybody struct{}

func (anybody) Query(_ context.Context, r auth.Request) (*auth.State, error) {
	return &auth.State{Identity: r.Secret, Authorizations: []auth.Authorization{{}}}, nil
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
			s, _, err := g.ByCookie(cookie, "192.0.2.2:7", true)
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
		store := meta.NewMemory()
		defer store.Close()
		r := access.NewRegistry(access.Options{Keys: meta.Keys{Cluster: "c"}, Log: quiet(), Bootstrap: []byte(strings.Repeat("b", 32))})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.Watch(ctx, store)
		synctest.Wait()
		g := guard.New(guard.Options{Users: r, Log: quiet()})
		need := guard.Need{Right: access.Consume, Topic: "t"}
		for how, wait := range map[string]time.Duration{"signed out": 0, "displaced": 0, "expired": guard.CookieLifetime + 5*time.Second} {
			_, cookie, _, err := g.SignIn(t.Context(), from("192.0.2.1", strings.Repeat("b", 32)))
			require.NoError(t, err)
			s, _, err := g.ByCookie(cookie, "192.0.2.1:7", true)
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

// A user that is deleted, or has another token, is signed in no more.
func TestASignInEndsWithItsCredentials(t *testing.T) {
	r, _ := users(t)
	g := guard.New(guard.Options{Users: r, Log: quiet()})
	for _, end := range []func(name string) error{
		func(name string) error { return r.Delete(t.Context(), name) },
		func(name string) error { _, err := r.Rotate(t.Context(), name); return err },
	} {
		token, err := r.Create(t.Context(), access.NewUser{Name: "shop"})
		require.NoError(t, err)
		require.NoError(t, r.GrantTopic(t.Context(), "shop", "t", access.Publish))
		_, cookie, _, err := g.SignIn(t.Context(), from("192.0.2.1", token))
		require.NoError(t, err)
		s, _, err := g.ByCookie(cookie, "192.0.2.9:4", false)
		require.NoError(t, err)
		require.NoError(t, s.Allow(t.Context(), guard.Need{Right: access.Publish, Topic: "t"}))
		require.Equal(t, "192.0.2.9:4", s.Requester("").Remote, "the address of the request")
		require.NoError(t, end("shop"))
		wait.Until(t, func() bool { _, _, err := g.ByCookie(cookie, "", false); return err != nil }, "the sign-in ends")
		require.Error(t, s.Allow(t.Context(), guard.Need{Right: access.Publish, Topic: "t"}))
	}
	_, _, _, err := g.SignIn(t.Context(), from("192.0.2.1", "wrong"))
	require.ErrorIs(t, err, guard.ErrBadLogin)
	_, _, _, err = guard.New(guard.Options{Log: quiet()}).SignIn(t.Context(), from("192.0.2.1", "any"))
	require.ErrorIs(t, err, guard.ErrDisabled)
}
