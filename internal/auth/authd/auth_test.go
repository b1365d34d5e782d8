package authd

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const answer = `{"ttl":10,"identity":"me","authorizations":[` +
	`{"topic":"^logs","channels":["^a$","b"],"permissions":["subscribe"]},` +
	`{"topic":"metrics","channels":[".*"],"permissions":["publish","subscribe"]},` +
	`{"topic":"odd","channels":["x"],"permissions":["publish"]}]}`

func client(method string, addresses ...string) *Client {
	return New(config.AuthService{AuthHTTPAddress: addresses, AuthHTTPMethod: method, HTTPConnectTimeout: wait.Limit, HTTPRequestTimeout: wait.Limit}, nil)
}

func TestAllows(t *testing.T) {
	now := time.Now()
	s, err := Parse([]byte(answer), now)
	require.NoError(t, err)
	for _, row := range []struct {
		topic, channel string
		want           bool
	}{
		{"logs", "a", true}, {"logs-2", "a", true}, {"my-logs", "a", false}, {"logs", "aa", false}, {"logs", "abc", true},
		{"logs", "", false}, {"metrics", "", true}, {"my-metrics", "c", true},
		{"odd", "", false}, // the permission to publish requires a channel pattern that matches the empty name
	} {
		require.Equal(t, row.want, s.Allows(row.topic, row.channel), "%s %s", row.topic, row.channel)
	}
	require.False(t, s.Expired(now.Add(9*time.Second)))
	require.True(t, s.Expired(now.Add(10*time.Second)))
}

func TestQueryForms(t *testing.T) {
	var method, contentType, accept, path, asked string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		method, contentType, accept, path = r.Method, r.Header.Get("Content-Type"), r.Header.Get("Accept"), r.URL.Path
		asked = r.URL.RawQuery + string(body)
		_, _ = io.WriteString(w, answer)
	}))
	defer service.Close()
	host := strings.TrimPrefix(service.URL, "http://")
	r := Request{RemoteIP: "1.2.3.4", TLS: true, CommonName: "cn", Secret: "s&s"}

	s, err := client("get", host).Query(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "me", s.Identity)
	require.Equal(t, []string{"GET", "/auth", "common_name=cn&remote_ip=1.2.3.4&secret=s%26s&tls=true"}, []string{method, path, asked})
	require.Equal(t, "application/vnd.nsq; version=1.0", accept)

	_, err = client("post", service.URL+"/check").Query(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []string{"POST", "/check", "application/json"}, []string{method, path, contentType})
	require.JSONEq(t, `{"remote_ip":["1.2.3.4"],"tls":["true"],"secret":["s&s"],"common_name":["cn"]}`, asked)
}

// Query skips a service that is down or whose answer is invalid.
func TestQueryTriesEveryAddress(t *testing.T) {
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	defer good.Close()
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer bad.Close()
	down := httptest.NewServer(nil)
	down.Close()
	for range 10 { // the start is random
		_, err := client("get", bad.URL, down.URL, good.URL).Query(t.Context(), Request{})
		require.NoError(t, err)
	}
	_, err := client("get", bad.URL, down.URL).Query(t.Context(), Request{})
	require.ErrorIs(t, err, ErrInvalidAnswer)
	require.ErrorContains(t, err, down.URL)
	_, err = client("get").Query(t.Context(), Request{})
	require.Error(t, err)
}

// TestOnlyADenialDenies: an answer that says nothing about the client is no denial, and one that does is, also where
// another address does not answer.
func TestOnlyADenialDenies(t *testing.T) {
	serve := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	for _, row := range []struct {
		status int
		body   string
		denied bool
	}{
		{401, "", true}, {403, answer, true}, {400, "", false}, {404, "", false}, {429, "", false}, {500, "", false}, {502, answer, false}, {503, "", false},
		{200, "", false}, {200, answer[:len(answer)/2], false}, {200, "<html>", false}, {200, "null", false}, {200, "[]", false}, {200, `{"ttl":0,"authorizations":[]}`, false},
		{204, "", false},
	} {
		_, err := client("get", serve(row.status, row.body)).Query(t.Context(), Request{})
		require.Error(t, err)
		require.Equal(t, row.denied, errors.Is(err, ErrDenied), "%d %s: %v", row.status, row.body, err)
		require.Equal(t, !row.denied, errors.Is(err, ErrInvalidAnswer), "%d %s: %v", row.status, row.body, err)
	}
	for range 10 { // the start is random
		_, err := client("get", serve(403, ""), serve(500, "")).Query(t.Context(), Request{})
		require.ErrorIs(t, err, ErrDenied)
		_, err = client("get", serve(403, ""), serve(200, answer)).Query(t.Context(), Request{})
		require.NoError(t, err)
	}
	s, err := Parse([]byte(`{"ttl":9223372036854775807,"authorizations":[]}`), time.Now())
	require.NoError(t, err)
	require.False(t, s.Expired(time.Now()))
}

// TestARedirectCarriesNoSecret: the target of a redirect is another service.
func TestARedirectCarriesNoSecret(t *testing.T) {
	for _, method := range []string{"get", "post"} {
		seen := ""
		target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			seen = fmt.Sprint(r.URL, r.Header, string(body))
			_, _ = io.WriteString(w, answer)
		}))
		service := httptest.NewServer(http.RedirectHandler(target.URL+"/there", http.StatusFound))
		_, err := client(method, service.URL+"/auth").Query(t.Context(), Request{Secret: "s3cret"})
		service.Close()
		target.Close()
		require.NoError(t, err)
		require.Contains(t, seen, "/there")
		require.NotContains(t, seen, "s3cret")
	}
	loop := httptest.NewServer(http.RedirectHandler("/again", http.StatusFound))
	defer loop.Close()
	_, err := client("get", loop.URL).Query(t.Context(), Request{Secret: "s3cret"})
	require.ErrorContains(t, err, "too many redirects")
}

// TestErrorsShowNoPassword: the log has the errors of queries.
func TestErrorsShowNoPassword(t *testing.T) {
	down := httptest.NewServer(nil)
	down.Close()
	host := strings.TrimPrefix(down.URL, "http://")
	for address, name := range map[string]string{
		"http://me:hush@" + host + "/check?key=hush": "auth: http://me:xxxxx@" + host + "/check?key=xxxxx: ", "me:hush@" + host: "auth: …@" + host + ": ",
		host: "auth: " + host + ": ", "http://me:hush@%zz": "auth: http://…@%zz: ", "http://me:hush@a b/": "auth: http://…@a b/: ", "http://me:hush/1@" + host: "auth: http://…@" + host + ": the address is no valid URL",
	} {
		_, err := client("get", address).Query(t.Context(), Request{Secret: "s3cret"})
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "hush")
		require.NotContains(t, err.Error(), "s3cret")
	}
}
