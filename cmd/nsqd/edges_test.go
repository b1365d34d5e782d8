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
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestTimeouts: an unanswered message comes again. With --requeue-on-disconnect=false that of a
// consumer that has gone waits for its timeout, too. --max-req-timeout bounds a requeue.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	b := strict.use(t)
	b.create("timeouts")
	c := b.dial()
	c.put("timeouts", "one")
	c.identify(map[string]any{"msg_timeout": 1000})
	c.consume("timeouts", "ch", 1)
	for want := range 2 {
		_, attempts, _ := c.message()
		require.EqualValues(t, want+1, attempts)
	}
	b.create("held")
	c = b.dial()
	c.put("held", "one")
	c.consume("held", "ch", 1)
	c.message()
	_ = c.conn.Close()
	b.consumers("held", 0)
	c = b.dial()
	c.put("held", "two")
	c.consume("held", "ch", 1)
	id, _, text := c.message()
	require.Equal(t, "two", text, "the first one waits for its timeout")
	c.send("REQ %s 3600000\n", id) // within the time limit of the test, if it is bounded
	_, _, text = c.message()
	require.Equal(t, "two", text)
}

// create makes a topic.
func (b *broker) create(topic string) {
	b.t.Helper()
	status, text := b.with(b.root, "POST", "/topic/create?topic="+topic, "")
	require.Equal(b.t, http.StatusOK, status, text)
}

func TestNoAutoCreate(t *testing.T) {
	t.Parallel()
	b := strict.use(t)
	status, answer := b.post("/pub?topic=no-auto", "x")
	require.Equal(t, http.StatusNotFound, status, answer)
	c := b.dial()
	c.command("x", "PUB no-auto")
	_, text := c.next()
	require.Contains(t, text, "E_PUB_FAILED PUB failed")
	b.post("/topic/create?topic=no-auto", "")
	c.put("no-auto", "x")
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

// TestEphemeralTopic: the topic ends with its last channel, and remains as long as it never had one.
func TestEphemeralTopic(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
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
	b.ready()
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
	b.ready()
	b.dial().put("orders", "over a socket")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", web)
	}}}
	defer client.CloseIdleConnections()
	_, text := ask(t, client, http.MethodGet, "http://broker/info", "")
	require.Contains(t, text, `"http_port":-1,"tcp_port":-1,`)
	_, text = ask(t, client, http.MethodGet, "http://broker/stats?format=json", "")
	require.Contains(t, text, `"message_count":1`)
}

