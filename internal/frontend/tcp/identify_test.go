package tcp_test

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func withTLS(t testing.TB, change func(*tls.Config)) func(*setup) {
	return func(s *setup) {
		ca := certs.New(t)
		ca.Issue("server")
		s.options.TLS = &tls.Config{Certificates: ca.Client("server").Certificates}
		if change != nil {
			change(s.options.TLS)
		}
	}
}

// startTLS upgrades the client and expects the OK inside TLS.
func (c *client) startTLS(config *tls.Config) {
	c.t.Helper()
	config.InsecureSkipVerify = true
	conn := tls.Client(c.conn, config)
	require.NoError(c.t, conn.Handshake())
	c.r, c.w = bufio.NewReader(conn), conn
	c.response("OK")
}

func TestIdentifyReply(t *testing.T) {
	b := newBroker(t)
	require.Equal(t, "OK", b.dial().identify(`{"snappy":true}`))
	require.Equal(t, `{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000,`+
		`"tls_v1":false,"deflate":false,"deflate_level":6,"max_deflate_level":6,"snappy":false,"sample_rate":0,`+
		`"auth_required":false,"output_buffer_size":16384,"output_buffer_timeout":250,"topology_region":"","topology_zone":""}`,
		b.dial().identify(`{"feature_negotiation":true,"tls_v1":true,"short_id":"x"}`))
}

// IDENTIFY may be repeated before SUB.
func TestOutputBufferingValidity(t *testing.T) {
	c := newBroker(t).dial()
	require.Contains(t, c.identify(`{"feature_negotiation":true,"output_buffer_size":65536,"output_buffer_timeout":30000}`),
		`"output_buffer_size":65536,"output_buffer_timeout":30000,`)
	require.Contains(t, c.identify(`{"feature_negotiation":true,"output_buffer_size":-1,"output_buffer_timeout":-1}`),
		`"output_buffer_size":1,"output_buffer_timeout":0,`)
	require.Contains(t, c.identify(`{"feature_negotiation":true}`), `"output_buffer_size":1,"output_buffer_timeout":0,`)
	c.publish("t", "m")
	c.subscribe("t", "ch", "1")
	c.message()
}

// exercise publishes and consumes a large message through the negotiated stream.
func (c *client) exercise() {
	c.t.Helper()
	body := make([]byte, 128<<10)
	_, _ = rand.Read(body) // never fails
	c.publish("t", string(body), repeat("a", 100_000), "short")
	c.subscribe("t", "ch", "3")
	require.Equal(c.t, string(body), c.message().body)
	require.Equal(c.t, repeat("a", 100_000), c.message().body)
	require.Equal(c.t, "short", c.message().body)
}

func TestCompressionAndTLS(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, compression := range []string{"none", "snappy", "deflate"} {
			t.Run(fmt.Sprintf("tls=%t %s", secure, compression), func(t *testing.T) {
				c := newBroker(t, withTLS(t, nil)).dial()
				reply := c.identify(fmt.Sprintf(
					`{"feature_negotiation":true,"tls_v1":%t,"snappy":%t,"deflate":%t,"deflate_level":9}`,
					secure, compression == "snappy", compression == "deflate"))
				require.Contains(t, reply, fmt.Sprintf(`"tls_v1":%t,"deflate":%t,"deflate_level":6,"max_deflate_level":6,"snappy":%t,`,
					secure, compression == "deflate", compression == "snappy"))
				if secure {
					c.startTLS(&tls.Config{})
				}
				c.compress(compression)
				c.exercise()
			})
		}
	}
}

func (c *client) compress(how string) {
	c.t.Helper()
	if how == "none" {
		return
	}
	c.w, c.r = pack(c.t, how, c.w), unpack(how, c.r)
	c.response("OK")
}

// packer compresses written bytes. Flush passes all of them on.
type packer interface {
	io.Writer
	Flush() error
}

func pack(t testing.TB, how string, w io.Writer) packer {
	if how == "snappy" {
		return s2.NewWriter(w, s2.WriterSnappyCompat(), s2.WriterConcurrency(1))
	}
	p, err := flate.NewWriter(w, 6)
	require.NoError(t, err)
	return p
}

