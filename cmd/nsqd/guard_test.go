package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
)

// with makes a request with a token ("" = none) and further headers, and gives the status and the body.
func (b *broker) with(token, method, path, body string, headers ...string) (int, string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.url(path), strings.NewReader(body))
	require.NoError(b.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.http.Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return resp.StatusCode, string(text)
}

// user makes a user and gives its token. by is the token of an administrator; "" = the user is the first one.
func (b *broker) user(by, name, more string) string {
	b.t.Helper()
	if by == "" {
		by = b.firstSecret()
	}
	status, text := b.with(by, "POST", "/v1/user/create?name="+name+more, "")
	require.Equal(b.t, 200, status, text)
	var made httpapi.NewToken
	require.NoError(b.t, json.Unmarshal([]byte(text), &made))
	return made.Token
}

// firstSecret is the secret that makes the first administrator.
func (b *broker) firstSecret() string {
	b.t.Helper()
	file := filepath.Join(b.dir, access.FirstFile)
	text, err := os.ReadFile(file)
	require.NoError(b.t, err)
	st, err := os.Stat(file)
	require.NoError(b.t, err)
	require.Equal(b.t, os.FileMode(0o600), st.Mode())
	return strings.TrimSpace(string(text))
}

func (b *broker) grant(by, user, topic, rights string) {
	b.t.Helper()
	status, text := b.with(by, "POST", "/v1/acl/grant?"+url.Values{"user": {user}, "topic": {topic}, "rights": {rights}}.Encode(), "")
	require.Equal(b.t, 200, status, text)
}

// TestAuthServiceGuardsHTTP is finding 1: where TCP refuses, HTTP refuses, and what only an
// administrator may do is closed to everybody else.
func TestAuthServiceGuardsHTTP(t *testing.T) {
	t.Parallel()
	b := authorized.use(t)
	status, text := b.with("good", "POST", "/pub?topic=orders", "m")
	require.Equal(t, 200, status, text)
	for path, want := range map[string]int{"POST /pub?topic=orders": 401, "POST /mpub?topic=orders": 401, "GET /v1/topic/peek?topic=orders": 401} {
		method, target, _ := strings.Cut(path, " ")
		status, text = b.with("", method, target, "m")
		require.Equal(t, want, status, path)
		require.JSONEq(t, `{"message":"UNAUTHORIZED"}`, coded(text))
		status, _ = b.with("bad", method, target, "m")
		require.Equal(t, want, status, path)
	}
	status, _ = b.with("good", "POST", "/pub?topic=invoices", "m")
	require.Equal(t, 403, status)
	status, text = b.with("good", "GET", "/v1/topic/peek?topic=orders", "")
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `"body":"m"`)
	for _, path := range []string{
		"POST /topic/delete?topic=orders", "POST /topic/empty?topic=orders", "POST /v1/topic/recover?topic=orders&partition=0&from=n1&confirm=orders/0",
		"POST /v1/broker/decommission?node=n1", "PUT /config/nsqlookupd_tcp_addresses", "GET /debug/pprof/", "GET /debug/pprof/heap",
		"POST /channel/delete?topic=orders&channel=c", "GET /stats", "GET /metrics", "GET /info", "GET /v1/cluster", "GET /v1/console/topics", "GET /v1/user/list", "GET /v1/audit",
	} {
		method, target, _ := strings.Cut(path, " ")
		status, _ := b.with("", method, target, "[]")
		require.Equal(t, 401, status, path)
		status, _ = b.with("good", method, target, "[]")
		require.Equal(t, 403, status, path)
	}
	for _, path := range []string{"/ping", "/healthz", "/readyz", "/ui"} {
		status, _ := b.with("", "GET", path, "")
		require.Equal(t, 200, status, path)
	}
}

