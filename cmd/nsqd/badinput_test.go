package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestBadInput sends invalid input, and expects the exact answer, the end of that connection,
// and a broker that still serves.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
	long := strings.Repeat("t", 65)
	for input, want := range map[string]string{
		"\n":                               "E_INVALID invalid command ",
		"ASDF\n":                           "E_INVALID invalid command ASDF",
		"pub t\n":                          "E_INVALID invalid command pub",
		"PUB\n":                            "E_INVALID PUB insufficient number of parameters",
		"PUB " + long + "\n" + body("x"):   fmt.Sprintf("E_BAD_TOPIC PUB topic name %q is not valid", long),
		"PUB t:x\n" + body("x"):            `E_BAD_TOPIC PUB topic name "t:x" is not valid`,
		"PUB t\n" + size(0):                "E_BAD_MESSAGE PUB invalid message body size 0",
		"PUB t\n\xff\xff\xff\xff":          "E_BAD_MESSAGE PUB invalid message body size -1",
		"PUB t\n\x80\x00\x00\x00":          "E_BAD_MESSAGE PUB invalid message body size -2147483648",
		"PUB t\n\x7f\xff\xff\xff":          "E_BAD_MESSAGE PUB message too big 2147483647 > 1048576",
		"MPUB t\n\x7f\xff\xff\xff":         "E_BAD_BODY MPUB body too big 2147483647 > 5242880",
		"MPUB t\n" + size(8) + size(1<<30): "E_BAD_BODY MPUB invalid message count 1073741824",
		"MPUB t\n" + size(12) + size(1) + "\xff\xff\xff\xfe": "E_BAD_MESSAGE MPUB invalid message(0) body size -2",
		"MPUB t\n" + size(12) + size(1) + size(1<<21):        "E_BAD_MESSAGE MPUB message too big 2097152 > 1048576",
		"DPUB t -1\n":                          "E_INVALID DPUB could not parse timeout -1",
		"DPUB t 99999999999999\n":              "E_INVALID DPUB timeout 99999999999999 out of range 0-3600000",
		"SUB t  c\n":                           `E_BAD_CHANNEL SUB channel name "" is not valid`,
		"SUB t c/d\n":                          `E_BAD_CHANNEL SUB channel name "c/d" is not valid`,
		"FIN 0123456789abcdef\n":               "E_INVALID cannot FIN in current state",
		"RDY 1\n":                              "E_INVALID cannot RDY in current state",
		"CLS\n":                                "E_INVALID cannot CLS in current state",
		"AUTH\n" + body("x"):                   "E_AUTH_DISABLED AUTH disabled",
		"IDENTIFY\n" + size(0):                 "E_BAD_BODY IDENTIFY invalid body size 0",
		"IDENTIFY\n\x7f\xff\xff\xff":           "E_BAD_BODY IDENTIFY body too big 2147483647 > 65536",
		"IDENTIFY\n" + body("{{{"):             "E_BAD_BODY IDENTIFY failed to decode JSON body",
		"IDENTIFY\n" + body(`{"client_id":7}`): "E_BAD_BODY IDENTIFY failed to decode JSON body",
	} {
		c := b.dial()
		c.send("%s", input)
		kind, text := c.next()
		require.EqualValues(t, 1, kind, "%q", input)
		require.Equal(t, want, text, "%q", input)
		c.expectEnd()
	}
	c := b.dial()
	c.send("%s", strings.Repeat("x", 20_000)) // no end of the line: no answer
	c.expectEnd()
	for _, magic := range []string{"  V1", "GET ", "\x16\x03\x01\x02"} {
		conn, err := net.Dial("tcp", b.address(0))
		require.NoError(t, err)
		_, err = conn.Write([]byte(magic))
		require.NoError(t, err)
		answer := make([]byte, 64)
		n, _ := conn.Read(answer) // the text is checked
		require.Equal(t, size(18)+size(1)+"E_BAD_PROTOCOL", string(answer[:n]), "%q", magic)
		_ = conn.Close()
	}
	b.dial().put("bad-input", "after all that")
	b.quiet()
}

// quiet checks that clients' faults are not logged as errors of the broker.
func (b *broker) quiet() {
	b.t.Helper()
	require.NotContains(b.t, b.logged(), "ERROR")
	require.NotContains(b.t, b.logged(), "panic")
}