func unpack(how string, r io.Reader) io.Reader {
	if how == "snappy" {
		return s2.NewReader(r)
	}
	return flate.NewReader(r)
}

// rushed is a connection whose deadlines for reads and writes together, those of a handshake,
// run out at once. It records when they should.
type rushed struct {
	net.Conn
	deadlines chan time.Time
}

func (e *rushed) SetDeadline(at time.Time) error {
	if !at.IsZero() {
		e.deadlines <- at
		at = time.Unix(1, 0)
	}
	return e.Conn.SetDeadline(at)
}

// TestSilentHandshake: a handshake has the time of a login, and the broker reports one that does not
// begin. The test has no bubble: a mutex is locked during a handshake, and stops a bubble's time.
func TestSilentHandshake(t *testing.T) {
	e := &rushed{deadlines: make(chan time.Time, 1)}
	c := newBroker(t, piped, withTLS(t, nil), func(s *setup) {
		s.wrap = func(conn net.Conn) net.Conn { e.Conn = conn; return e }
	}).dial()
	before := time.Now()
	require.Contains(t, c.identify(`{"feature_negotiation":true,"tls_v1":true}`), `"tls_v1":true`)
	f := c.read()
	due := wait.For(t, e.deadlines, "the deadline of a handshake")
	require.True(t, !due.Before(before.Add(wait.Limit)) && !due.After(time.Now().Add(wait.Limit)))
	require.Equal(t, uint32(1), f.kind)
	require.Regexp(t, "^E_IDENTIFY_FAILED IDENTIFY failed .*i/o timeout$", f.data)
	c.closed()
}

func TestTLSRequired(t *testing.T) {
	b := newBroker(t, withTLS(t, nil), func(s *setup) { s.options.TLSRequired = config.TLSRequiredAll })
	for _, verb := range []string{"SUB", "NOP", "PUB", "X"} {
		c := b.dial()
		c.send(verb + " t c\n")
		c.fatal("E_INVALID cannot " + verb + " in current state (TLS required)")
	}
	c := b.dial()
	c.identify(`{"feature_negotiation":true,"tls_v1":true}`)
	c.startTLS(&tls.Config{})
	c.exercise()
}

func TestTLSClientCertificates(t *testing.T) {
	ca, otherCA := certs.New(t), certs.New(t)
	ca.Issue("client")
	otherCA.Issue("client")
	b := newBroker(t, withTLS(t, func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs, c.MaxVersion = tls.RequireAndVerifyClientCert, ca.Client("").RootCAs, tls.VersionTLS12
	}))
	for _, config := range []*tls.Config{ca.Client(""), otherCA.Client("client")} {
		config.InsecureSkipVerify = true
		c := b.dial()
		c.identify(`{"feature_negotiation":true,"tls_v1":true}`)
		require.Error(t, tls.Client(c.conn, config).Handshake())
	}
	c := b.dial()
	c.identify(`{"feature_negotiation":true,"tls_v1":true}`)
	c.startTLS(ca.Client("client"))
	c.publish("t", "m")
	p := b.handler.Producers()
	require.True(t, p[0].TLS)
	require.Equal(t, "TLS1.2", p[0].TLSVersion)
}

// The tests of timeouts run on synctest's clock, over pipes.
func piped(s *setup) { s.pipe = true }

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBroker(t, piped).dial()
		c.identify(`{"heartbeat_interval":1000}`)
		start := time.Now()
		for range 5 { // the NOPs keep the connection open past the deadline of 2 s
			c.response("_heartbeat_")
			c.send("NOP\n")
		}
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

// The interval of a second IDENTIFY does not reach the writer.
func TestHeartbeatOfTheFirstIdentify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBroker(t, piped).dial()
		c.identify(`{"heartbeat_interval":1000}`)
		synctest.Wait()
		c.identify(`{"heartbeat_interval":5000}`)
		start := time.Now()
		c.response("_heartbeat_")
		require.Equal(t, time.Second, time.Since(start))
	})
}

// Without IDENTIFY the interval is 30 s.
func TestDefaultHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBroker(t, piped).dial()
		require.NoError(t, c.conn.SetDeadline(time.Time{}))
		start := time.Now()
		c.response("_heartbeat_")
		require.Equal(t, 30*time.Second, time.Since(start))
	})
}

