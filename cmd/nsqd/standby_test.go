package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

// TestReasonsInTheLog: each change is logged at once; a reason that remains, or returns, every 30 s.
func TestReasonsInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		s := newStandby(log, nil, 0)
		lines := func(text string) int {
			return strings.Count(out.String(), fmt.Sprintf("msg=\"not ready\" reason=%s", text))
		}
		s.sayIfLong("early")
		require.Equal(t, "early", s.why())
		require.Zero(t, lines("early"), "every start waits for a moment")
		time.Sleep(usualWait)
		s.sayIfLong("early")
		require.Equal(t, 1, lines("early"))
		for range 10 { // one second each
			s.say("a")
			s.say("b")
			time.Sleep(time.Second)
		}
		require.Equal(t, "b", s.why())
		require.Equal(t, []int{1, 1}, []int{lines("a"), lines("b")})
		time.Sleep(repeatEvery)
		s.say("a")
		require.Equal(t, []int{2, 1}, []int{lines("a"), lines("b")})
		s.step("c")
		require.Equal(t, "c", s.why())
		require.Zero(t, lines("c"), "a step is no reason to wait")
		for i := range 10 * maxReasons {
			s.say(fmt.Sprint("other ", i))
		}
		require.LessOrEqual(t, len(s.mu.logged), maxReasons)
	})
}

// starting is the clients' side of a broker that starts, in a bubble.
type starting struct {
	t       *testing.T
	s       *standby
	cluster *edgetest.Cluster
	tcp     *tcp.Handler
	http    http.Handler
	users   *access.Registry
	store   *metadatatest.Memory
	ctx     context.Context
	waits   *sync.WaitGroup
}

const startHold = 9 * time.Second

// inStart runs a test with a broker that does not serve yet.
func inStart(t *testing.T, test func(*starting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)
		ctx, cancel := context.WithCancel(t.Context())
		x := &starting{
			t: t, s: newStandby(log, nil, startHold), cluster: edgetest.New(), store: metadatatest.NewMemory(), ctx: ctx, waits: &sync.WaitGroup{},
			users: access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, Log: log}),
		}
		x.s.step("it waits")
		g := guard.New(guard.Options{Users: x.users, NotReady: x.s.why, Log: log})
		x.tcp = tcp.New(tcp.DefaultOptions(), tcp.Backend{
			Publisher: x.s, Subscribers: x.s, Await: x.s.await, Guard: g, Log: log,
		})
		x.http = x.s.port(func(b *backends) http.Handler { return b.api })
		test(x)
		cancel()
		x.waits.Wait()
		x.cluster.Close()
		require.NoError(t, x.store.Close())
	})
}

// serve ends the start: the users are read, then the broker serves.
func (x *starting) serve() {
	x.waits.Go(func() { x.users.Watch(x.ctx, x.store) })
	synctest.Wait()
	x.s.serve(backends{publisher: x.cluster, subscribers: x.cluster, api: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "served")
	})})
}

// reply is an answer, and the time of its arrival since the start of the test.
type reply struct {
	text string
	at   time.Duration
}

// asks sends commands in one write, on a connection of its own, and returns the answers.
func (x *starting) asks(pieces ...string) (answers chan reply, client net.Conn) {
	client, server := net.Pipe()
	began := time.Now()
	answers = make(chan reply, 100)
	x.waits.Go(func() { x.tcp.Serve(x.ctx, server) })
	x.waits.Go(func() { _, _ = io.WriteString(client, "  V2"+strings.Join(pieces, "")) }) // blocks while the broker does not read
	x.waits.Go(func() {
		defer close(answers)
		in := bufio.NewReader(client)
		for {
			var head [8]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				return
			}
			body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
			if _, err := io.ReadFull(in, body); err != nil {
				return
			}
			if text := string(body); text != "_heartbeat_" {
				answers <- reply{text, time.Since(began)}
			}
		}
	})
	return answers, client
}

// requests sends an HTTP request and returns the answer.
func (x *starting) requests(method, path string) (answer chan reply) {
	began := time.Now()
	answer = make(chan reply, 1)
	x.waits.Go(func() {
		w := httptest.NewRecorder()
		x.http.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("body")))
		answer <- reply{fmt.Sprint(w.Code, " ", w.Header().Get(api.NotReadyHeader), " ", w.Body), time.Since(began)}
	})
	return answer
}