// coded is a body without the sentence next to its code.
func coded(body string) string {
	text, _, found := strings.Cut(body, `","detail":"`)
	if !found {
		return body
	}
	return text + `"}`
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	b := strict.use(t)
	for _, x := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"POST", "/pub", "x", 400, `{"message":"MISSING_ARG_TOPIC"}`},
		{"POST", "/pub?topic=a/b", "x", 400, `{"message":"INVALID_TOPIC"}`},
		{"POST", "/pub?topic=t", "", 400, `{"message":"MSG_EMPTY"}`},
		{"POST", "/pub?topic=t", strings.Repeat("x", 1001), 413, `{"message":"MSG_TOO_BIG"}`},
		{"POST", "/pub?topic=t&defer=-1", "x", 400, `{"message":"INVALID_DEFER"}`},
		{"POST", "/pub?topic=t&defer=abc", "x", 400, `{"message":"INVALID_DEFER"}`},
		{"POST", "/pub?topic=%zz", "x", 400, `{"message":"INVALID_REQUEST"}`},
		{"POST", "/mpub?topic=t", strings.Repeat("x\n", 2501), 413, `{"message":"BODY_TOO_BIG"}`},
		{"POST", "/mpub?topic=t&binary=true", "\xff\xff\xff\xff", 413, ""},
		{"POST", "/mpub?topic=t&binary=true", size(2) + body("one"), 413, ""},
		{"GET", "/pub?topic=t", "", 405, `{"message":"METHOD_NOT_ALLOWED"}`},
		{"HEAD", "/ping", "", 405, ""},
		{"DELETE", "/topic/create?topic=t", "", 405, `{"message":"METHOD_NOT_ALLOWED"}`},
		{"GET", "/no/such/path", "", 404, `{"message":"NOT_FOUND"}`},
		{"POST", "/topic/delete?topic=nothing", "", 404, `{"message":"TOPIC_NOT_FOUND"}`},
		{"POST", "/channel/create?topic=nothing&channel=c", "", 404, `{"message":"TOPIC_NOT_FOUND"}`},
		{"POST", "/channel/pause?topic=t&channel=c", "", 404, ""},
		{"POST", "/v1/broker/decommission?node=n9", "", 404, `{"message":"BROKER_NOT_FOUND"}`},
		{"POST", "/v1/broker/decommission?node=n1&cancel=perhaps", "", 400, ""},
		{"GET", "/config/nothing", "", 400, `{"message":"INVALID_OPTION"}`},
		{"PUT", "/config/msg_timeout", "1s", 400, `{"message":"INVALID_OPTION"}`},
		{"PUT", "/config/nsqlookupd_tcp_addresses", "{", 400, `{"message":"INVALID_VALUE"}`},
		{"GET", "/stats?format=xml", "", 200, ""},
	} {
		status, text := b.do(x.method, x.path, x.body)
		require.Equal(t, x.status, status, "%s %s: %s", x.method, x.path, text)
		if x.text != "" {
			require.Equal(t, x.text, coded(text), "%s %s", x.method, x.path)
		}
	}
	_, text := b.get("/topics")
	require.NotContains(t, text, "a/b")
	b.quiet()
}

// TestWrongMethodsAndSlashes: the answers differ from those of Go's mux.
func TestWrongMethodsAndSlashes(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, x := range []struct {
		method, path string
		status       int
		header, want string
	}{
		{"HEAD", "/ping", 405, "Allow", "GET, OPTIONS"},
		{"HEAD", "/stats", 405, "Allow", "GET, OPTIONS"},
		{"GET", "/pub?topic=t", 405, "Allow", "OPTIONS, POST"},
		{"DELETE", "/topic/create?topic=t", 405, "X-Nsq-Content-Type", "nsq; version=1.0"},
		{"PUT", "/ui", 405, "X-Nsq-Content-Type", "nsq; version=1.0"},
		{"GET", "/stats/?format=json", 301, "Location", "/stats?format=json"},
		{"GET", "/ping/", 301, "Location", "/ping"},
		{"GET", "/debug/pprof", 301, "Location", "/debug/pprof/"},
		{"POST", "/pub/?topic=t", 307, "Location", "/pub?topic=t"}, // the body is sent again
		{"GET", "//stats", 301, "Location", "/stats"},
		{"GET", "/nothing/", 404, "Content-Type", "application/json; charset=utf-8"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), x.method, b.url(x.path), nil)
		require.NoError(t, err)
		resp, err := b.http.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, x.status, resp.StatusCode, "%s %s", x.method, x.path)
		require.Equal(t, x.want, resp.Header.Get(x.header), "%s %s", x.method, x.path)
	}
}

// TestWrongPort: a client at the port of the other protocol gets an answer that names it.
func TestWrongPort(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
	_, err := b.http.Get("http://" + b.address(0) + "/ping")
	require.ErrorContains(t, err, "E_BAD_PROTOCOL", "the TCP port")
	conn, err := net.Dial("tcp", b.address(1))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("  V2IDENTIFY\n" + body("{}") + "\r\n\r\n"))
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(answer), "HTTP/1.1 400"), "the HTTP port; clients look for these bytes")
	require.Contains(t, string(answer), "400 Bad Request")
}

