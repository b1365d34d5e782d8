package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// TestExposedPorts: beyond loopback a port opens with authentication, or with the flag that says otherwise.
func TestExposedPorts(t *testing.T) {
	t.Parallel()
	_, _, err := config.Load(source([]string{"--tcp-address=0.0.0.0:0", "--http-address=127.0.0.1:0"}))
	require.ErrorContains(t, err, "--tcp-address=0.0.0.0:0 is reachable from the network, and no client has to authenticate: give --require-users")
	_, _, err = config.Load(source([]string{"--insecure-clients", "--tcp-address=0.0.0.0:0", "--http-address=0.0.0.0:0"}))
	require.ErrorContains(t, err, "--http-address=0.0.0.0:0 is reachable from the network")
	_, _, err = config.Load(source([]string{"--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--rpc-address=0.0.0.0:0"}))
	require.ErrorContains(t, err, "--rpc-address=0.0.0.0:0 is reachable from the network")
	b := prepare(t)
	b.run("--insecure-clients", fmt.Sprintf("--tcp-address=0.0.0.0:%d", b.base), "--insecure", fmt.Sprintf("--rpc-address=0.0.0.0:%d", b.base+3))
	b.ready()
	b.dial().put("orders", "x")
	require.Contains(t, b.logged(), "open to the network")
	_, text := b.get("/v1/cluster")
	require.Contains(t, text, `"rpc_address":"`+b.address(3)+`"`, "others receive the broadcast address")
}