// A silent client is closed after twice the interval. Between two commands no error frame is
// sent; a partial command counts as silence too.
func TestClientTimeout(t *testing.T) {
	for half, want := range map[string]string{
		"":                          "",
		"PUB t":                     "",
		"PUB t\n\x00\x00\x00\x05ab": "E_BAD_MESSAGE PUB failed to read message body",
		"NOP\nNOP\nPUB t\n\x00\x00": "E_BAD_MESSAGE PUB failed to read message body size",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newBroker(t, piped).dial()
			c.identify(`{"heartbeat_interval":1000}`)
			start := time.Now()
			if half != "" {
				c.send(half)
			}
			for f, err := c.next(); ; f, err = c.next() {
				if err != nil {
					break
				}
				if f.data != "_heartbeat_" {
					require.Equal(t, frame{1, want}, f)
				}
			}
			require.GreaterOrEqual(t, time.Since(start), 2*time.Second)
			require.LessOrEqual(t, time.Since(start), 3*time.Second)
		})
	}
}

// The broker stops reading a client that causes errors and reads none of them.
func TestUnreadErrorsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, piped, func(s *setup) { s.options.MaxPendingAnswers = 100 })
		c := b.dial()
		require.NoError(t, c.conn.SetDeadline(time.Now().Add(time.Second))) // the broker closes later
		c.subscribe("t", "ch", "0")
		var err error
		for i := 0; err == nil; i++ {
			require.Less(t, i, 1000)
			_, err = io.WriteString(c.conn, repeat("FIN 0123456789abcdef\n", 100))
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

// A client that never reads is closed when a write has taken longer than the heartbeat interval.
func TestClientThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, piped)
		c := b.dial()
		c.identify(`{"heartbeat_interval":1000}`)
		start := time.Now()
		var err error
		for err == nil {
			_, err = io.WriteString(c.conn, "PUB t\n"+sized("m"))
		}
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.InDelta(t, 1, time.Since(start).Seconds(), 0.1)
		synctest.Wait()
		require.Zero(t, b.handler.Connections())
	})
}

func TestHeartbeatDisabled(t *testing.T) {
	c := newBroker(t).dial()
	c.identify(`{"heartbeat_interval":-1}`)
	c.publish("t", "m")
	c.send("SUB t ch\n")
	c.fatal("E_INVALID cannot SUB with heartbeats disabled")
}

// TestIdentifyAgain: a second IDENTIFY changes only the values that it names.
func TestIdentifyAgain(t *testing.T) {
	b := newBroker(t)
	c := b.dial()
	c.identify(`{"heartbeat_interval":-1,"msg_timeout":5000,"output_buffer_size":64,"output_buffer_timeout":1000}`)
	reply := c.identify(`{"feature_negotiation":true}`)
	require.Contains(t, reply, `"msg_timeout":5000,`)
	require.Contains(t, reply, `"output_buffer_size":64,"output_buffer_timeout":1000,`)
	c.send("SUB t ch\n")
	c.fatal("E_INVALID cannot SUB with heartbeats disabled")
}

func TestMaxHeartbeatInterval(t *testing.T) {
	b := newBroker(t, func(s *setup) { s.options.MaxHeartbeatInterval = 5 * time.Minute })
	b.dial().identify(`{"heartbeat_interval":300000}`)
	c := b.dial()
	c.send("IDENTIFY\n" + sized(`{"heartbeat_interval":300001}`))
	c.fatal("E_BAD_BODY IDENTIFY heartbeat interval (300001) is invalid")
}

// authService is a fake auth service that records its queries.
type authService struct {
	*httptest.Server
	answer atomic.Pointer[string]
	asked  atomic.Pointer[url.Values]
}

func newAuthService(t *testing.T, answer string) (*authService, func(*setup)) {
	a := &authService{}
	a.answer.Store(&answer)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		a.asked.Store(&q)
		_, _ = w.Write([]byte(*a.answer.Load()))
	}))
	t.Cleanup(a.Close)
	return a, func(s *setup) {
		s.backend.Guard = guard.New(guard.Options{External: a.client(), Log: s.backend.Log})
	}
}