// TestHalfACommand: a client that stops within a command costs a connection until its deadline.
func TestHalfACommand(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
	var silent []*client
	for _, half := range []string{"PU", "PUB half\n", "PUB half\n\x00\x00", "PUB half\n" + size(10) + "half", "MPUB half\n" + size(20) + size(2) + size(3)} {
		c := b.dial()
		c.identify(map[string]any{"heartbeat_interval": 1000})
		_, _ = io.WriteString(c.conn, half) // if the test is slow, the broker has ended the connection
		silent = append(silent, c)
		gone := b.dial()
		gone.send("%s", "PUB half\n"+size(10)+"half")
		_ = gone.conn.Close()
	}
	for _, c := range silent {
		c.expectEnd()
	}
	_, text := b.get("/stats?format=json&topic=half")
	require.NotContains(t, text, `"message_count":1`)
	b.dial().put("half", "x")
	b.quiet()
}

// TestClientThatNeverReads receives at most what its credit and the buffers allow; other
// consumers of the channel get the rest.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
	producer := b.dial()
	text := strings.Repeat("x", 100_000)
	const puts = 100 // more than the buffers of a connection hold
	for range puts {
		producer.put("deaf", text)
	}
	deaf := b.dial()
	deaf.send("IDENTIFY\n%sSUB deaf c\nRDY 2500\n", body(`{"heartbeat_interval":1000,"msg_timeout":1000}`))
	stats := func() string {
		_, s := b.get("/stats?format=json&topic=deaf&include_clients=false")
		return s
	}
	b.eventually("messages were on their way to it", func() bool {
		s := stats()
		return strings.Contains(s, `"channel_name":"c"`) && (!strings.Contains(s, `"in_flight_count":0`) || !strings.Contains(s, `"requeue_count":0`) || !strings.Contains(s, `"timeout_count":0`))
	})
	c := b.dial()
	c.consume("deaf", "c", 50)
	for range puts {
		id, _, _ := c.message()
		c.send("FIN %s\n", id)
	}
	b.eventually("the deaf one is gone", func() bool { return strings.Contains(stats(), `"client_count":1`) })
	b.quiet()
}

// TestPoisonMessage, and a consumer that never finishes: a requeued message comes again with
// its attempts counted, without a limit, and delays no other message.
func TestPoisonMessage(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
	c := b.dial()
	c.put("poison", "poison")
	for i := range 50 {
		c.put("poison", fmt.Sprint("good ", i))
	}
	c.consume("poison", "c", 5)
	good, poison := 0, uint16(0)
	for good < 50 || poison < 200 {
		id, attempts, text := c.message()
		if text == "poison" {
			require.Equal(t, poison+1, attempts)
			poison = attempts
			c.send("REQ %s 0\n", id)
			continue
		}
		good++
		c.send("FIN %s\n", id)
	}
	_ = c.conn.Close()
	b.consumers("poison", 0)
	lazy := b.dial() // receives and does not answer
	lazy.identify(map[string]any{"msg_timeout": 1000})
	lazy.consume("poison", "c", 1)
	_, first, _ := lazy.message()
	_, second, _ := lazy.message()
	require.Equal(t, first+1, second)
	_ = lazy.conn.Close()
	b.consumers("poison", 0)
	c = b.dial()
	c.consume("poison", "c", 1)
	id, _, _ := c.message()
	c.send("REQ %s 3600000\n", id)             // it waits, and delays no other message
	b.dial().put("poison", "after the poison") // c may get it before an answer to a PUB of its own
	_, _, text := c.message()
	require.Equal(t, "after the poison", text)
}

// consumers waits until the only channel of a topic has so many.
func (b *broker) consumers(topic string, n int) {
	b.t.Helper()
	b.eventually(fmt.Sprint(n, " consumers"), func() bool {
		_, s := b.get("/stats?format=json&include_clients=false&topic=" + topic)
		return strings.Contains(s, fmt.Sprintf(`"client_count":%d`, n))
	})
}

// TestIdleConnections: thousands of them are cheap, and others are served.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	var files syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	connections := min(2000, int(files.Cur)/2) // the test's limit is the broker's
	b := start(t)
	before := b.memory()
	for range connections {
		conn, err := net.Dial("tcp", b.address(0))
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("  V2"))
		require.NoError(t, err)
	}
	c := b.dial()
	for range 20 {
		c.put("t", "x")
	}
	each := (b.memory() - before) / connections
	t.Logf("%d connections: %d bytes each", connections, each)
	require.Less(t, each, memoryFactor*32<<10)
	b.quiet()
}

