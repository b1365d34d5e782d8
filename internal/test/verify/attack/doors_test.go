package attack

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
)

// body is the text of a message that no attacker may see.
const body = "the-body-of-a-protected-message"

// service is an auth service that allows publishing and subscribing to clients with the
// secret "good", and counts the queries.
func service(t *testing.T) (address string, queries *atomic.Int32) {
	queries = &atomic.Int32{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries.Add(1)
		if r.FormValue("secret") != "good" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, `{"ttl":60,"identity":"joe","authorizations":[{"topic":"^orders$","channels":[".*"],"permissions":["publish","subscribe"]}]}`)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), queries
}

// TestEveryRouteIsClosed is finding 1: every route of both HTTP doors, for a stranger, for a
// client with a wrong secret, and for one that the auth service lets publish and subscribe.
func TestEveryRouteIsClosed(t *testing.T) {
	t.Parallel()
	address, _ := service(t)
	b := start(t, options{flags: []string{"--auth-http-address=" + address}})
	b.create("orders")
	require.Equal(t, 200, b.ask("good", "POST", "/pub?topic=orders", body).status, "the client of the auth service")
	stranger, wrong, joe := 0, 0, 0
	for door, rules := range map[string][]httpapi.Route{b.address(httpPort): httpapi.Routes(), b.address(lookupPort): httpapi.LookupRoutes()} {
		for _, rule := range rules {
			path := strings.Replace(rule.Path, ":opt", "nsqlookupd_tcp_addresses", 1) + "?topic=orders&channel=c&partition=0&from=n1&confirm=orders/0&node=n1&name=eve&admin=true&user=eve&cluster=observe"
			what := rule.Method + " " + door + rule.Path
			if rule.Right == access.Open {
				a, err := request(b.http, "", rule.Method, "http://"+door+rule.Path, "")
				require.NoError(t, err)
				require.NotContains(t, a.body, body, what)
				if rule.Method == "GET" {
					require.Equal(t, 200, a.status, what)
				} else {
					require.Less(t, a.status, 500, what) // a login without a name is refused
				}
				continue
			}
			a, err := request(b.http, "", rule.Method, "http://"+door+path, "[]")
			require.NoError(t, err)
			require.NotContains(t, a.body, body, what)
			require.Equal(t, 401, a.status, "%s: %s", what, a.body)
			stranger++
			if wrong < 5 { // further ones are slowed down
				wrong++
				a, err = request(b.http, "wrong", rule.Method, "http://"+door+path, "[]")
				require.NoError(t, err)
				require.Contains(t, []int{401, 429}, a.status, "%s: %s", what, a.body)
			}
			if rule.Right == access.Administer || rule.Right == access.AdministerCluster || rule.Right == access.Observe {
				a, err = request(b.http, "good", rule.Method, "http://"+door+path, "[]")
				require.NoError(t, err)
				require.Equal(t, 403, a.status, "%s: %s", what, a.body)
				joe++
			}
		}
	}
	require.Greater(t, stranger, 70)
	require.Greater(t, joe, 60)
	require.Equal(t, 1, b.messages("orders"), "nothing was deleted, emptied or stored")
	c := b.client(t, "")
	text, err := c.command("PUB orders", "x")
	expect(t, "E_AUTH_FIRST", text, err)
}

// TestAnyCertificateIsNobody is finding 1: with require-verify, a certificate of the clients'
// authority is not an administrator.
func TestAnyCertificateIsNobody(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	ca.IssueClient("shop")
	b := prepare(t, "n1", options{})
	b.trust(ca)
	b.args = append(b.args, "--tls-client-auth-policy=require-verify", "--tls-root-ca-file="+ca.File("ca.pem"))
	b.http.Transport.(*http.Transport).TLSClientConfig = ca.Client("shop")
	b.run()
	b.ready()
	b.create("orders")
	for _, request := range []string{"POST /topic/delete?topic=orders", "GET /stats", "GET /v1/topic/peek?topic=orders", "PUT /config/log_level", "GET /debug/pprof/heap", "POST /v1/broker/decommission?node=n1", "POST /pub?topic=orders"} {
		method, path, _ := strings.Cut(request, " ")
		require.Equal(t, 401, b.ask("", method, path, "debug").status, request)
	}
	b.http.Transport.(*http.Transport).TLSClientConfig = ca.Client("")
	_, err := b.try(bootstrap, "GET", "/stats", "")
	require.Error(t, err, "no certificate")
}

