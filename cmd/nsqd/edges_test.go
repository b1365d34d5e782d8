package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/certs"
)

func TestTimeouts(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second // long, for the test must leave before the second one
	b := start(t, "--msg-timeout="+timeout.String(), "--max-req-timeout=200ms", "--requeue-on-disconnect=false")
	c := b.dial()
	c.put("orders", "one")
	c.consume("orders", "ch", 1)
	began := time.Now()
	c.message()
	_, attempts, _ := c.message() // timed out
	require.EqualValues(t, 2, attempts)
	require.Greater(t, time.Since(began), timeout-100*time.Millisecond)
	require.Less(t, time.Since(began), 2*timeout)
	_ = c.conn.Close()
	c = b.dial()
	c.consume("orders", "ch", 1)
	id, attempts, _ := c.message()
	require.EqualValues(t, 3, attempts)
	require.Greater(t, time.Since(began), 2*timeout-100*time.Millisecond, "it waited for its timeout")
	began = time.Now()
	c.send("REQ %s 60000\n", id)
	c.message()
	require.Less(t, time.Since(began), 5*time.Second, "clamped")
}

func TestNoAutoCreate(t *testing.T) {
	t.Parallel()
	b := start(t, "--auto-create-topics=false")
	status, answer := b.post("/pub?topic=orders", "x")
	require.Equal(t, http.StatusNotFound, status, answer)
	c := b.dial()
	c.command("x", "PUB orders")
	_, text := c.next()
	require.Contains(t, text, "E_PUB_FAILED PUB failed")
	b.post("/topic/create?topic=orders", "")
	c.put("orders", "x")
}

// TestSegmentsAreBounded: the limits of a segment and of all data hold.
func TestSegmentsAreBounded(t *testing.T) {
	t.Parallel()
	b := start(t, "--max-bytes-per-file=65536", "--max-disk-bytes=3000000")
	text := strings.Repeat("x", 30_000)
	for range 20 { // twice what the store gathers before it writes
		b.dial().put("orders", text)
	}
	b.eventually("segments", func() bool {
		files, err := filepath.Glob(filepath.Join(b.dir, "topics", "*", "0", "*.seg"))
		return err == nil && len(files) >= 3
	})
	b.eventually("has enough", func() bool {
		status, answer := b.post("/pub?topic=orders", text)
		return status == http.StatusServiceUnavailable && strings.Contains(answer, "disk reserve reached, not stored")
	})
}

// TestExposedPorts: the ports for brokers are on loopback unless the operator sets them.
func TestExposedPorts(t *testing.T) {
	t.Parallel()
	code, _, stderr := refused(t, "--rpc-address=0.0.0.0:0", "--data-path="+t.TempDir())
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "--rpc-address=0.0.0.0:0 is reachable from the network")
	b := prepare(t)
	b.run("--insecure", "--rpc-address=0.0.0.0:"+fmt.Sprint(b.base+3))
	b.ready()
	_, text := b.get("/v1/cluster")
	require.Contains(t, text, `"rpc_address":"`+b.address(3)+`"`, "others receive the broadcast address")
}

// TestEphemeralTopic: the topic ends with its last channel, and remains as long as it never
// had one.
func TestEphemeralTopic(t *testing.T) {
	t.Parallel()
	b := start(t)
	topics := func() (text string) { _, text = b.get("/topics"); return text }
	b.dial().put("early#ephemeral", "x") // it never had a channel
	c := b.dial()
	c.consume("brief#ephemeral", "c#ephemeral", 1)
	require.Contains(t, topics(), "brief#ephemeral")
	b.dial().put("brief#ephemeral", "x") // on a connection of its own: the message may come before the answer
	c.message()
	_ = c.conn.Close()
	b.eventually("goes with its last consumer", func() bool { return !strings.Contains(topics(), "brief#ephemeral") })
	require.Contains(t, topics(), "early#ephemeral")
}

func TestLookupPort(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	b.run("--lookupd-http-address="+b.address(2), "--http-address=")
	b.eventually("is there", func() bool { return strings.Contains(b.logged(), "READY") })
	b.dial().put("orders", "x")
	_, text := ask(t, b.http, http.MethodGet, "http://"+b.address(2)+"/lookup?topic=orders", "")
	require.Contains(t, text, fmt.Sprintf(`"tcp_port":%d`, b.base))
	_, text = ask(t, b.http, http.MethodGet, "http://"+b.address(2)+"/info", "")
	require.Equal(t, `{"version":"1.3.0"}`, text)
	_, err := b.http.Get(b.url("/ping"))
	require.Error(t, err, "an empty --http-address means none")
}