// TestChannelsOfAnAuthService: the auth service lets a client subscribe to one channel: no door opens
// another one to it, nor those of the whole topic, and none lets it administer its own.
func TestChannelsOfAnAuthService(t *testing.T) {
	t.Parallel()
	b := authorized.use(t)
	client := func() *client {
		c := b.dial()
		c.command("mine", "AUTH")
		c.next()
		return c
	}
	client().put("orders", "m")
	client().consume("orders", "mine", 0)
	for _, command := range []string{"SUB orders other", "SUB_ORDERED orders other", "SUB orders mine#ephemeral", "SUB_ADVANCED orders other 0"} {
		c := client()
		c.command("", "%s", command)
		_, refusal := c.next()
		require.Contains(t, refusal, "E_UNAUTHORIZED", command)
		c.expectEnd()
	}
	for path, want := range map[string]int{
		"POST /v1/consume?topic=orders&channel=mine":                      200,
		"POST /v1/consume?topic=orders&channel=other":                     403,
		"POST /v1/consume?topic=orders&channel=other&channel=mine":        403,
		"POST /v1/consume?topic=orders":                                   403,
		"POST /v1/finish?topic=orders&channel=mine&receipt=x":             400,
		"POST /v1/finish?topic=orders&channel=other&receipt=x":            403,
		"POST /v1/requeue?topic=orders&channel=other&receipt=x":           403,
		"POST /v1/touch?topic=orders&channel=other&receipt=x":             403,
		"GET /v1/topic/peek?topic=orders":                                 403,
		"GET /v1/topic/peek?topic=orders&channel=mine":                    403,
		"GET /v1/trace?topic=orders&partition=0&sequence=0&channel=mine":  403,
		"POST /channel/create?topic=orders&channel=mine":                  403,
		"POST /channel/pause?topic=orders&channel=mine":                   403,
		"POST /channel/empty?topic=orders&channel=mine":                   403,
		"POST /channel/delete?topic=orders&channel=mine":                  403,
		"POST /channel/setorder?topic=orders&channel=mine&order=true":     403,
		"POST /v1/channel/seek?topic=orders&channel=mine&to=end":          403,
		"POST /v1/channel/policy?topic=orders&channel=mine":               403,
		"GET /v1/channel/deferred?topic=orders&channel=mine":              403,
		"POST /v1/channel/deferred/cancel?topic=orders&channel=mine&id=x": 403,
		"POST /v1/channel/redrive?topic=orders&channel=mine":              403,
	} {
		method, target, _ := strings.Cut(path, " ")
		status, text := b.with("mine", method, target, "")
		require.Equal(t, want, status, "%s: %s", path, text)
	}
}