// TestOldTLSIsRefused is finding 8: TLS 1.0 and 1.1, at the HTTPS port and behind IDENTIFY; and
// the lookup port does not answer plain text where TLS is required.
func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t, options{tls: true})
	for version, good := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		config := b.ca.Client("")
		config.MinVersion, config.MaxVersion = version, version
		conn, err := dial("", b.address(httpsPort))
		require.NoError(t, err)
		_, err = secure(conn, config)
		require.Equal(t, good, err == nil, "HTTPS with %s: %v", tls.VersionName(version), err)
		_ = conn.Close()

		conn, err = dial("", b.address(tcpPort))
		require.NoError(t, err)
		c := &client{conn: conn, in: bufio.NewReader(conn)}
		_, err = io.WriteString(conn, "  V2")
		require.NoError(t, err)
		_, err = c.command("IDENTIFY", `{"feature_negotiation":true,"tls_v1":true}`)
		require.NoError(t, err)
		_, err = secure(conn, config)
		require.Equal(t, good, err == nil, "TCP with %s: %v", tls.VersionName(version), err)
		_ = conn.Close()
	}
	for _, port := range []int{httpPort, lookupPort} {
		for _, path := range []string{"/topics", "/nodes", "/lookup?topic=t", "/debug"} {
			a, err := request(b.http, bootstrap, "GET", "http://"+b.address(port)+path, "")
			require.NoError(t, err)
			require.Equal(t, 403, a.status, path)
			require.Contains(t, a.body, "TLS_REQUIRED")
		}
	}
}

// TestBadLogins is finding 8: bad logins are few queries, and hold up no other client, also one of the same address that
// the broker does not know yet.
func TestBadLogins(t *testing.T) {
	address, queries := service(t)
	b := start(t, options{flags: []string{"--auth-http-address=" + address}})
	b.create("orders")
	good := b.client(t, "good")
	logins := 400
	if env.Long() {
		logins = 10_000
	}
	token := b.user("shop", "orders", "publish") // a name that exists
	prefix, secret, _ := strings.Cut(token, ".")
	began, memory, asked := time.Now(), b.memory(), queries.Load()
	var refused, slowed atomic.Int64
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			web := &http.Client{Timeout: limit}
			defer web.CloseIdleConnections()
			for i := worker; i < logins; i += 8 {
				bad := fmt.Sprintf("%s.%0*d", prefix, len(secret), i)
				if i%2 == 0 {
					a, err := request(web, bad, "GET", "http://"+b.address(httpPort)+"/stats", "")
					switch {
					case err == nil && a.status == 429:
						slowed.Add(1)
					case err == nil && a.status == 401:
						refused.Add(1)
					}
					continue
				}
				c, err := b.connect("")
				if err != nil {
					continue
				}
				text, err := c.command("AUTH", bad)
				switch {
				case err == nil && strings.Contains(text, "too many logins"):
					slowed.Add(1)
				case err == nil && strings.HasPrefix(text, "E_AUTH_FAILED"):
					refused.Add(1)
				}
				_ = c.conn.Close()
			}
		})
	}
	b.until("the bad logins are many", func() bool { return refused.Load()+slowed.Load() > 20 })
	for range 20 {
		require.Equal(t, 200, b.ask(token, "POST", "/pub?topic=orders", "m").status, "a valid token of the same address")
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }() // ends with the logins
	for attacked := true; attacked; {           // it answers the heartbeats, too
		select {
		case <-done:
			attacked = false
		case <-time.After(time.Second):
		}
		_ = good.conn.SetDeadline(time.Now().Add(limit))
		require.NoError(t, good.put("orders", "m"), "a client that was there before")
	}
	took := time.Since(began)
	t.Logf("%d bad logins in %s: %d judged, %d refused unseen, %d queries of the auth service, %d MiB more", logins, took.Round(time.Millisecond), refused.Load(), slowed.Load(), queries.Load(), (b.memory()-memory)>>20)
	require.EqualValues(t, logins, refused.Load()+slowed.Load(), "each has an answer")
	paced := 50*took.Seconds() + 20 // one each 20 ms, five before, and those at the same time
	require.Less(t, float64(queries.Load()-asked), paced)
	require.Equal(t, 200, b.ask("good", "POST", "/pub?topic=orders", "m").status, "a secret that was good lately")
	b.until("the broker is ready", b.isReady)
}

// TestRevokedAtOnce is finding 8: a deleted user's live subscription ends, and so does a poll that waits.
func TestRevokedAtOnce(t *testing.T) {
	t.Parallel()
	b := start(t, options{})
	b.create("orders")
	token := b.user("reader", "orders", "consume")
	c := b.client(t, token)
	_, err := io.WriteString(c.conn, "SUB orders c\n")
	require.NoError(t, err)
	_, text, err := c.next()
	expect(t, "OK", text, err)
	polled := make(chan answer, 1)
	go func() {
		a, _ := b.try(token, "POST", "/v1/consume?topic=orders&channel=c&wait=5m", "") // its client waits for ten seconds
		polled <- a
	}()
	b.until("the poll waits", func() bool {
		return strings.Contains(b.ask(bootstrap, "GET", "/stats?format=json&topic=orders", "").body, `"version":"HTTP"`)
	})
	require.Equal(t, 200, b.ask(bootstrap, "POST", "/v1/user/delete?name=reader", "").status)
	require.Equal(t, 403, (<-polled).status)
	_, text, err = c.next()
	expect(t, "E_UNAUTHORIZED", text, err)
	require.True(t, closedWithin(c.conn, limit))
	again, err := b.connect("")
	require.NoError(t, err)
	defer again.conn.Close()
	text, err = again.command("AUTH", token)
	expect(t, "E_AUTH_FAILED", text, err)
}