func TestUnixSockets(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	b.tcpSocket = filepath.Join(b.dir, "tcp.sock")
	web := filepath.Join(b.dir, "http.sock")
	b.run("--tcp-address="+b.tcpSocket, "--http-address="+web)
	b.eventually("is there", func() bool { return strings.Contains(b.logged(), "READY") })
	b.dial().put("orders", "over a socket")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", web)
	}}}
	defer client.CloseIdleConnections()
	_, text := ask(t, client, http.MethodGet, "http://broker/info", "")
	require.Contains(t, text, `"http_port":-1,"tcp_port":-1,`)
	_, text = ask(t, client, http.MethodGet, "http://broker/stats?format=json", "")
	require.Contains(t, text, `"message_count":1`)
	b.stop()
	b.run("--tcp-address="+b.tcpSocket, "--http-address="+web)
	b.eventually("is back", func() bool { return strings.Contains(b.logged(), "READY") })
}

func TestProfilesAndHealth(t *testing.T) {
	t.Parallel()
	b := start(t)
	for path, want := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile", "/debug/pprof/goroutine?debug=1": "goroutine profile",
		"/debug/pprof/cmdline": "--node-name=n1", "/healthz": "OK", "/readyz": "OK", "/ping": "OK",
	} {
		status, text := b.get(path)
		require.Equal(t, 200, status, path)
		require.Contains(t, text, want, path)
	}
	_, text := b.do(http.MethodPut, "/config/log_level", "error")
	require.Equal(t, "4", text)
	status, text := b.do(http.MethodPut, "/config/log_level", "trace")
	require.Equal(t, 400, status)
	require.Equal(t, `{"message":"INVALID_VALUE"}`, text)
}

func TestStatsd(t *testing.T) {
	t.Parallel()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer packets.Close()
	b := start(t, "--statsd-address="+packets.LocalAddr().String(), "--statsd-interval=1s", "--statsd-prefix=x.%s", "--statsd-mem-stats=false",
		"--statsd-exclude-ephemeral", "--statsd-udp-packet-size=100")
	b.post("/pub?topic=orders", "one")
	b.post("/pub?topic=brief%23ephemeral", "one")
	want := fmt.Sprintf("x.127_0_0_1_%d.topic.orders.message_count:1|c", b.base+1)
	buf, seen := make([]byte, 1<<16), ""
	for !strings.Contains(seen, want) {
		require.NoError(t, packets.SetReadDeadline(time.Now().Add(limit)))
		n, _, err := packets.ReadFrom(buf)
		require.NoError(t, err)
		require.LessOrEqual(t, n, 100)
		seen += string(buf[:n])
	}
	require.NotContains(t, seen, "brief")
	require.NotContains(t, seen, ".mem.")
}

// TestRegistersWithLookupd plays an nsqlookupd.
func TestRegistersWithLookupd(t *testing.T) {
	t.Parallel()
	daemon, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer daemon.Close()
	heard := make(chan string, 100)
	go acceptRegistrations(daemon, 1, heard)
	b := start(t, "--lookupd-tcp-address="+daemon.Addr().String())
	b.post("/pub?topic=early", "one")
	seen := map[string]bool{}
	until := func(want string) {
		for !seen[want] {
			select {
			case line := <-heard:
				seen[line] = true
			case <-time.After(limit):
				t.Fatalf("no %q in %v", want, seen)
			}
		}
	}
	until("REGISTER early")
	status, text := b.do(http.MethodPut, "/config/nsqlookupd_tcp_addresses", "[]")
	require.Equal(t, 200, status)
	require.Equal(t, "[]", text)
	b.post("/pub?topic=orders", "one")
	b.post("/channel/create?topic=orders&channel=ch", "")
	list := fmt.Sprintf("[%q]", daemon.Addr())
	status, text = b.do(http.MethodPut, "/config/nsqlookupd_tcp_addresses", list)
	require.Equal(t, 200, status)
	require.Equal(t, list, text)
	until("IDENTIFY")
	until("REGISTER orders ch")
	b.post("/channel/delete?topic=orders&channel=ch", "")
	until("UNREGISTER orders ch")
	b.post("/topic/delete?topic=orders", "")
	until("UNREGISTER orders")
}

