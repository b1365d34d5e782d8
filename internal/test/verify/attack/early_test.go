package attack

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
)

// loginTime is --login-timeout of these tests, by its environment variable.
const loginTime = 1 * time.Second

// TestSilentConnections is finding 6: at every port, a connection that says nothing, or that
// stops within its first words, ends. With 1,024 files, 576 silent ones lock no client out,
// and 300 idle HTTP connections no probe.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%t", tls), func(t *testing.T) {
			t.Parallel()
			b := start(t, options{tls: tls, files: floodedFiles, env: []string{"NSQD_LOGIN_TIMEOUT=" + loginTime.String()}})
			b.create("orders")
			type held struct {
				net.Conn
				what string
			}
			var all []held
			hold := func(at target, say string) {
				conn, err := dial("127.66.0.9", b.address(at.port))
				require.NoError(t, err)
				_, _ = io.WriteString(conn, say) // the broker may have closed it
				all = append(all, held{conn, fmt.Sprintf("%s after %q", at.name, say)})
			}
			for _, at := range targets {
				if at.port == httpsPort && !tls {
					continue
				}
				n := 20
				switch at.port {
				case tcpPort:
					n = 600
				case httpPort:
					n = 300
				}
				for range n {
					hold(at, "")
				}
				for _, say := range []string{at.opening, at.opening[:1], "\x16\x03\x01\x02\x00\x01"} {
					if at.port == etcdPort && !tls {
						continue // in plain text, which is for loopback, whoever speaks there may write to the metadata
					}
					hold(at, say)
				}
			}
			newcomer := b.client(t, bootstrap)
			require.NoError(t, newcomer.put("orders", "m"), "a newcomer beside 600 silent connections")
			require.Equal(t, 200, b.ask("", "GET", "/healthz", "").status)
			require.Less(t, b.openFiles(), floodedFiles-50)
			deadline := time.Now().Add(env.Within(t, 10*loginTime))
			for _, conn := range all {
				require.True(t, closedWithin(conn.Conn, time.Until(deadline)), "open: %s", conn.what)
				_ = conn.Close()
			}
			require.True(t, b.isReady())
			require.NoError(t, newcomer.put("orders", "m"), "a client that has logged in stays")
			b.terminate()
		})
	}
}

// TestOversizeFields is finding 6: a client that has not logged in keeps no memory by what it
// says of itself, by bodies that it only announces, or by a line of many parameters.
func TestOversizeFields(t *testing.T) {
	t.Parallel()
	b := start(t, options{})
	long := strings.Repeat("x", 60<<10)
	opening := "NOP" + strings.Repeat(" ", 16<<10-8) + "\n"
	clients, most := 100, int64(24<<20)
	for what, say := range map[string]string{
		"a user agent, a hostname and a client id": "IDENTIFY\n" + nsqtext.Sized(fmt.Sprintf(`{"client_id":%q,"hostname":"%s","user_agent":%q}`, long[:15<<10], long[:15<<10], long[:15<<10])),
		"fields of 1 MiB":                          "IDENTIFY\n" + nsqtext.Sized(fmt.Sprintf(`{"user_agent":"%s"}`, strings.Repeat("x", 1<<20))),
		"half an IDENTIFY of 5 MiB":                "IDENTIFY\n\x00\x50\x00\x00{" + long,
		"half an AUTH of 5 MiB":                    "AUTH\n\x00\x50\x00\x00" + long,
		"a line of 16,000 parameters":              opening,
	} {
		memory := b.memory()
		var all []net.Conn
		for range clients {
			conn, err := dial("", b.address(tcpPort))
			require.NoError(t, err)
			_, _ = io.WriteString(conn, "  V2"+say) // it may be refused within
			all = append(all, conn)
		}
		pause(notYet)
		grown := b.memory() - memory
		t.Logf("%s, %d clients: %d KiB more, %d a client", what, clients, grown>>10, grown>>10/int64(clients))
		require.Less(t, grown, most, what)
		for _, conn := range all {
			_ = conn.Close()
		}
	}
	c := b.client(t, "")
	text, err := c.command("IDENTIFY", fmt.Sprintf(`{"client_id":%q,"user_agent":%q}`, long[:15<<10], long[:15<<10]))
	expect(t, "OK", text, err)
	text, err = c.command("AUTH", bootstrap)
	expect(t, "{", text, err)
	require.NoError(t, c.put("orders", "m"))
	require.Less(t, len(b.ask(bootstrap, "GET", "/stats?format=json", "").body), 8<<10, "/stats repeats what a client says of itself")
}

// TestIdleCompression is finding 6: an idle connection with deflate is cheap.
func TestIdleCompression(t *testing.T) {
	t.Parallel()
	b := start(t, options{})
	const clients = 200
	memory := b.memory()
	for range clients {
		c, err := b.connect("")
		require.NoError(t, err)
		defer c.conn.Close()
		text, err := c.command("IDENTIFY", `{"feature_negotiation":true,"deflate":true,"deflate_level":6}`)
		expect(t, `{"max_rdy_count"`, text, err)
	}
	pause(notYet)
	grown := b.memory() - memory
	t.Logf("%d idle clients with deflate: %d KiB a client", clients, grown>>10/clients)
	require.Less(t, grown>>10/clients, int64(64))
}

// linesOfOneMessage is how many lines of one message the log has in a second.
const linesOfOneMessage = 20

