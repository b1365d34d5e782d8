package attack

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestARevokedRightInAPolicy: a user whose right to publish to a topic is revoked set a policy with that dead-letter topic
// before. The messages that it lets fail do not arrive there, it cannot set the policy again, and the alarm names it. They
// arrive when it has the right again.
func TestARevokedRightInAPolicy(t *testing.T) {
	t.Parallel()
	b := start(t, options{})
	b.create("orders")
	b.create("payments")
	author := b.user("author", "orders", "publish,consume,administer")
	right := func(change string) {
		require.Equal(t, 200, b.ask(bootstrap, "POST", "/v1/acl/"+change+"?user=author&topic=payments&rights=publish", "").status)
	}
	policy := func() int {
		return b.ask(author, "POST", "/v1/channel/policy?topic=orders&channel=c&max_attempts=1&dead_letter_topic=payments", "").status
	}
	require.Equal(t, 200, b.ask(author, "POST", "/channel/create?topic=orders&channel=c", "").status)
	require.Equal(t, 403, policy(), "without the right")
	right("grant")
	require.Equal(t, 200, policy())
	fail := func(body string) {
		require.Equal(t, 200, b.ask(author, "POST", "/pub?topic=orders", body).status)
		c := b.client(t, author)
		defer c.conn.Close()
		_, err := io.WriteString(c.conn, "SUB orders c\n")
		require.NoError(t, err)
		_, text, err := c.next()
		expect(t, "OK", text, err)
		_, err = io.WriteString(c.conn, "RDY 1\n")
		require.NoError(t, err)
		_, message, err := c.next()
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(message, body), message)
		_, err = io.WriteString(c.conn, "REQ "+message[10:26]+" 0\n")
		require.NoError(t, err)
		_, err = io.WriteString(c.conn, "CLS\n")
		require.NoError(t, err)
		_, text, err = c.next()
		expect(t, "CLOSE_WAIT", text, err)
	}
	fail("while it may")
	b.until("the dead letter arrives", func() bool { return b.messages("payments") == 1 })

	right("revoke")
	require.Equal(t, 403, b.ask(author, "POST", "/pub?topic=payments", "forged").status, "directly")
	require.Equal(t, 403, policy(), "by the policy again")
	fail("forged")
	b.until("the alarm names it", func() bool {
		return strings.Contains(b.ask(bootstrap, "GET", "/v1/console/overview", "").body, "user author set its policy and may no longer publish to payments")
	})
	pause(notYet)
	require.Equal(t, 1, b.messages("payments"), "messages of a user without the right arrived")

	right("grant")
	b.until("the held message arrives", func() bool { return b.messages("payments") == 2 })
}

// TestAStolenCookie: another server on a host gets the console's cookie from the browser, because a cookie belongs to all ports
// of a host. A copy opens nothing from another address, over another connection than TLS, with a changed byte, at another broker's
// port, or after the sign-out. From the operator's own address it opens everything until then: docs/SECURITY.md says so.
func TestAStolenCookie(t *testing.T) {
	t.Parallel()
	b, other := start(t, options{}), start(t, options{})
	b.create("orders")
	sign := func(at *broker, url string) *http.Cookie {
		req, err := http.NewRequest("POST", url+"/v1/session", http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+bootstrap)
		resp, err := at.http.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Len(t, resp.Cookies(), 1)
		cookie := resp.Cookies()[0]
		require.True(t, cookie.HttpOnly && cookie.SameSite == http.SameSiteStrictMode && cookie.Domain == "" && cookie.Path == "/", "%+v", cookie)
		return cookie
	}
	signed := sign(b, "http://"+b.address(httpPort))
	cookie := signed.Name + "=" + signed.Value
	from := func(address string) *http.Client {
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, to string) (net.Conn, error) { return dial(address, to) }}
		return &http.Client{Transport: transport}
	}
	try := func(client *http.Client, at *broker, cookie, method, path string) int {
		a, err := request(client, "", method, "http://"+at.address(httpPort)+path, "", "Cookie", cookie)
		require.NoError(t, err)
		return a.status
	}
	for _, path := range []string{"/topic/delete?topic=orders", "/topic/empty?topic=orders", "/v1/user/create?name=thief&admin=true", "/v1/broker/decommission?node=n1",
		"/v1/acl/revoke?user=root&cluster=administer", "/v1/topic/recover?topic=orders"} {
		require.Equal(t, 401, try(from("127.0.0.2"), b, cookie, "POST", path), "from another address: %s", path)
		require.Equal(t, 401, try(other.http, other, cookie, "POST", path), "at another broker: %s", path)
		require.Equal(t, 401, try(b.http, b, cookie[:len(cookie)-1]+"_", "POST", path), "another cookie: %s", path)
	}
	require.Equal(t, 401, try(from("127.0.0.2"), b, cookie, "GET", "/v1/cluster"))
	require.Equal(t, 200, try(b.http, b, cookie, "GET", "/v1/cluster"), "the attempts ended the operator's sign-in")
	require.Equal(t, 200, try(b.http, b, cookie, "POST", "/topic/pause?topic=orders"), "from its own address it is the operator's")
	require.Equal(t, 200, try(b.http, b, cookie, "POST", "/v1/session/logout"))
	require.Equal(t, 401, try(b.http, b, cookie, "POST", "/topic/pause?topic=orders"), "after the sign-out")
	require.Equal(t, 401, try(b.http, b, cookie, "GET", "/v1/cluster"))

	tls := start(t, options{tls: true})
	secure := sign(tls, "https://"+tls.address(httpsPort))
	require.True(t, strings.HasPrefix(secure.Name, "__Host-") && secure.Secure, "no other port sets it over a plain connection, or gets it so: %s", secure.Name)
}