// TestChannelsOfLookupd: the channels at an nsqlookupd exist before a topic's first message.
func TestChannelsOfLookupd(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"channels":["of-`+r.URL.Query().Get("topic")+`","other","c#ephemeral"]}`) // the client checks the error
	}))
	defer web.Close()
	daemon, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer daemon.Close()
	heard := make(chan string, 100)
	go acceptRegistrations(daemon, web.Listener.Addr().(*net.TCPAddr).Port, heard)
	b := start(t)
	b.post("/topic/create?topic=early", "")
	status, _ := b.do(http.MethodPut, "/config/nsqlookupd_tcp_addresses", fmt.Sprintf("[%q]", daemon.Addr()))
	require.Equal(t, 200, status)
	b.eventually("the daemon is known", func() bool {
		select {
		case line := <-heard:
			return line == "REGISTER early"
		default:
			return false
		}
	})
	b.post("/pub?topic=orders", "one")
	_, text := b.get("/stats?format=json&topic=orders")
	require.Contains(t, text, `"channel_name":"of-orders","depth":1,`)
	require.Contains(t, text, `"channel_name":"other","depth":1,`)
	require.NotContains(t, text, "ephemeral")
}

// acceptRegistrations plays an nsqlookupd that announces this HTTP port.
func acceptRegistrations(daemon net.Listener, httpPort int, heard chan<- string) {
	for {
		conn, err := daemon.Accept()
		if err != nil {
			return
		}
		go answerRegistrations(conn, httpPort, heard)
	}
}

func answerRegistrations(conn net.Conn, httpPort int, heard chan<- string) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if _, err := io.CopyN(io.Discard, in, 4); err != nil {
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		answer := "OK"
		if line = strings.TrimSpace(line); line == "IDENTIFY" {
			var n [4]byte
			if _, err := io.ReadFull(in, n[:]); err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, in, int64(binary.BigEndian.Uint32(n[:]))) // the next read returns the error
			answer = fmt.Sprintf(`{"broadcast_address":"127.0.0.1","hostname":"h","http_port":%d,"tcp_port":2,"version":"1.3.0"}`, httpPort)
		}
		heard <- line
		if _, err := conn.Write([]byte(body(answer))); err != nil {
			return
		}
	}
}

func TestAuthorization(t *testing.T) {
	t.Parallel()
	asked := make(chan url.Values, 10)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Query()
		_, _ = io.WriteString(w, `{"ttl":60,"identity":"joe","authorizations":[{"topic":"^orders$","channels":[".*"],"permissions":["publish"]}]}`)
	}))
	defer service.Close()
	b := start(t, "--auth-http-address="+strings.TrimPrefix(service.URL, "http://"))
	c := b.dial()
	require.Equal(t, true, c.identify(map[string]any{})["auth_required"])
	c.command("x", "PUB orders")
	c.expect("E_AUTH_FIRST AUTH required before PUB")
	c = b.dial()
	c.command("s3cret", "AUTH")
	c.expect(`{"identity":"joe","identity_url":"","permission_count":1}`)
	query := <-asked
	require.Equal(t, "s3cret", query.Get("secret"))
	require.Equal(t, "127.0.0.1", query.Get("remote_ip"))
	c.put("orders", "x")
	c.command("x", "PUB invoices")
	c.expect(`E_UNAUTHORIZED AUTH failed for PUB on "invoices" ""`)
}

// TestAuthorizationOverHTTPS: the service's certificate is of the authority in
// --tls-root-ca-file.
func TestAuthorizationOverHTTPS(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	ca.Issue("auth")
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"ttl":60,"identity":"joe","authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish"]}]}`)
	}))
	service.TLS = ca.Client("auth")
	service.StartTLS()
	defer service.Close()
	b := start(t, "--auth-http-address="+service.URL, "--tls-root-ca-file="+ca.File("ca.pem"))
	c := b.dial()
	c.command("s3cret", "AUTH")
	c.expect(`{"identity":"joe","identity_url":"","permission_count":1}`)
}

// TestAuthorizationByPost uses a slow service.
func TestAuthorizationByPost(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Secret []string }
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&asked) != nil || len(asked.Secret) != 1 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if asked.Secret[0] == "slow" {
			<-done
		}
		_, _ = io.WriteString(w, `{"ttl":60,"identity":"joe","authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish"]}]}`)
	}))
	defer service.Close()
	defer close(done)
	b := start(t, "--auth-http-address="+service.URL, "--auth-http-request-method=post", "--http-client-request-timeout=300ms")
	c := b.dial()
	c.command("s3cret", "AUTH")
	c.expect(`{"identity":"joe","identity_url":"","permission_count":1}`)
	c = b.dial()
	c.command("slow", "AUTH")
	c.expect("E_AUTH_FAILED AUTH failed")
}

