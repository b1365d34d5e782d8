package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// users watches a store in memory until the test ends; its administrator is root.
func users(t *testing.T) (r *access.Registry, root string) {
	store := metadatatest.NewMemory()
	r = access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, Log: quiet()})
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { r.Watch(ctx, store) })
	t.Cleanup(func() {
		cancel()
		watch.Wait()
		_ = store.Close()
	})
	wait.Until(t, func() bool { return r.Policy() != nil }, "the users are read")
	root, err := r.Create(t.Context(), access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	return r, root
}

func from(host, secret string) guard.Credentials {
	return guard.Credentials{Address: host + ":1", Secret: secret}
}

// TestTheBootstrapTokenDoesNotWait: it opens a broker also where bad logins come from, such as
// the broker's own machine.
func TestTheBootstrapTokenDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		token := strings.Repeat("t", 32)
		r := access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, Bootstrap: []byte(token), Log: quiet()})
		g := guard.New(guard.Options{Users: r, Log: quiet()})
		_, err := g.Login(t.Context(), from("192.0.2.1", token))
		require.ErrorIs(t, err, outcome.ErrNotReady, "the users are unknown")
		ctx, cancel := context.WithCancel(context.Background())
		var watch sync.WaitGroup
		watch.Go(func() { r.Watch(ctx, store) })
		t.Cleanup(func() {
			cancel()
			watch.Wait()
			_ = store.Close()
		})
		wait.Until(t, func() bool { return r.Policy() != nil }, "the users are read")
		for i := range 100 {
			_, err = g.Login(t.Context(), from("192.0.2.1", fmt.Sprint("bad", i)))
			require.ErrorIs(t, err, guard.ErrBadLogin)
		}
		_, err = g.Login(t.Context(), from("192.0.2.1", token))
		require.NoError(t, err)
	})
}

// TestAServiceThatIsDownSlowsNobodyDown: only a secret that was judged counts.
func TestAServiceThatIsDownSlowsNobodyDown(t *testing.T) {
	service := httptest.NewServer(nil)
	service.Close()
	var log bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&log)
	g := guard.New(guard.Options{Log: logger, External: authd.New(config.AuthService{AuthHTTPAddress: []string{service.URL}}, nil)})
	for range 50 {
		_, err := g.Login(t.Context(), from("192.0.2.1", "s3cret-of-a-client"))
		require.ErrorIs(t, err, guard.ErrAuthService)
		require.NotContains(t, err.Error(), "s3cret")
	}
	require.Contains(t, log.String(), "authorization query failed")
	require.NotContains(t, log.String(), "s3cret", "finding 7: the secret stood in the log")
}

// TestALongSecretIsNotLookedAt: AUTH takes as much as any command.
func TestALongSecretIsNotLookedAt(t *testing.T) {
	var queries atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { queries.Add(1) }))
	defer service.Close()
	g := guard.New(guard.Options{Log: quiet(), External: authd.New(config.AuthService{AuthHTTPAddress: []string{service.URL}}, nil)})
	_, err := g.Login(t.Context(), from("192.0.2.1", strings.Repeat("x", 5<<20)))
	require.ErrorIs(t, err, guard.ErrBadLogin)
	require.Zero(t, queries.Load())
}

// TestOrderOfADecision is that of the package comment.
func TestOrderOfADecision(t *testing.T) {
	r, root := users(t)
	g := guard.New(guard.Options{Users: r, Log: quiet()})
	publish := guard.Need{Right: access.Publish, Topic: "t"}
	nobody := g.Begin(from("192.0.2.1", ""))
	require.ErrorIs(t, nobody.Allow(t.Context(), publish), guard.ErrLogin)
	s, err := g.Login(t.Context(), from("192.0.2.1", root))
	require.NoError(t, err)
	require.NoError(t, s.Allow(t.Context(), publish))
	_, err = g.Login(t.Context(), from("192.0.2.1", root+"x"))
	require.ErrorIs(t, err, guard.ErrBadLogin)

	token, err := r.Create(t.Context(), access.NewUser{Name: "w"})
	require.NoError(t, err)
	s, err = g.Login(t.Context(), from("192.0.2.1", token))
	require.NoError(t, err)
	require.ErrorIs(t, s.Allow(t.Context(), publish), guard.ErrDenied)
	require.NoError(t, r.Grant(t.Context(), "w", "t", access.Publish))
	require.NoError(t, s.Allow(t.Context(), publish), "a grant counts at once")
	require.NoError(t, r.Delete(t.Context(), "w"))
	require.ErrorIs(t, s.Allow(t.Context(), publish), guard.ErrDenied, "and so does a deletion")
}