// TestLookupdAddresses is finding 3: a stranger cannot change the list; an administrator's
// mistake takes neither files nor memory; a false nsqlookupd does not direct the broker's
// requests elsewhere, and makes no channels by the thousand.
func TestLookupdAddresses(t *testing.T) {
	t.Parallel()
	b := start(t, options{})
	require.Equal(t, 401, b.ask("", "PUT", "/config/nsqlookupd_tcp_addresses", `["127.0.0.1:1"]`).status)
	var many []string
	for i := range 45_000 {
		many = append(many, fmt.Sprintf("127.0.0.1:%d", 1+i))
	}
	text, err := json.Marshal(many)
	require.NoError(t, err)
	files, memory := b.openFiles(), b.memory()
	a, err := b.try(bootstrap, "PUT", "/config/nsqlookupd_tcp_addresses", string(text))
	if err == nil { // else the broker closed the connection while this client was still writing
		require.GreaterOrEqual(t, a.status, 400, "45,000 addresses: %s", tail(a.body, 200))
	}
	require.Equal(t, "[]", strings.TrimSpace(b.ask(bootstrap, "GET", "/config/nsqlookupd_tcp_addresses", "").body))
	require.Less(t, b.openFiles(), files+64)
	require.Less(t, b.memory(), memory+64<<20)

	var lured atomic.Int32 // requests to a machine that the broker reaches and the attacker does not
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { lured.Add(1) }))
	defer inside.Close()
	var asked atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.Contains(r.URL.RawQuery, "redirected") {
			http.Redirect(w, r, inside.URL+"/secret", http.StatusFound)
			return
		}
		var names []string
		for i := range 5000 {
			names = append(names, fmt.Sprintf("channel-%d", i))
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"channels": names})
	}))
	defer web.Close()
	lookupd := falseLookupd(t, web.Listener.Addr().(*net.TCPAddr).Port)
	require.Equal(t, 200, b.ask(bootstrap, "PUT", "/config/nsqlookupd_tcp_addresses", fmt.Sprintf("[%q]", lookupd.address)).status)
	b.until("the broker has registered", func() bool { return lookupd.identified.Load() > 0 })
	for i := 0; asked.Load() == 0 && i < 100; i++ { // the broker reads the daemon's answer in the meantime
		b.create(fmt.Sprint("early-", i))
	}
	before := asked.Load()
	b.create("redirected")
	b.create("flooded")
	require.GreaterOrEqual(t, asked.Load(), before+2, "the broker asks the daemon")
	pause(notYet)
	require.Zero(t, lured.Load(), "the broker follows a redirection")
	var s struct {
		Topics []struct {
			Channels []struct{} `json:"channels"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(b.ask(bootstrap, "GET", "/stats?format=json&topic=flooded", "").body), &s))
	require.NotEmpty(t, s.Topics)
	require.LessOrEqual(t, len(s.Topics[0].Channels), 2000, "channels that a false nsqlookupd names")
}

// daemon is a false nsqlookupd.
type daemon struct {
	address    string
	identified atomic.Int32
}

func falseLookupd(t *testing.T, httpPort int) *daemon {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &daemon{address: l.Addr().String()}
	var serving sync.WaitGroup
	var conns sync.Map
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Store(conn, true)
			serving.Go(func() { d.serve(conn, httpPort) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Range(func(conn, _ any) bool { _ = conn.(net.Conn).Close(); return true })
		serving.Wait()
	})
	return d
}

func (d *daemon) serve(conn net.Conn, httpPort int) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if _, err := in.Discard(4); err != nil {
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		reply := "OK"
		if strings.HasPrefix(line, "IDENTIFY") {
			var size uint32
			if binary.Read(in, binary.BigEndian, &size) != nil {
				return
			}
			_, _ = in.Discard(int(size))
			d.identified.Add(1)
			reply = fmt.Sprintf(`{"broadcast_address":"127.0.0.1","hostname":"x","http_port":%d,"tcp_port":1,"version":"1.3.0"}`, httpPort)
		}
		if _, err := io.WriteString(conn, nsqtext.Sized(reply)); err != nil {
			return
		}
	}
}