// TestConnectTimeout: if the host of an authorization service drops connections, a query ends
// after --http-client-connect-timeout.
func TestConnectTimeout(t *testing.T) {
	b := start(t, "--auth-http-address="+deafAddress(t), "--http-client-connect-timeout=300ms", "--http-client-request-timeout=1h")
	c := b.dial()
	c.command("s3cret", "AUTH")
	c.expect("E_AUTH_FAILED AUTH failed") // within the time limit of next
}

// deafAddress returns the address of a listener whose queue is full: Linux accepts no more
// connections.
func deafAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// TestMetricsAreFed publishes and consumes, and expects every histogram to grow.
func TestMetricsAreFed(t *testing.T) {
	t.Parallel()
	b := start(t)
	c := b.dial()
	for range 20 {
		c.put("orders", "x")
	}
	c.consume("orders", "ch", 20)
	for range 10 {
		id, _, _ := c.message()
		c.send("FIN %s\n", id)
	}
	for _, stage := range []string{"queue", "write", "sync", "replicate", "commit"} {
		require.Greater(t, b.metric(`lockstep_put_stage_seconds_count{stage="`+stage+`"}`), 0.0, stage)
		require.Greater(t, b.metric(`lockstep_put_stage_seconds_sum{stage="`+stage+`"}`), 0.0, stage)
	}
	require.Equal(t, 20.0, b.metric(`lockstep_puts_total{answer="ok"}`))
	require.Equal(t, 1.0, b.metric(`lockstep_events_total{event="registered"}`))
	require.Equal(t, 1.0, b.metric(`lockstep_events_total{event="elected"}`))
	require.Equal(t, 20.0, b.metric("lockstep_messages_delivered_total"))
	require.Greater(t, b.metric("lockstep_delivery_seconds_count"), 0.0)
	require.Greater(t, b.metric(`lockstep_message_wait_seconds_count{channel="ch",topic="orders"}`), 0.0)
	b.eventually("counts the finishes", func() bool {
		return b.metric(`lockstep_channel_in_flight{channel="ch",topic="orders"}`) == 10
	})
	require.Equal(t, 1.0, b.metric(`lockstep_channel_clients{channel="ch",topic="orders"}`))
}

// TestPeek reads without consuming, also finished messages that are retained.
func TestPeek(t *testing.T) {
	t.Parallel()
	b := start(t)
	c := b.dial()
	for i := range 10 {
		c.put("orders", fmt.Sprint("message ", i))
	}
	c.put("orders", "a\xffb")
	var p struct {
		Start, End, Next int
		Messages         []struct {
			ID, Body string
			Sequence int
			Bytes    []byte `json:"body_base64"`
		}
	}
	read := func(arguments string) {
		status, text := b.get("/v1/topic/peek?topic=orders" + arguments)
		require.Equal(t, 200, status, text)
		p.Messages = nil
		require.NoError(t, json.Unmarshal([]byte(text), &p))
	}
	read("&limit=3")
	require.Len(t, p.Messages, 3)
	require.Equal(t, "message 0", p.Messages[0].Body)
	require.Equal(t, 11, p.End)
	read(fmt.Sprint("&limit=1000&from=", p.Next))
	require.Len(t, p.Messages, 8)
	require.Equal(t, 3, p.Messages[0].Sequence)
	require.Equal(t, []byte("a\xffb"), p.Messages[7].Bytes)
	read("&from=latest")
	require.Empty(t, p.Messages)
	for arguments, want := range map[string]int{"topic=nothing": 404, "topic=orders&partition=1": 404, "topic=orders&from=x": 400, "topic=orders&limit=x": 400} {
		status, _ := b.get("/v1/topic/peek?" + arguments)
		require.Equal(t, want, status, arguments)
	}
	c.consume("orders", "ch", 1)
	id, attempts, body := c.message()
	require.Equal(t, "message 0", body, "the first channel gets all of the backlog")
	require.EqualValues(t, 1, attempts)
	read("&limit=1")
	require.Equal(t, id, p.Messages[0].ID)
}

func TestPageForOperators(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.dial().put("orders", "x")
	status, text := b.get("/ui")
	require.Equal(t, 200, status)
	require.Contains(t, text, "<title>Lockstep</title>")
	_, text = b.get("/ui/data")
	require.Contains(t, text, `"topic_name":"orders"`)
	require.Contains(t, text, `"silent":[]`)
}