// TestAnAuthServiceOpensNoAdministrativeDoor: its answers know two permissions.
func TestAnAuthServiceOpensNoAdministrativeDoor(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"ttl":60,"identity":"me","authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish","subscribe"]}]}`)
	}))
	defer service.Close()
	g := guard.New(guard.Options{Log: quiet(), External: authd.New(config.AuthService{AuthHTTPAddress: []string{service.URL}}, nil)})
	s, err := g.Login(t.Context(), from("192.0.2.1", "s"))
	require.NoError(t, err)
	for right, want := range map[access.Right]error{
		access.Publish: nil, access.Consume: nil, access.Discover: nil,
		access.Administer: guard.ErrDenied, access.Observe: guard.ErrDenied, access.AdministerCluster: guard.ErrDenied,
	} {
		require.ErrorIs(t, s.Allow(t.Context(), guard.Need{Right: right, Topic: "t", Channel: "c"}), want, right.String())
	}
}

// TestNothingIsAllowedBeforeTheUsersAreKnown is the time of a start.
func TestNothingIsAllowedBeforeTheUsersAreKnown(t *testing.T) {
	r := access.NewRegistry(access.Options{Log: quiet()})
	g := guard.New(guard.Options{Users: r, NotReady: func() string { return "it waits" }, Log: quiet()})
	err := g.Begin(from("192.0.2.1", "")).Allow(t.Context(), guard.Need{Right: access.Publish, Topic: "t"})
	require.ErrorIs(t, err, outcome.ErrNotReady)
	require.Equal(t, "not ready, not stored: it waits", guard.NotStored(err).Error())
	_, err = g.Login(t.Context(), from("192.0.2.1", "x"))
	require.ErrorIs(t, err, outcome.ErrNotReady)
}

// TestACertificateMustBeVerified: with --tls-client-auth-policy=require every client can
// make a certificate of any name.
func TestACertificateMustBeVerified(t *testing.T) {
	r, _ := users(t)
	_, err := r.Create(t.Context(), access.NewUser{Name: "machine", Certificate: true})
	require.NoError(t, err)
	require.NoError(t, r.Grant(t.Context(), "machine", "t", access.Publish))
	g := guard.New(guard.Options{Users: r, Log: quiet()})
	need := guard.Need{Right: access.Publish, Topic: "t"}
	c := guard.Credentials{Address: "192.0.2.1:1", TLS: true, CommonName: "machine"}
	require.ErrorIs(t, g.Begin(c).Allow(t.Context(), need), guard.ErrLogin)
	c.Verified = true
	require.NoError(t, g.Begin(c).Allow(t.Context(), need))
}

// TestASessionAllocatesNothing on the way of a put.
func TestASessionAllocatesNothing(t *testing.T) {
	r, root := users(t)
	g := guard.New(guard.Options{Users: r, Log: quiet()})
	s, err := g.Login(t.Context(), from("192.0.2.1", root))
	require.NoError(t, err)
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = s.Allow(ctx, guard.Need{Right: access.Publish, Topic: "t"}) }))
}

func TestAuditKeepsTheLastThousand(t *testing.T) {
	var log bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&log)
	g := guard.New(guard.Options{Log: logger})
	for i := range 1500 {
		g.Audit.Note(guard.Entry{Time: time.Unix(int64(i), 0), Identity: "root", Action: fmt.Sprint(i), Result: guard.ResultOK})
	}
	kept := g.Audit.Entries()
	require.Len(t, kept, 1000)
	require.Equal(t, []string{"500", "1499"}, []string{kept[0].Action, kept[999].Action})
	require.Equal(t, 1500, strings.Count(log.String(), "audit=true"))
}

// TestAnEntryIsShort: the path and the arguments of a refused request are a stranger's.
func TestAnEntryIsShort(t *testing.T) {
	var log bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&log)
	g := guard.New(guard.Options{Log: logger})
	long := strings.Repeat("x", 64<<10)
	g.Audit.Note(guard.Entry{Identity: long, Action: "PUT /config/\x1b[2J\u009b" + long, Detail: long, Result: guard.ResultRefused})
	kept := g.Audit.Entries()[0]
	require.Less(t, len(kept.Identity)+len(kept.Action)+len(kept.Detail), 1600)
	require.True(t, strings.HasPrefix(kept.Action, `PUT /config/\x1b[2J\u009bxx`), kept.Action)
	require.Less(t, log.Len(), 2500)
}

// TestRefusedAttemptsDoNotFloodTheAudit: a stranger neither fills the disk nor pushes the actions out.
func TestRefusedAttemptsDoNotFloodTheAudit(t *testing.T) {
	var log bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&log)
	g := guard.New(guard.Options{Log: logger})
	now := time.Unix(1000, 0)
	g.Audit.Note(guard.Entry{Time: now, Action: "delete", Result: guard.ResultOK})
	for range 10_000 {
		g.Audit.Note(guard.Entry{Time: now, Action: "attack", Result: guard.ResultRefused})
	}
	g.Audit.Note(guard.Entry{Time: now, Action: "create", Result: guard.ResultOK})
	kept := g.Audit.Entries()
	require.Len(t, kept, 12)
	require.Equal(t, "delete", kept[0].Action)
	require.Equal(t, 9990, kept[11].Omitted)
	require.Equal(t, 12, strings.Count(log.String(), "\n"))
}

func TestBrowsers(t *testing.T) {
	b := guard.NewBrowsers("n1.example.org", "*.svc.cluster.local")
	for _, row := range []struct {
		what, method, host, path string
		header                   map[string]string
		want                     string
	}{
		{what: "a tool", method: "POST", host: "127.0.0.1:4151", want: ""},
		{what: "a rebound name", method: "GET", host: "evil.example.com:4151", want: "HOST_NOT_ALLOWED"},
		{what: "a rebound name with a secret", method: "GET", host: "evil.example.com", header: map[string]string{"Authorization": "Bearer x"}, want: "HOST_NOT_ALLOWED"},
		{what: "a probe by any name", method: "GET", host: "lb.example.com", path: "/readyz", want: ""},
		{what: "its name", method: "GET", host: "N1.example.org.:4151", want: ""},
		{what: "a suffix", method: "GET", host: "lockstep-0.lockstep.default.svc.cluster.local:4151", want: ""},
		{what: "not a suffix", method: "GET", host: "xsvc.cluster.local", want: "HOST_NOT_ALLOWED"},
		{what: "a name without dots", method: "GET", host: "broker:4151", want: ""},
		{what: "IPv6", method: "GET", host: "[::1]:4151", want: ""},
		{what: "IPv6 without a port", method: "GET", host: "[2001:db8::1]", want: ""},
		{what: "localhost", method: "GET", host: "a.localhost", want: ""},
		{what: "a foreign form", method: "POST", host: "127.0.0.1:4151", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: "CROSS_ORIGIN"},
		{what: "a foreign form of an old browser", method: "POST", host: "127.0.0.1:4151", header: map[string]string{"Origin": "http://evil.example.com"}, want: "CROSS_ORIGIN"},
		{what: "another port of this host", method: "POST", host: "127.0.0.1:4151", header: map[string]string{"Sec-Fetch-Site": "same-site"}, want: "CROSS_ORIGIN"},
		{what: "a sandboxed frame", method: "DELETE", host: "127.0.0.1:4151", header: map[string]string{"Origin": "null"}, want: "CROSS_ORIGIN"},
		{what: "its own page", method: "POST", host: "127.0.0.1:4151", header: map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:4151"}, want: ""},
		{what: "a foreign page embeds a profile", method: "GET", host: "127.0.0.1:4151", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, want: "CROSS_ORIGIN"},
		{what: "a foreign page frames a profile", method: "GET", host: "127.0.0.1:4151", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, want: "CROSS_ORIGIN"},
		{what: "a link with its destination", method: "GET", host: "127.0.0.1:4151", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, want: ""},
		{what: "a link on a foreign page", method: "GET", host: "127.0.0.1:4151", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, want: ""},
	} {
		path := row.path
		if path == "" {
			path = "/stats"
		}
		r := httptest.NewRequest(row.method, path, nil)
		r.Host = row.host
		for k, v := range row.header {
			r.Header.Set(k, v)
		}
		require.Equal(t, row.want, b.Refusal(r), row.what)
	}
}