// TestTheLogIsNotFlooded is finding 9: strangers that knock at every port write few lines, of
// each message at most linesOfOneMessage a second.
func TestTheLogIsNotFlooded(t *testing.T) {
	b := start(t, options{tls: true})
	before, began := len(b.logged()), time.Now()
	seconds := 2.0
	var all []*attacker
	for _, at := range targets {
		all = append(all, flood(t, orders{Address: b.address(at.port), From: sources(20), TLS: true, Opening: at.opening, Rate: 300, Seconds: seconds, Hold: 500}))
	}
	opened := int64(0)
	for _, a := range all {
		opened += a.wait().Opened
		a.stop()
	}
	pause(notYet)
	most := linesOfOneMessage * (2 + int(time.Since(began).Seconds()))
	of, lines := map[string]int{}, 0
	for line := range strings.Lines(b.logged()[before:]) {
		_, text, _ := strings.Cut(line, ": ")
		message, _, _ := strings.Cut(text, "  ")
		of[message]++
		lines++
	}
	t.Logf("%d connections of strangers: %d lines of %d messages", opened, lines, len(of))
	require.Greater(t, opened, int64(500))
	require.Less(t, lines, int(opened)/4, "lines of strangers")
	for message, n := range of {
		require.LessOrEqual(t, n, most, message)
	}
}

// TestStrangersWriteFewLines is finding 9: strangers who do everything wrong that a broker tells, in all ways at the same time,
// write a bounded number of lines a second together, and lines of clients are not left out for them.
func TestStrangersWriteFewLines(t *testing.T) {
	address, _ := service(t)
	b := start(t, options{flags: []string{"--auth-http-address=" + address}})
	b.create("orders")
	token := b.user("shop", "orders", "publish")
	before, began := len(b.logged()), time.Now()
	var strangers sync.WaitGroup
	tried := atomic.Int64{}
	for worker := range 8 {
		strangers.Go(func() {
			web := &http.Client{Timeout: limit}
			defer web.CloseIdleConnections()
			for n := worker; time.Since(began) < 3*time.Second; n++ {
				tried.Add(1)
				switch say := []string{"  V1", "  V2AUTH\n" + nsqtext.Sized(fmt.Sprint("bad", n)), "  V2PUB orders\n" + nsqtext.Sized("m"), "  V2X\n", "  V2IDENTIFY\n\xff\xff\xff\xff", "  V2"}; n % 8 {
				case 0, 1, 2, 3, 4, 5:
					conn, err := dial("", b.address(tcpPort))
					if err != nil {
						continue
					}
					_, _ = io.WriteString(conn, say[n%8])
					_ = conn.(*net.TCPConn).CloseWrite()
					_ = conn.SetReadDeadline(time.Now().Add(limit))
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				case 6:
					_, _ = request(web, "", "POST", "http://"+b.address(httpPort)+"/topic/delete?topic=orders", "")
				case 7:
					_, _ = request(web, "", "GET", "http://"+b.address(httpPort)+"/stats", "")
				}
			}
		})
	}
	clients := 0
	for time.Since(began) < 3*time.Second {
		b.client(t, token)
		clients++
		pause(300 * time.Millisecond)
	}
	strangers.Wait()
	pause(notYet)
	seconds := time.Since(began).Seconds()
	lines, known := 0, 0
	for line := range strings.Lines(b.logged()[before:]) {
		if strings.Contains(line, "client connected") {
			known++
			continue
		}
		lines++
	}
	t.Logf("%d tries of strangers in %.1f s: %d lines, %.0f a second; %d of %d clients have their line", tried.Load(), seconds, lines, float64(lines)/seconds, known, clients)
	require.Equal(t, clients, known, "lines of clients")
	require.LessOrEqual(t, float64(lines), 20*(seconds+2))
}

// TestTheLogHasNoForeignBytes: bytes of a stranger reach a terminal neither as control
// characters nor as lines of their own.
func TestTheLogHasNoForeignBytes(t *testing.T) {
	t.Parallel()
	b := start(t, options{level: "debug"})
	const forged = "\x1b[2J\x1b]0;owned\x07\r\n[nsqd] 2026/01/01 00:00:00.000000 INFO: forged\xc2\x9b31m"
	for _, port := range []int{tcpPort, httpPort, lookupPort, rpcPort, etcdPort, etcdPeerPort} {
		for _, say := range []string{forged, "  V2" + forged + "\n", "  V2PUB " + forged + "\n" + nsqtext.Sized("x"), "GET /" + forged + " HTTP/1.1\r\nHost: " + forged + "\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: x\r\n" + forged + "\r\n\r\n", "  V2IDENTIFY\n" + nsqtext.Sized(fmt.Sprintf(`{"client_id":%q,"user_agent":%q}`, forged, forged)) + "AUTH\n" + nsqtext.Sized(forged), hello(forged, "n1"), hello("\x1b[2J\u009b31m", "n7"), hello("n7", "\x1b[2J")} {
			conn, err := dial("", b.address(port))
			require.NoError(t, err)
			_, _ = io.WriteString(conn, say)
			_ = conn.(*net.TCPConn).CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}
	b.ask("bad"+"\t"+"token", "GET", "/v1/user/list?name=%1b%5b2J%0aforged", "")
	pause(notYet)
	for line := range strings.Lines(b.logged()) {
		require.True(t, strings.HasPrefix(line, "[nsqd] "), "a line of its own: %q", line)
		require.NotContains(t, strings.TrimSuffix(line, "\n"), "INFO: forged\n")
		for _, r := range strings.TrimSuffix(line, "\n") {
			require.False(t, r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0, "a control character: %q", line)
		}
	}
}