// TestUsersGuardEveryDoor: the first user closes HTTP and TCP at once, and rights open what they say.
func TestUsersGuardEveryDoor(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.dial().put("orders", "before")
	status, text := b.with(b.firstSecret(), "POST", "/v1/user/create?name=shop", "")
	require.Equal(t, 409, status, text)
	b.needsSecret()
	status, text = b.with("anything", "POST", "/v1/session", "")
	require.Equal(t, 409, status, text)
	status, text = b.with("", "GET", "/v1/session", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"enforced":false,"begun":false,"identity":"anonymous","signed_in":false,"expires_ms":null,"observe":true,"administer":true}`, text)
	root := b.user("", "root", "&admin=true")
	for _, secret := range []string{"", b.firstSecret()} {
		status, _ = b.with(secret, "POST", "/v1/user/create?name=evil&admin=true", "")
		require.Equal(t, 401, status, "there is an administrator")
	}
	status, _ = b.with(b.firstSecret(), "GET", "/stats", "")
	require.Equal(t, 401, status, "the secret opens nothing else")

	status, _ = b.with("", "POST", "/pub?topic=orders", "m")
	require.Equal(t, 401, status)
	c := b.dial()
	c.command("x", "PUB orders")
	c.expect("E_AUTH_FIRST AUTH required before PUB")
	shop := b.user(root, "shop", "")
	b.grant(root, "shop", "ord*", "publish")
	c = b.dial()
	require.Equal(t, true, c.identify(map[string]any{})["auth_required"])
	c.command(shop, "AUTH")
	c.expect(`{"identity":"shop","identity_url":"","permission_count":1}`)
	c.put("orders", "x")
	c.command("", "SUB orders c")
	c.expect(`E_UNAUTHORIZED AUTH failed for SUB on "orders" "c"`)
	status, _ = b.with(shop, "POST", "/pub?topic=orders", "m")
	require.Equal(t, 200, status)
	status, _ = b.with(shop, "GET", "/v1/topic/peek?topic=orders", "")
	require.Equal(t, 403, status)
	status, _ = b.with(shop, "POST", "/topic/delete?topic=orders", "")
	require.Equal(t, 403, status)
	status, _ = b.with(root, "POST", "/topic/delete?topic=orders", "")
	require.Equal(t, 200, status)
}

// needsSecret: nobody makes the first administrator without the broker's secret, from whatever address and through whatever proxy.
func (b *broker) needsSecret() {
	b.t.Helper()
	for _, headers := range [][]string{nil, {"X-Forwarded-For", "127.0.0.1"}, {"Host", "127.0.0.1"}} {
		status, text := b.with("", "POST", "/v1/user/create?name=root&admin=true", "", headers...)
		require.Equal(b.t, 403, status, text)
		answer := map[string]string{}
		require.NoError(b.t, json.Unmarshal([]byte(text), &answer))
		require.NotEmpty(b.t, answer["detail"])
		delete(answer, "detail")
		require.Equal(b.t, map[string]string{"message": "FIRST_ADMINISTRATOR_NEEDS_SECRET", "file": filepath.Join(b.dir, access.FirstFile)}, answer)
	}
	status, _ := b.with(strings.Replace(b.firstSecret(), "first-admin.", "first-admin.x", 1)[:55], "POST", "/v1/user/create?name=root&admin=true", "")
	require.Contains(b.t, []int{401, 403}, status)
}

// TestTheFirstAdministratorWithAnAuthService: the door is not open because the service's clients are the only ones.
func TestTheFirstAdministratorWithAnAuthService(t *testing.T) {
	t.Parallel()
	b := authorized.use(t)
	b.needsSecret()
	status, text := b.with("good", "POST", "/v1/user/create?name=root&admin=true", "")
	require.Equal(t, 403, status, text)
}

// TestRevocationEndsLiveSubscriptions is finding 8.
func TestRevocationEndsLiveSubscriptions(t *testing.T) {
	t.Parallel()
	b := guarded.use(t)
	root := b.root
	reader := b.user(root, "reader", "")
	b.grant(root, "reader", "*", "consume")
	c := b.dial()
	c.command(reader, "AUTH")
	c.next()
	c.consume("revoked", "c", 10)
	status, _ := b.with(root, "POST", "/v1/acl/revoke?user=reader&topic=*&rights=consume", "")
	require.Equal(t, 200, status)
	c.expect(`E_UNAUTHORIZED AUTH failed for SUB on "revoked" "c"`)
	c.expectEnd()

	b.grant(root, "reader", "*", "consume")
	c = b.dial()
	c.command(reader, "AUTH")
	c.next()
	c.consume("revoked", "c", 10)
	status, _ = b.with(root, "POST", "/v1/user/rotate?name=reader", "")
	require.Equal(t, 200, status)
	c.expect(`E_UNAUTHORIZED AUTH failed for SUB on "revoked" "c"`)
}

// from makes the further connections come from another address.
func (b *broker) from(address string) *broker {
	b.dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(address)}
	b.http.Transport = &http.Transport{DialContext: b.dialer.DialContext}
	return b
}

// TestForeignPages is finding 4.
func TestForeignPages(t *testing.T) {
	t.Parallel()
	b := strict.use(t)
	status, _ := b.with("", "POST", "/topic/create?topic=foreign", "")
	require.Equal(t, 200, status)
	for _, headers := range [][]string{
		{"Origin", "http://evil.example.com"}, {"Sec-Fetch-Site", "cross-site"}, {"Host", "rebound.example.com"},
	} {
		status, text := b.with("", "POST", "/topic/delete?topic=foreign", "", headers...)
		require.Equal(t, 403, status, "%s %s", headers, text)
	}
	status, text := b.with("", "GET", "/v1/topic/peek?topic=foreign", "", "Host", "rebound.example.com")
	require.Equal(t, 403, status)
	require.JSONEq(t, `{"message":"HOST_NOT_ALLOWED"}`, coded(text))
	b.eventually("answers to its own name", func() bool { // when the new topic has a leader
		status, _ := b.with("", "GET", "/v1/topic/peek?topic=foreign", "", "Host", "broker.example.org")
		return status == 200
	})
	resp, err := b.http.Get(b.url("/ui"))
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	require.Contains(t, resp.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
}

// TestAudit: each administrative action stands in the log and in /v1/audit, with its cause;
// no secret and no message does, at the finest level.
func TestAudit(t *testing.T) {
	t.Parallel()
	b := guarded.use(t)
	root := b.root
	shop := b.user(root, "audited", "")
	b.with(root, "POST", "/topic/create?topic=audited", "")
	b.with(shop, "POST", "/topic/delete?topic=audited", "")
	b.with("shop.not-the-token-of-anybody", "POST", "/topic/delete?topic=audited", "")
	b.grant(root, "audited", "audited", "publish")
	b.with(shop, "POST", "/pub?topic=audited", "a-message-body")
	c := b.dial()
	c.command(shop, "AUTH")
	c.next()
	c.put("audited", "a-message-body")
	b.with(root, "PUT", "/config/log_level", "debug")
	status, text := b.with(root, "GET", "/v1/audit", "")
	require.Equal(t, 200, status)
	var v httpapi.AuditView
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	var got []string
	for _, e := range v.Entries {
		if !strings.Contains(e.Detail, "audited") && !strings.Contains(e.Action, "log_level") {
			continue // of another test
		}
		require.Contains(t, e.Remote, "127.0.0.1:")
		got = append(got, fmt.Sprintf("%s %s?%s %d %s", e.Identity, e.Action, e.Detail, e.Status, e.Result))
	}
	require.Equal(t, []string{
		"root POST /v1/user/create?name=audited 200 ok",
		"root POST /topic/create?topic=audited 200 ok",
		"audited POST /topic/delete?topic=audited 403 refused",
		"unknown POST /topic/delete?topic=audited 401 refused",
		"root POST /v1/acl/grant?rights=publish&topic=audited&user=audited 200 ok",
		"root PUT /config/log_level? 200 ok",
	}, got)
	lines := 0
	for s := bufio.NewScanner(strings.NewReader(b.logged())); s.Scan(); {
		if !strings.Contains(s.Text(), "audit=true") || !strings.Contains(s.Text(), "audited") && !strings.Contains(s.Text(), "log_level") {
			continue
		}
		lines++
		_, object, _ := strings.Cut(s.Text(), "INFO: ")
		object, _, _ = strings.Cut(object, "  audit=")
		require.True(t, json.Valid([]byte(object)), object)
	}
	require.Equal(t, len(got), lines)
	for _, secret := range []string{strings.TrimPrefix(root, "root."), strings.TrimPrefix(shop, "audited."), "not-the-token", "a-message-body"} {
		require.NotContains(t, b.logged(), secret)
	}
}

// TestBootstrapToken: a broker that is given one is closed from its first moment.
func TestBootstrapToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	token := strings.Repeat("t", 32)
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	b := start(t, "--bootstrap-admin-token-file="+file)
	status, _ := b.with("", "POST", "/v1/user/create?name=root&admin=true", "")
	require.Equal(t, 401, status, "not even from loopback")
	require.NoFileExists(t, filepath.Join(b.dir, access.FirstFile))
	status, _ = b.with(token, "POST", "/v1/user/create?name=root&admin=true", "")
	require.Equal(t, 200, status)
	status, _ = b.with("", "GET", "/stats", "")
	require.Equal(t, 401, status)
}

// TestTheLookupPortIsGuarded, too.
func TestTheLookupPortIsGuarded(t *testing.T) {
	t.Parallel()
	b := guarded.use(t)
	root := b.root
	at := "http://" + b.address(6)
	for _, path := range []string{"/topics", "/nodes", "/lookup?topic=looked-up", "/debug", "/debug/pprof/heap"} {
		status, _ := ask(t, b.http, "GET", at+path, "")
		require.Equal(t, 401, status, path)
	}
	reader := b.user(root, "looker", "")
	b.grant(root, "looker", "looked-up", "consume")
	b.with(root, "POST", "/topic/create?topic=looked-up", "")
	req, err := http.NewRequestWithContext(t.Context(), "GET", at+"/lookup?topic=looked-up", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+reader) // as go-nsq does
	resp, err := b.http.Do(req)
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
}

// TestACertificateIsAUser over TCP and HTTPS, where --tls-required=tcp-https leaves HTTP open; a certificate of nobody is a stranger's.
func TestACertificateIsAUser(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	ca.Issue("broker")
	ca.Issue("machine")
	b := start(t, "--tls-cert="+ca.File("broker.pem"), "--tls-key="+ca.File("broker.key"), "--tls-root-ca-file="+ca.File("ca.pem"),
		"--tls-client-auth-policy=require-verify", "--tls-required=tcp-https")
	status, _ := b.post("/pub?topic=orders", "x")
	require.Equal(t, 200, status)
	c := b.dial()
	c.send("NOP\n")
	c.expect("E_INVALID cannot NOP in current state (TLS required)")
	root := b.user("", "root", "&admin=true")
	b.user(root, "machine", "&certificate=true")
	b.grant(root, "machine", "orders", "publish")
	c = b.dial()
	c.identify(map[string]any{"tls_v1": true})
	require.NoError(t, c.upgrade(ca.Client("machine")))
	c.put("orders", "x")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client("machine"), DisableKeepAlives: true}}
	status, text := ask(t, client, "POST", "https://"+b.address(2)+"/pub?topic=orders", "m")
	require.Equal(t, 200, status, text)
	status, _ = ask(t, client, "POST", "https://"+b.address(2)+"/topic/delete?topic=orders", "")
	require.Equal(t, 403, status)
	ca.Issue("stranger")
	client = &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client("stranger"), DisableKeepAlives: true}}
	status, _ = ask(t, client, "POST", "https://"+b.address(2)+"/pub?topic=orders", "m")
	require.Equal(t, 401, status, "finding 1: any client certificate was an administrator")
}
