package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

// signIn signs a browser in and gives its cookie.
func (b *broker) signIn(token string) *http.Cookie {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodPost, b.url("/v1/session"), nil)
	require.NoError(b.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := b.http.Do(req)
	require.NoError(b.t, err)
	require.NoError(b.t, resp.Body.Close())
	require.Equal(b.t, 200, resp.StatusCode)
	require.Len(b.t, resp.Cookies(), 1)
	return resp.Cookies()[0]
}

// A browser signs in once; then its cookie is as good as the token, until it signs out or the user
// goes. The token is in no cookie and in no audit.
func TestABrowserSignsIn(t *testing.T) {
	t.Parallel()
	b := guarded.use(t)
	root := b.root
	watcher := b.user(root, "watcher", "")
	status, text := b.with(root, "POST", "/v1/acl/grant?user=watcher&cluster=observe", "")
	require.Equal(t, 200, status, text)
	status, text = b.with("", "GET", "/v1/session", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"enforced":true,"begun":true,"identity":"anonymous","signed_in":false,"expires_ms":null,"observe":false,"administer":false}`, text)

	before := time.Now()
	c := b.signIn(watcher)
	after := time.Now()
	require.Equal(t, "lockstep_session", c.Name)
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.Equal(t, "/", c.Path)
	require.False(t, c.Secure, "without TLS the browser would not send it")
	require.LessOrEqual(t, c.MaxAge, int((12 * time.Hour).Seconds()), "a bounded lifetime")
	require.Positive(t, c.MaxAge)
	require.NotContains(t, c.Value, watcher)
	cookie := []string{"Cookie", c.Name + "=" + c.Value}
	status, _ = b.with("", "GET", "/stats", "", cookie...)
	require.Equal(t, 200, status)
	status, _ = b.with("", "POST", "/v1/cluster/balance", "", cookie...)
	require.Equal(t, 403, status, "the rights are those of the user")
	status, text = b.with("", "GET", "/v1/session", "", cookie...)
	require.Equal(t, 200, status)
	var view httpapi.SessionView
	require.NoError(t, json.Unmarshal([]byte(text), &view))
	require.True(t, view.SignedIn && view.Observe && !view.Administer)
	require.Equal(t, "watcher", view.Identity)
	const lifetime = 12 * time.Hour
	require.GreaterOrEqual(t, *view.ExpiresMS, before.Add(lifetime).UnixMilli()-1000, "in whole seconds")
	require.LessOrEqual(t, *view.ExpiresMS, after.Add(lifetime).UnixMilli())

	// A bearer token goes before the cookie; pages of other origins are refused with one, too.
	status, _ = b.with(root, "GET", "/v1/audit", "", cookie...)
	require.Equal(t, 200, status)
	status, _ = b.with("", "GET", "/stats", "", "Cookie", c.Name+"=x"+c.Value[1:])
	require.Equal(t, 401, status, "another cookie")
	rootCookie := b.signIn(root)
	for _, foreign := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		status, text = b.with("", "POST", "/topic/create?topic=evil", "", append(foreign, "Cookie", rootCookie.Name+"="+rootCookie.Value)...)
		require.Equal(t, 403, status)
		require.Contains(t, text, "CROSS_ORIGIN")
	}
	status, text = b.with("", "POST", "/topic/create?topic=signed-in", "", "Cookie", rootCookie.Name+"="+rootCookie.Value, "Sec-Fetch-Site", "same-origin")
	require.Equal(t, 200, status, text)

	// The end: by the browser, or by the administrator.
	status, _ = b.with("", "POST", "/v1/session/logout", "")
	require.Equal(t, 401, status, "there is nothing to end")
	status, _ = b.with("", "POST", "/v1/session/logout", "", cookie...)
	require.Equal(t, 200, status)
	status, _ = b.with("", "GET", "/stats", "", cookie...)
	require.Equal(t, 401, status)
	c = b.signIn(watcher)
	cookie = []string{"Cookie", c.Name + "=" + c.Value}
	status, _ = b.with("", "GET", "/stats", "", cookie...)
	require.Equal(t, 200, status)
	status, text = b.with(root, "POST", "/v1/user/rotate?name=watcher", "")
	require.Equal(t, 200, status, text)
	b.eventually("ends the session of a user with another token", func() bool {
		status, _ := b.with("", "GET", "/stats", "", cookie...)
		return status == 401
	})
	replaced := []string{"Cookie", rootCookie.Name + "=" + rootCookie.Value}
	status, _ = b.with(root, "POST", "/v1/session", "", replaced...)
	require.Equal(t, 200, status)
	status, _ = b.with("", "GET", "/stats", "", replaced...)
	require.Equal(t, 401, status, "a sign-in of a browser ends its earlier one")
	status, text = b.with(root, "GET", "/v1/audit", "")
	require.Equal(t, 200, status)
	require.Contains(t, text, "POST /v1/session")
	require.Contains(t, text, "POST /v1/session/logout")
	for _, secret := range []string{root, watcher, c.Value, rootCookie.Value} {
		require.NotContains(t, text, secret)
		require.False(t, strings.Contains(b.logged(), secret), "the log")
	}
}

// Wrong tokens at the sign-in are audited, and keep no valid one of the same address out.
func TestBadSignInsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	const address, bad = "127.0.0.7", 9 // the audit shows ten refusals a second
	b := guarded.use(t).from(address)
	for range bad {
		status, text := b.with("wrong", "POST", "/v1/session", "")
		require.Equal(t, 401, status, text)
	}
	status, text := b.with(b.root, "POST", "/v1/session", "")
	require.Equal(t, 200, status, text)
	status, text = b.with(b.root, "GET", "/v1/audit", "")
	require.Equal(t, 200, status, text)
	var audit httpapi.AuditView
	require.NoError(t, json.Unmarshal([]byte(text), &audit))
	refused := 0
	for _, e := range audit.Entries {
		if e.Action == "POST /v1/session" && strings.HasPrefix(e.Remote, address+":") && e.Result == "refused" {
			refused++
		}
		if e.Result == "refused" {
			refused += e.Omitted // other tests share the broker, and its limit
		}
	}
	require.GreaterOrEqual(t, refused, 1)
}