func sized(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// clientCommands are one command of each kind, with the beginning of the refusal after the wait.
func clientCommands() map[string]string {
	one := sized("\x00\x00\x00\x01" + sized("m"))
	return map[string]string{
		"PUB t\n" + sized("m"):               "E_PUB_FAILED PUB failed not ready, not stored: it waits",
		"MPUB t\n" + one:                     "E_MPUB_FAILED MPUB failed not ready, not stored: it waits",
		"DPUB t 5\n" + sized("m"):            "E_DPUB_FAILED DPUB failed not ready, not stored: it waits",
		"PUB_EXT t\n" + sized("\x00\x02{}m"): "E_PUB_FAILED PUB failed not ready, not stored: it waits",
		"SUB t c\n":                          "E_SUB_FAILED SUB failed not ready: it waits",
		"SUB_ORDERED t c\n":                  "E_SUB_FAILED SUB failed not ready: it waits",
		"SUB_ADVANCED t c\n":                 "E_SUB_FAILED SUB failed not ready: it waits",
	}
}

// TestClientsWaitForTheStart: whatever a client sends to a broker that does not serve yet is answered when it serves,
// and not with an error. Probes do not wait.
func TestClientsWaitForTheStart(t *testing.T) {
	inStart(t, func(x *starting) {
		const takes = 8 * time.Second
		answers := map[string]chan reply{}
		for send := range clientCommands() {
			answers[send], _ = x.asks("IDENTIFY\n"+sized("{}"), send)
		}
		bare, _ := x.asks("PUB bare\n" + sized("m"))
		auth, _ := x.asks("AUTH\n" + sized("secret"))
		var requests []chan reply
		for _, r := range []string{"POST /pub?topic=h", "GET /lookup?topic=t", "POST /topic/create?topic=t", "GET /v1/cluster", "POST /v1/consume?topic=t&channel=c", "GET /ui"} {
			method, path, _ := strings.Cut(r, " ")
			requests = append(requests, x.requests(method, path))
		}
		for probe, want := range map[string]string{
			"/healthz": "200  OK", "/readyz": "503 true not ready: it waits", "/ping": "503 true NOK - not ready: it waits",
		} {
			require.Equal(t, reply{text: want}, <-x.requests(http.MethodGet, probe), probe)
		}
		require.Contains(t, (<-x.requests(http.MethodHead, "/readyz")).text, "503 true")
		time.Sleep(takes)
		x.serve()
		for send, got := range answers {
			require.Equal(t, reply{"OK", takes}, <-got, "IDENTIFY before %q", send)
			r := <-got
			require.Truef(t, strings.HasPrefix(r.text, "OK") && r.at == takes, "%q: %v", send, r)
		}
		require.Equal(t, reply{"OK", takes}, <-bare)
		require.Equal(t, reply{"E_AUTH_DISABLED AUTH disabled", takes}, <-auth)
		for _, got := range requests {
			require.Equal(t, reply{"200  served", takes}, <-got)
		}
		later, _ := x.asks("PUB later\n" + sized("m"))
		require.Equal(t, reply{text: "OK"}, <-later)
	})
}

// TestAStartThatIsTooLong: a client receives the reason when it has waited as long as a put, for all that it sent
// together. A later command waits again.
func TestAStartThatIsTooLong(t *testing.T) {
	inStart(t, func(x *starting) {
		for send, want := range clientCommands() {
			got, _ := x.asks("IDENTIFY\n"+sized("{}"), send)
			require.Equal(t, reply{"OK", startHold}, <-got)
			require.Equal(t, reply{want, startHold}, <-got)
		}
		auth, _ := x.asks("AUTH\n" + sized("secret"))
		require.Equal(t, reply{"E_AUTH_FAILED AUTH failed not ready: it waits", startHold}, <-auth)
		require.Equal(t, reply{"503 true " + `{"message":"not ready: it waits"}`, startHold}, <-x.requests(http.MethodPost, "/pub?topic=t"))

		got, client := x.asks("NOP\n", strings.Repeat("PUB t\n"+sized("m"), 100))
		for range 100 {
			require.Equal(t, startHold, (<-got).at)
		}
		time.Sleep(time.Second)
		_, err := io.WriteString(client, "PUB t\n"+sized("m"))
		require.NoError(t, err)
		require.Equal(t, 2*startHold+time.Second, (<-got).at)
		x.waits.Go(func() { _, _ = io.WriteString(client, "PUB t\n"+sized("m")) })
		time.Sleep(time.Second)
		x.serve()
		require.Equal(t, reply{"OK", 2*startHold + 2*time.Second}, <-got)
		require.Len(t, x.cluster.Puts(), 1, "nothing else is stored")
		require.NoError(t, client.Close())
	})
}

// TestAStopEndsTheWaits: a process that stops in its start does not let its clients wait.
func TestAStopEndsTheWaits(t *testing.T) {
	inStart(t, func(x *starting) {
		put, _ := x.asks("PUB t\n" + sized("m"))
		request := x.requests(http.MethodGet, "/stats")
		time.Sleep(time.Second)
		x.s.end()
		require.Equal(t, reply{"E_PUB_FAILED PUB failed not ready, not stored: it waits", time.Second}, <-put)
		require.Equal(t, time.Second, (<-request).at)
		x.s.end() // twice is harmless
	})
}