func profilesAndHealth(t *testing.T, b *broker) {
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
	require.Equal(t, `{"message":"INVALID_VALUE"}`, coded(text))
	require.Contains(t, text, "log_level does not take this value")
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

// TestLookupds plays nsqlookupds, whose list is one of the whole broker.
func TestLookupds(t *testing.T) {
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
			seen[wait.For(t, heard, "%q, after %v", want, seen)] = true
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
	channelsOfLookupd(t, b)
	lookupdsAreChecked(t, b)
}

// channelsOfLookupd: the channels at an nsqlookupd exist before a topic's first message.
func channelsOfLookupd(t *testing.T, b *broker) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"channels":["of-`+r.URL.Query().Get("topic")+`","other","c#ephemeral"]}`) // the client checks the error
	}))
	defer web.Close()
	daemon, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer daemon.Close()
	heard := make(chan string, 100)
	go acceptRegistrations(daemon, web.Listener.Addr().(*net.TCPAddr).Port, heard)
	b.post("/topic/create?topic=early", "")
	status, _ := b.do(http.MethodPut, "/config/nsqlookupd_tcp_addresses", fmt.Sprintf("[%q]", daemon.Addr()))
	require.Equal(t, 200, status)
	for wait.For(t, heard, "a registration") != "REGISTER early" {
	}
	b.post("/pub?topic=invoices", "one")
	_, text := b.get("/stats?format=json&topic=invoices")
	require.Contains(t, text, `"channel_name":"of-invoices","depth":1,`)
	require.Contains(t, text, `"channel_name":"other","depth":1,`)
	require.NotContains(t, text, "ephemeral")
}

// lookupdsAreChecked: an administrator cannot make the broker connect to anything but a bounded
// number of addresses, and a refused list changes nothing.
func lookupdsAreChecked(t *testing.T, b *broker) {
	var many []string
	for i := range 45_000 {
		many = append(many, fmt.Sprintf(`"127.0.0.1:%d"`, 1+i))
	}
	for body, want := range map[string]int{
		"[" + strings.Join(many, ",") + "]":                http.StatusRequestEntityTooLarge,
		"[" + strings.Join(many[:33], ",") + "]":           http.StatusBadRequest,
		`["http://127.0.0.1:4160"]`:                        http.StatusBadRequest,
		`["127.0.0.1"]`:                                    http.StatusBadRequest,
		"[" + strings.Join(many[20_000:20_032], ",") + "]": http.StatusOK,
	} {
		status, text := b.do(http.MethodPut, "/config/nsqlookupd_tcp_addresses", body)
		require.Equal(t, want, status, "%.100s: %s", body, text)
	}
	_, text := b.get("/config/nsqlookupd_tcp_addresses")
	require.Equal(t, "["+strings.Join(many[20_000:20_032], ",")+"]", text)
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

// TestAuthorization: the service has a certificate of the authority in --tls-root-ca-file.
func TestAuthorization(t *testing.T) {
	t.Parallel()
	b := authorized.use(t)
	c := b.dial()
	require.Equal(t, true, c.identify(map[string]any{})["auth_required"])
	c.command("x", "PUB orders")
	c.expect("E_AUTH_FIRST AUTH required before PUB")
	c = b.dial()
	c.command("s3cret", "AUTH")
	c.expect(`{"identity":"joe","identity_url":"","permission_count":1}`)
	require.Equal(t, 1, service.asked("s3cret"))
	c.put("orders", "x")
	c.command("x", "PUB invoices")
	c.expect(`E_UNAUTHORIZED AUTH failed for PUB on "invoices" ""`)
}

// service is the authorization service of the broker authorized.
var service = &authService{questions: map[string]int{}}

type authService struct {
	server *httptest.Server
	ca     *certs.Authority

	mu        sync.Mutex
	questions map[string]int // by secret
}

// asked returns how often the broker has asked for secrets that begin so.
func (s *authService) asked(secret string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for question, times := range s.questions {
		if strings.HasPrefix(question, secret) {
			n += times
		}
	}
	return n
}

// start returns the flags of the broker that asks it.
func (s *authService) start(t *testing.T, _ string) []string {
	s.ca = certs.New(t)
	s.ca.Issue("auth")
	s.server = httptest.NewUnstartedServer(s)
	s.server.TLS = s.ca.Client("auth")
	s.server.StartTLS()
	return []string{"--http-client-request-timeout=0s", "--auth-http-address=" + s.server.URL, "--tls-root-ca-file=" + s.ca.File("ca.pem")}
}

func (s *authService) stop() { s.server.Close() }

// ServeHTTP answers a broker.
func (s *authService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secret := r.URL.Query().Get("secret")
	s.mu.Lock()
	s.questions[secret]++
	s.mu.Unlock()
	rights := map[string]string{
		"s3cret": `{"topic":"^orders$","channels":[".*"],"permissions":["publish"]}`,
		"good":   `{"topic":"^orders$","channels":[".*"],"permissions":["publish","subscribe"]}`,
		"mine":   `{"topic":"^orders$","channels":["^mine$"],"permissions":["subscribe"]},{"topic":"^orders$","channels":[".*"],"permissions":["publish"]}`,
	}[secret]
	if rights == "" || r.URL.Query().Get("remote_ip") != "127.0.0.1" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	_, _ = io.WriteString(w, `{"ttl":60,"identity":"joe","authorizations":[`+rights+`]}`) // the broker checks the error
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
	b.eventually("logs in", func() bool { // a test that is slow answers too late
		c := b.dial()
		c.command("s3cret", "AUTH")
		_, answer := c.next()
		return answer == `{"identity":"joe","identity_url":"","permission_count":1}`
	})
	c := b.dial()
	c.command("slow", "AUTH")
	c.expect("E_AUTH_FAILED AUTH failed: the authorization service gives no usable answer, try again")
}

// TestConnectTimeout: if the host of an authorization service drops connections, a query ends
// after --http-client-connect-timeout.
func TestConnectTimeout(t *testing.T) {
	b := start(t, "--auth-http-address="+deafAddress(t), "--http-client-connect-timeout=300ms", "--http-client-request-timeout=1h")
	c := b.dial()
	c.command("s3cret", "AUTH")
	c.expect("E_AUTH_FAILED AUTH failed: the authorization service gives no usable answer, try again") // within the time limit of next
}

// deafAddress returns the address of a listener whose queue is full: Linux accepts no more connections.
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

// TestTotalsOfABroker needs a broker of its own for the numbers of the whole broker.
func TestTotalsOfABroker(t *testing.T) {
	t.Parallel()
	b := start(t)
	metricsAreFed(t, b)
	consoleOfABroker(t, b)
	profilesAndHealth(t, b) // changes the log level
}

// metricsAreFed publishes and consumes, and expects every histogram to grow.
func metricsAreFed(t *testing.T, b *broker) {
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
	_ = c.conn.Close()
	b.consumers("orders", 0)
}

// TestPeek reads without consuming, also finished messages that are retained.
func TestPeek(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
	c := b.dial()
	for i := range 10 {
		c.put("peeked", fmt.Sprint("message ", i))
	}
	c.put("peeked", "a\xffb")
	var p struct {
		Start, End, Next int
		Messages         []struct {
			ID, Body string
			Sequence int
			Bytes    []byte `json:"body_base64"`
		}
	}
	read := func(arguments string) {
		status, text := b.get("/v1/topic/peek?topic=peeked" + arguments)
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
	for arguments, want := range map[string]int{"topic=nothing": 404, "topic=peeked&partition=1": 404, "topic=peeked&from=x": 400, "topic=peeked&limit=x": 400} {
		status, _ := b.get("/v1/topic/peek?" + arguments)
		require.Equal(t, want, status, arguments)
	}
	c.consume("peeked", "ch", 1)
	id, attempts, body := c.message()
	require.Equal(t, "message 0", body, "the first channel gets all of the backlog")
	require.EqualValues(t, 1, attempts)
	read("&limit=1")
	require.Equal(t, id, p.Messages[0].ID)
}

func TestPageForOperators(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
	b.dial().put("page", "x")
	status, text := b.get("/ui")
	require.Equal(t, 200, status)
	require.Contains(t, text, "<title>Lockstep</title>")
	_, text = b.get("/v1/console/topics")
	require.Contains(t, text, `"topic":"page"`)
	require.Contains(t, text, `"unreachable":[]`)
}