// TestRequireUsers: with --require-users the ports are open, and nothing is done for anybody until
// the first user is made; a restart changes nothing.
func TestRequireUsers(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	flags := []string{"--require-users", fmt.Sprintf("--tcp-address=0.0.0.0:%d", b.base), fmt.Sprintf("--http-address=0.0.0.0:%d", b.base+1)}
	b.run(flags...)
	b.ready()
	require.Contains(t, b.logged(), "refusing all clients until there is an administrator")
	c := b.dial()
	require.Equal(t, true, c.identify(map[string]any{})["auth_required"])
	c.send("SUB orders ch\n")
	c.expect("E_AUTH_FIRST AUTH required before SUB")
	for _, path := range []string{"/stats", "/topics", "/v1/cluster"} {
		status, _ := b.get(path)
		require.Equal(t, http.StatusUnauthorized, status, path)
	}
	b.needsSecret()
	_, text := b.get("/v1/session")
	require.Contains(t, text, `"enforced":true,"begun":false`)
	secret := b.firstSecret()
	require.NotContains(t, b.logged(), secret)
	b.stop()
	b.run(flags...)
	b.ready()
	require.Equal(t, secret, b.firstSecret(), "it stays")
	root := b.user("", "root", "&admin=true")
	for restarted := range 2 {
		if restarted == 1 {
			b.stop()
			b.run(flags...)
			b.ready()
		}
		c = b.dial()
		c.identify(map[string]any{})
		c.command(root, "AUTH")
		_, answer := c.next()
		require.Contains(t, answer, `"identity":"root"`)
		c.put("orders", "x")
		status, _ := b.post("/v1/user/create?name=evil&admin=true", "")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	require.NotContains(t, b.logged(), "CLOSED")
}

// TestLimitsAtThePorts: the flags reach the ports, and each refusal is counted.
func TestLimitsAtThePorts(t *testing.T) {
	t.Parallel()
	b := start(t, "--max-connections=6", "--max-http-connections=5", "--max-connections-per-address=4", "--login-timeout=500ms", "--max-client-memory=2097152")
	var crowd []net.Conn
	defer func() {
		for _, conn := range crowd {
			_ = conn.Close()
		}
	}()
	once := func(from string, port int, say string) string {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", b.address(port))
		require.NoError(t, err)
		crowd = append(crowd, conn)
		require.NoError(t, conn.SetDeadline(time.Now().Add(limit)))
		_, _ = io.WriteString(conn, say) // it may be closed already
		answer := make([]byte, 512)
		n, _ := conn.Read(answer)
		return string(answer[:n])
	}
	// A test that is slow may be cut off before it has said anything.
	connect := func(from string, port int, say string) (answer string) {
		b.eventually("an answer", func() bool { answer = once(from, port, say); return answer != "" })
		return answer
	}
	const hello, info = "  V2IDENTIFY\n\x00\x00\x00\x02{}", "GET /info HTTP/1.1\r\nHost: b\r\n\r\n"
	b.http.CloseIdleConnections()
	for i, want := range []string{"OK", "OK", "OK", "OK", "E_TOO_MANY_CONNECTIONS this address"} {
		require.Contains(t, connect("127.0.0.2", 0, hello), want, i)
	}
	for i, want := range []string{"OK", "OK", "E_TOO_MANY_CONNECTIONS this broker"} {
		require.Contains(t, connect("127.0.0.3", 0, hello), want, i)
	}
	for i, want := range []string{"200 OK", "200 OK", "200 OK", "200 OK", "TOO_MANY_CONNECTIONS_OF_ADDRESS"} {
		require.Contains(t, connect("127.0.0.2", 1, info), want, i)
	}
	require.Contains(t, connect("127.0.0.3", 1, info), "200 OK")
	require.Contains(t, connect("127.0.0.3", 1, info), `{"message":"TOO_MANY_CONNECTIONS","detail":"the broker has reached its connection limit`)
	status, _ := b.get("/readyz")
	require.Equal(t, http.StatusOK, status, "a probe has a seat")
	for _, conn := range crowd {
		_ = conn.Close()
	}
	b.eventually("a silent client is cut off", func() bool { // the seats of the crowd become free
		return once("127.0.0.1", 0, "") == ""
	})
	var text string
	counted := regexp.MustCompile(`lockstep_refused_total\{limit="tcp_magic"\} [1-9]`)
	b.eventually("it is counted", func() bool {
		_, text = b.get("/metrics")
		return counted.MatchString(text)
	})
	for _, name := range []string{"tcp_address", "tcp_connections", "http_address", "http_connections"} {
		require.Regexp(t, `lockstep_refused_total\{limit="`+name+`"\} [1-9]`, text)
	}
	for _, gauge := range []string{`lockstep_connections{port="tcp"}`, `lockstep_connections{port="http"}`, `lockstep_client_memory_bytes{use="bodies"}`} {
		require.Contains(t, text, "\n"+gauge+" ")
	}

	// Without --max-client-memory this body would be taken: half of it holds the memory.
	b.dial().put("t", "x")
	slow := b.dial()
	slow.send("MPUB t\n\x00\x4c\x4b\x40\x00\x00\x00\x05")
	b.eventually("the memory is reserved", func() bool {
		_, text := b.get("/metrics")
		return strings.Contains(text, "lockstep_client_memory_bytes{use=\"bodies\"} 5e+06")
	})
	_ = slow.conn.Close()
	b.eventually("and given back", func() bool {
		_, text := b.get("/metrics")
		return strings.Contains(text, "lockstep_client_memory_bytes{use=\"bodies\"} 0")
	})
}

// TestLimitClients: the shares of the files, and of what the settings say.
func TestLimitClients(t *testing.T) {
	o := config.Defaults()
	for _, test := range []struct {
		files  files
		change func(*config.Options)
		want   clientLimits
	}{
		{files{tcp: 576, http: 192}, func(*config.Options) {}, clientLimits{576, 518, 518, 144, 129, 32, 16, 256, 72}},
		{files{tcp: 60, http: 20}, func(*config.Options) {}, clientLimits{60, 54, 54, 13, 11, 5, 2, 30, 6}},
		{files{tcp: 576, http: 192}, func(o *config.Options) { o.MaxConnections, o.MaxHTTPConnections = 100, 50 }, clientLimits{100, 90, 90, 50, 45, 32, 16, 50, 25}},
		{files{tcp: 576, http: 192}, func(o *config.Options) {
			o.MaxConnections = 1000
			o.MaxConnectionsPerUser = 7
			o.MaxConnectionsPerAddress = 9
		}, clientLimits{576, 9, 7, 144, 9, 32, 16, 256, 72}},
		{files{tcp: 1, http: 1}, func(*config.Options) {}, clientLimits{1, 1, 1, 1, 1, 0, 0, 1, 1}},
	} {
		changed := o
		test.change(&changed)
		require.Equal(t, test.want, limitClients(test.files, changed))
	}
	o.MaxClientMemory, o.MaxBodySize = 1<<20, 5<<20
	bodies := newMemory(o)
	require.True(t, bodies.Share("a").Try(limits.Bodies, 5<<20))
	require.EqualValues(t, 5<<20, bodies.Used(), "one body fits always")
}

// TestDataIsPrivate: no other user of the machine can read the data.
func TestDataIsPrivate(t *testing.T) {
	t.Parallel()
	b := start(t, "--max-bytes-per-file=65536")
	c := b.dial()
	for range 20 {
		c.put("orders", strings.Repeat("x", 30_000))
	}
	c.put("other", "x")
	require.NoError(t, filepath.WalkDir(b.dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		if path != b.dir && info.Mode().Type() != fs.ModeSocket { // the test made b.dir; the directory of a socket keeps others out
			require.Zero(t, info.Mode().Perm()&0o077, "%s %s", info.Mode(), path)
		}
		return nil
	}))
}