// TestMoreClientsThanFiles: more connections than the process may open files are refused, and the broker continues.
func TestMoreClientsThanFiles(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	b.ulimit = 256
	b.run()
	b.ready()
	c := b.dial()
	var crowd []net.Conn
	for range 2 * b.ulimit {
		conn, err := net.Dial("tcp", b.address(0))
		require.NoError(t, err)
		crowd = append(crowd, conn)
	}
	for i := range 20 { // more than the store gathers in memory, to new topics
		c.put(fmt.Sprint("t", i%5), strings.Repeat("x", 64<<10))
	}
	b.http.CloseIdleConnections() // a probe opens a new connection
	status, _ := b.get("/healthz")
	require.Equal(t, http.StatusOK, status)
	for _, conn := range crowd {
		_ = conn.Close()
	}
	b.eventually("takes clients again", func() bool {
		conn, err := net.Dial("tcp", b.address(0))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = conn.Write([]byte("  V2NOP\nPUB t0\n\x00\x00\x00\x01x"))
		require.NoError(t, err)
		answer := make([]byte, 10)
		n, _ := io.ReadFull(conn, answer) // an error frame if it was refused
		return n == 10 && string(answer[8:]) == "OK"
	})
	b.quiet()
}

// memory returns the resident set of the process in bytes.
func (b *broker) memory() int {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.cmd.Process.Pid))
	if err != nil {
		env.Missing(b.t, "/proc", err)
	}
	var total, resident int
	_, err = fmt.Sscan(string(text), &total, &resident)
	require.NoError(b.t, err)
	return resident * os.Getpagesize()
}

// TestFlippedBit damages a stored message: the log names it, and the broker delivers all messages but this one.
func TestFlippedBit(t *testing.T) {
	t.Parallel()
	b := start(t)
	c := b.dial()
	const marked = "this body will be damaged on disk"
	for i := range 100 {
		text := fmt.Sprint("message ", i)
		if i == 50 {
			text = marked
		}
		c.put("t", text)
	}
	b.stop() // writes all segments
	b.flip(marked)
	b.run()
	b.ready()
	c = b.dial()
	c.consume("t", "c", 1)
	got := map[string]bool{}
	for range 50 {
		id, _, text := c.message()
		got[text] = true
		c.send("FIN %s\n", id)
	}
	b.eventually("names the damage", func() bool { return strings.Contains(b.logged(), "offsets 4820 to 4938 are damaged") })
	for text := range got {
		require.True(t, strings.HasPrefix(text, "message "), text)
	}
	// The damaged message blocks the channel until a replica repairs it or an operator seeks past it.
	status, text := b.post("/v1/channel/seek?topic=t&channel=c&to=51", "")
	require.Equal(t, 200, status, text)
	for i := 51; i < 100; i++ {
		id, _, text := c.message()
		require.Equal(t, fmt.Sprint("message ", i), text)
		c.send("FIN %s\n", id)
	}
}

// flip changes one bit of the text in the segment that has it.
func (b *broker) flip(text string) {
	b.t.Helper()
	flipped := false
	err := filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".seg" {
			return err
		}
		content, err := os.ReadFile(path)
		if at := strings.Index(string(content), text); at >= 0 {
			content[at] ^= 1
			flipped = true
			return os.WriteFile(path, content, 0o600)
		}
		return err
	})
	require.NoError(b.t, err)
	require.True(b.t, flipped, "no segment holds the message")
}

// TestAbusedHTTP: a request that stops within its head does not keep a broker from stopping.
func TestAbusedHTTP(t *testing.T) {
	t.Parallel()
	start(t).stopsBesideHalfARequest()
}

func (b *broker) stopsBesideHalfARequest() {
	b.t.Helper()
	for what, request := range map[string]string{"half": "Content-Length: 100\r\n\r\nhalf", "huge": fmt.Sprintf("Content-Length: %d\r\n\r\n", int64(1)<<40)} {
		conn, err := net.Dial("tcp", b.address(1))
		require.NoError(b.t, err)
		b.t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\n"+request)
		require.NoError(b.t, err)
		if what == "huge" {
			answer := make([]byte, 12)
			_, err = io.ReadFull(conn, answer)
			require.NoError(b.t, err)
			require.Equal(b.t, "HTTP/1.1 413", string(answer))
		}
	}
	status, _ := b.get("/ping")
	require.Equal(b.t, http.StatusOK, status)
	b.stop()
}