func (a *authService) client() *authd.Client {
	return authd.New(config.AuthService{AuthHTTPAddress: []string{a.URL}}, nil)
}

func TestAuth(t *testing.T) {
	service, with := newAuthService(t, `{"ttl":60,"identity":"me","identity_url":"http://me","authorizations":[`+
		`{"topic":"^t$","channels":["^c$"],"permissions":["subscribe"]},`+
		`{"topic":"^p$","channels":[".*"],"permissions":["publish"]}]}`)
	b := newBroker(t, with)
	authorized := func() *client {
		c := b.dial()
		require.Contains(t, c.identify(`{"feature_negotiation":true}`), `"auth_required":true`)
		c.send("AUTH\n" + sized("s3cret"))
		c.response(`{"identity":"me","identity_url":"http://me","permission_count":2}`)
		return c
	}
	c := authorized()
	require.Equal(t, url.Values{"remote_ip": {"127.0.0.1"}, "tls": {"false"}, "secret": {"s3cret"}, "common_name": {""}},
		*service.asked.Load())
	c.publish("p", "m")
	c.send("SUB t c\n")
	c.response("OK")
	for send, want := range map[string]string{
		"SUB t d\n":                    `E_UNAUTHORIZED AUTH failed for SUB on "t" "d"`,
		"PUB t\n" + sized("m"):         `E_UNAUTHORIZED AUTH failed for PUB on "t" ""`,
		"DPUB t 1\n" + sized("m"):      `E_UNAUTHORIZED AUTH failed for DPUB on "t" ""`,
		"MPUB t\n" + multi("m"):        `E_UNAUTHORIZED AUTH failed for MPUB on "t" ""`,
		"AUTH\n" + sized("s3cret"):     `E_INVALID AUTH already set`,
		"PUB t\n" + "\x00\x00\x00\x00": `E_BAD_MESSAGE PUB invalid message body size 0`,
	} {
		c := authorized()
		c.send(send)
		c.fatal(want)
	}
	for verb, send := range map[string]string{
		"SUB": "SUB t c\n", "PUB": "PUB p\n" + sized("m"), "DPUB": "DPUB p 1\n" + sized("m"), "MPUB": "MPUB p\n" + multi("m"),
	} {
		c := b.dial()
		c.send(send)
		c.fatal("E_AUTH_FIRST AUTH required before " + verb)
	}
}

// TestNoAddress: a client at a unix socket has no address, neither in the auth query nor in /stats.
func TestNoAddress(t *testing.T) {
	service, with := newAuthService(t, `{"ttl":60,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish"]}]}`)
	b := newBroker(t, with, func(s *setup) { s.unix = true })
	c := b.dial()
	c.send("AUTH\n" + sized("s3cret"))
	c.read()
	require.Equal(t, []string{""}, (*service.asked.Load())["remote_ip"])
	c.publish("t", "m")
	p := b.handler.Producers()
	require.Len(t, p, 1)
	require.Equal(t, []string{"", ""}, []string{p[0].ClientID, p[0].Hostname})
}

func TestAuthRefused(t *testing.T) {
	for answer, want := range map[string]string{
		`{"ttl":60,"authorizations":[]}`: "E_UNAUTHORIZED AUTH no authorizations found",
		`{"ttl":0,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish"]}]}`:     noAuthService,
		`{"ttl":60,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["everything"]}]}`: noAuthService,
		`{"ttl":60,"authorizations":[{"topic":"(","channels":[".*"],"permissions":["publish"]}]}`:     noAuthService,
		`x`: noAuthService,
	} {
		_, with := newAuthService(t, answer)
		c := newBroker(t, with).dial()
		c.send("AUTH\n" + sized("s"))
		c.fatal(want)
	}
}

// TestAuthIsAskedAgain when its answer has ended.
func TestAuthIsAskedAgain(t *testing.T) {
	judged(t, nil, func(j *judging, login func() *client) {
		c := login()
		for n := range 3 {
			c.publish("t", "m")
			c.publish("t", "m")
			require.EqualValues(t, n+1, j.asked.Load())
			time.Sleep(time.Minute)
		}
	})
}