// TestTheTableOfLimits: docs/reference/limits.md has the flags with their defaults, and every metric.
func TestTheTableOfLimits(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "limits.md"))
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## Ports for clients\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n##") // the ports for brokers have a table of their own
	code := regexp.MustCompile("`([^`]+)`")
	first := func(cell string) string {
		if m := code.FindStringSubmatch(cell); m != nil {
			return m[1]
		}
		return ""
	}
	counted := map[string]bool{}
	flags := map[string]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || strings.Contains(line, "---") || strings.Contains(line, "| limit |") {
			continue
		}
		if name := first(cells[4]); name != "" {
			require.Contains(t, metrics.Refusals(), name)
			counted[name] = true
		}
		flag := strings.TrimPrefix(first(cells[2]), "--")
		if flag == "" || flag == "lookupd-tcp-address" {
			continue
		}
		flags[flag] = true
		value, ok := config.Defaults().ByKey(strings.ReplaceAll(flag, "-", "_"))
		require.True(t, ok, flag)
		require.Equal(t, fmt.Sprint(value), first(cells[3]), "default of --%s", flag)
	}
	for _, name := range metrics.Refusals() {
		require.True(t, counted[name], "the table has no row with the metric %s", name)
	}
	for key := range settingTags() {
		if slices.Contains([]string{"max_connections", "max_http_connections", "max_connections_per_address", "max_connections_per_user", "login_timeout", "max_client_memory"}, key) {
			require.True(t, flags[strings.ReplaceAll(key, "_", "-")], "the table has no row with the setting %s", key)
		}
	}
}

// TestSilentConnectionsLockNobodyOut: as many silent connections of one address as were enough to
// lock all clients out, and to fail the probes. Others connect, log in and publish, memory stays
// bounded, and the silent ones are gone in the end.
func TestSilentConnectionsLockNobodyOut(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	b.ulimit = 1024
	b.run("--require-users", "--login-timeout=3s")
	b.ready()
	root := b.user("", "root", "&admin=true")
	b.http.CloseIdleConnections()
	login := func() (c *client) {
		b.eventually("logs in", func() bool { // within the time for a login, which the test may miss
			c = &client{t: t}
			conn, err := net.Dial("tcp", b.address(0))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			c.conn, c.in = conn, bufio.NewReader(conn)
			_, _ = io.WriteString(conn, "  V2AUTH\n"+body(root)) // an error shows in the answer
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(limit)))
			head := make([]byte, 8)
			if _, err = io.ReadFull(c.in, head); err != nil {
				return false
			}
			answer := make([]byte, binary.BigEndian.Uint32(head)-4)
			_, err = io.ReadFull(c.in, answer)
			return err == nil && strings.Contains(string(answer), `"identity":"root"`)
		})
		return c
	}
	login().put("orders", "alone")
	before := b.memory()
	var crowd []net.Conn
	flood := func(port, count int, say string) {
		for range count {
			conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).Dial("tcp", b.address(port))
			require.NoError(t, err)
			crowd = append(crowd, conn)
			_, _ = io.WriteString(conn, say) // it may be closed already
		}
	}
	half := "  V2IDENTIFY\n\x00\x00\xff\xff{" + strings.Repeat(" ", 1000)
	flood(0, 900, half)
	flood(1, 400, "GET /healthz HTTP/1.1\r\n")
	login().put("orders", "beside")
	for range 5 {
		status, _ := b.get("/healthz")
		require.Equal(t, http.StatusOK, status)
	}
	took := b.memory() - before
	t.Logf("%d silent connections: %d KiB more memory", len(crowd), took>>10)
	require.Less(t, took, memoryFactor*64<<20)
	b.eventually("the silent ones are gone", func() bool { return b.files() < 100 })
	status, _ := b.get("/readyz")
	require.Equal(t, http.StatusOK, status)
	for _, conn := range crowd {
		_ = conn.Close()
	}
	b.quiet()
}
