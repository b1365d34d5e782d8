package httpapi_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	settings "github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// polled has a broker that consumers reach by HTTP.
type polled struct {
	t       *testing.T
	cluster *edgetest.Cluster
	handler http.Handler
}

func newPolled(t *testing.T, o consume.Options) *polled {
	cluster := edgetest.New()
	t.Cleanup(cluster.Close)
	log := logrus.New()
	log.SetOutput(io.Discard)
	o.RequeueOnDisconnect = true
	sessions := consume.New(o, cluster, nil)
	t.Cleanup(sessions.Stop)
	options := httpapi.Options{
		InfoReply: httpapi.InfoReply{Version: "1.3.0"}, StartTime: time.Unix(1700000000, 0), Connection: settings.Connection{MaxRdyCount: 2500},
		Messages: settings.Messages{MaxMsgSize: 1000, MaxBodySize: 10000, MsgTimeout: time.Minute, MaxMsgTimeout: 15 * time.Minute, MaxReqTimeout: time.Hour},
	}
	return &polled{t, cluster, httpapi.NSQD(options, httpapi.Backend{
		Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Consumers: sessions, Log: log,
	})}
}

// post makes a request with a body and a value of Accept.
func (p *polled) post(target, body, accept string) *http.Response {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	p.handler.ServeHTTP(w, r)
	return w.Result()
}

func (p *polled) put(bodies ...string) {
	for _, body := range bodies {
		require.Equal(p.t, http.StatusOK, p.post("/pub?topic=t", body, "").StatusCode)
	}
}

// answered is an answer to /v1/consume.
type answered struct {
	Messages []struct {
		ID, Receipt string
		Attempts    int
		Timestamp   int64
		Header      map[string]any
		Body        *string
		BodyBase64  string `json:"body_base64"`
	}
}

func (p *polled) consume(arguments string) (a answered) {
	p.t.Helper()
	r := p.post("/v1/consume?topic=t&channel=c"+arguments, "", "")
	require.Equal(p.t, http.StatusOK, r.StatusCode)
	require.Equal(p.t, "application/json; charset=utf-8", r.Header.Get("Content-Type"))
	require.Equal(p.t, "no-store", r.Header.Get("Cache-Control"))
	require.NoError(p.t, json.NewDecoder(r.Body).Decode(&a))
	return a
}

// TestConsume: text is text, other bytes are base64, and a receipt finishes its message.
func TestConsume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t, consume.Options{})
		bodies := []string{"plain", "quoted \"\n\u2028<&>\x01é", "\xff\x00binary"}
		p.put(bodies...)
		a := p.consume("&max=10")
		require.Len(t, a.Messages, 3)
		var receipts []string
		for i, m := range a.Messages {
			var body string
			if m.Body != nil {
				body = *m.Body
			} else {
				raw, err := base64.StdEncoding.DecodeString(m.BodyBase64)
				require.NoError(t, err)
				body = string(raw)
			}
			require.Equal(t, bodies[i], body)
			require.Equal(t, i < 2, m.Body != nil, "text is not encoded")
			require.Equal(t, 1, m.Attempts)
			require.NotZero(t, m.Timestamp)
			require.True(t, strings.HasPrefix(m.Receipt, m.ID))
			receipts = append(receipts, m.Receipt)
		}
		c := p.cluster.Topics("t", "", false)[0].Channels[0]
		require.Equal(t, 3, c.InFlightCount)
		require.Equal(t, `{"finished":2}`, text(t, p.post("/v1/finish?topic=t&channel=c", strings.Join(receipts[:2], "\n")+"\n", "")))
		require.Equal(t, `{"touched":1}`, text(t, p.post("/v1/touch?topic=t&channel=c&receipt="+receipts[2], "", "")))
		require.Equal(t, `{"requeued":1}`, text(t, p.post("/v1/requeue?topic=t&channel=c&delay=10ms", `["`+receipts[2]+`"]`, "")))
		a = p.consume("&wait=10s&encoding=base64")
		require.Len(t, a.Messages, 1)
		require.Equal(t, base64.StdEncoding.EncodeToString([]byte(bodies[2])), a.Messages[0].BodyBase64)
		require.Equal(t, 2, a.Messages[0].Attempts)
		require.Equal(t, `{"finished":1}`, text(t, p.post("/v1/finish?topic=t&channel=c&receipt="+a.Messages[0].Receipt, "", "")))
		require.Equal(t, "{\"messages\":[]}\n", text(t, p.post("/v1/consume?topic=t&channel=c", "", "")))
	})
}

// TestSettleRefuses: the answer names the receipts that are not settled; the others are.
func TestSettleRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t, consume.Options{})
		p.put("m")
		receipt := p.consume("").Messages[0].Receipt
		gone := "00000000000000ff" + receipt[16:]
		r := p.post("/v1/finish?topic=t&channel=c", receipt+" "+gone, "")
		require.Equal(t, http.StatusConflict, r.StatusCode)
		require.JSONEq(t, `{"done":1,"message":"1 of 2 receipts refused: ID not in flight","refused":[{"receipt":"`+gone+`","message":"ID not in flight"}]}`, text(t, r))
		for _, row := range []struct{ target, body, want string }{
			{"/v1/finish?topic=t&channel=c", "", message(400, "MISSING_ARG_RECEIPT")},
			{"/v1/finish?topic=t&channel=c", "[]", message(400, "MISSING_ARG_RECEIPT")},
			{"/v1/finish?topic=t&channel=c", "[1]", message(400, "invalid argument: the body must be a JSON array of receipts, or have one receipt a line")},
			{"/v1/finish?topic=t&channel=c&receipt=x", "", message(400, "INVALID_ARG_RECEIPT")},
			{"/v1/finish?topic=t&channel=c&receipt=" + gone, gone, message(400, "invalid argument: receipts are in the query or in the body, not in both")},
			{"/v1/finish?topic=t&channel=c", strings.Repeat(" ", 1<<20+1), message(413, "BODY_TOO_BIG")},
			{"/v1/finish?topic=t&channel=c", strings.Repeat("x ", 10_001), message(413, "TOO_MANY_RECEIPTS")},
			{"/v1/finish?channel=c", "", message(400, "MISSING_ARG_TOPIC")},
			{"/v1/finish?topic=t&channel=$", "", message(400, "INVALID_ARG_CHANNEL")},
			{"/v1/finish?topic=t&channel=c&delay=1", gone, message(400, `invalid argument: there is no argument \"delay\", but: topic, channel, receipt`)},
			{"/v1/requeue?topic=t&channel=c&delay=2h", gone, message(400, "invalid argument: delay must be a duration such as 20s, or a number of milliseconds, from 0s to 1h0m0s")},
		} {
			r := p.post(row.target, row.body, "")
			require.Equal(t, row.want, fmt.Sprintf("%d %s", r.StatusCode, withoutDetail(text(t, r))), row.target)
		}
	})
}

func TestConsumeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t, consume.Options{MaxSessions: 1})
		for _, row := range []struct{ arguments, body, accept, want string }{
			{"max=0", "", "", message(400, "invalid argument: max must be a number from 1 to 2500")},
			{"max=2501", "", "", message(400, "invalid argument: max must be a number from 1 to 2500")},
			{"max=x", "", "", message(400, "invalid argument: max must be a number from 1 to 2500")},
			{"max_in_flight=0", "", "", message(400, "invalid argument: max_in_flight must be a number from 1 to 2500")},
			{"wait=6m", "", "", message(400, "invalid argument: wait must be a duration such as 20s, or a number of milliseconds, from 0s to 5m0s")},
			{"wait=-1", "", "", message(400, "invalid argument: wait must be a duration such as 20s, or a number of milliseconds, from 0s to 5m0s")},
			{"wait=9223372036854775807", "", "", message(400, "invalid argument: wait must be a duration such as 20s, or a number of milliseconds, from 0s to 5m0s")},
			{"msg_timeout=16m", "", "", message(400, "invalid argument: msg_timeout must be a duration such as 20s, or a number of milliseconds, from 1ms to 15m0s")},
			{"msg_timeout=0", "", "", message(400, "invalid argument: msg_timeout must be a duration such as 20s, or a number of milliseconds, from 1ms to 15m0s")},
			{"msg_timeout=999us", "", "", message(400, "invalid argument: msg_timeout must be a duration such as 20s, or a number of milliseconds, from 1ms to 15m0s")},
			{"client=$", "", "", message(400, "invalid argument: client must have 1 to 64 letters, digits, dots, underscores and hyphens")},
			{"encoding=gzip", "", "", message(400, "invalid argument: encoding must be base64, or missing")},
			{"limit=1", "", "", message(400, `invalid argument: there is no argument \"limit\", but: topic, channel, max, wait, max_in_flight, msg_timeout, client, encoding`)},
			{"", "body", "", message(400, "BODY_NOT_EMPTY")},
			{"", "", "image/png", message(406, "NOT_ACCEPTABLE")},
			{"max=1", "", "text/event-stream", message(400, "invalid argument: a stream has neither max nor wait, but max_in_flight")},
		} {
			r := p.post("/v1/consume?topic=t&channel=c&"+row.arguments, row.body, row.accept)
			require.Equal(t, row.want, fmt.Sprintf("%d %s", r.StatusCode, withoutDetail(text(t, r))), row.arguments)
		}
		p.consume("")
		r := p.post("/v1/consume?topic=t&channel=c&client=another", "", "")
		require.Equal(t, http.StatusTooManyRequests, r.StatusCode)
		require.Equal(t, "1", r.Header.Get("Retry-After"))
		require.Contains(t, text(t, r), "too many consumers")
		r = p.post("/v1/consume?topic=t&channel=c&client=another", "", "text/event-stream")
		require.Equal(t, http.StatusTooManyRequests, r.StatusCode)
	})
}

// TestConsumeParts: the body of each part is that of its message, byte for byte.
func TestConsumeParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t, consume.Options{})
		bodies := []string{"text\r\n", "\xff\x00binary\r\n--x"}
		p.put(bodies...)
		r := p.post("/v1/consume?topic=t&channel=c&max=10", "", "multipart/mixed")
		kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		require.NoError(t, err)
		require.Equal(t, "multipart/mixed", kind)
		parts := multipart.NewReader(r.Body, params["boundary"])
		for _, want := range bodies {
			part, err := parts.NextPart()
			require.NoError(t, err)
			body, err := io.ReadAll(part)
			require.NoError(t, err)
			require.Equal(t, want, string(body))
			require.Equal(t, "1", part.Header.Get("X-Nsq-Attempts"))
			require.NotEmpty(t, part.Header.Get("X-Nsq-Timestamp"))
			require.True(t, strings.HasPrefix(part.Header.Get("X-Nsq-Receipt"), part.Header.Get("X-Nsq-Message-Id")))
			target := "/v1/finish?topic=t&channel=c&receipt=" + part.Header.Get("X-Nsq-Receipt")
			require.Equal(t, http.StatusOK, p.post(target, "", "").StatusCode)
		}
		_, err = parts.NextPart()
		require.ErrorIs(t, err, io.EOF)
	})
}

// TestConsumeHeaders: the header of an extended put comes with the message.
func TestConsumeHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t, consume.Options{})
		for range 2 {
			require.Equal(t, http.StatusOK, p.post("/pub?topic=t&ttl=1m", "m", "").StatusCode)
		}
		require.Equal(t, map[string]any{"##ttl_ms": 60000.0}, p.consume("").Messages[0].Header)
		require.Contains(t, text(t, p.post("/v1/consume?topic=t&channel=c", "", "multipart/mixed")), `X-Nsq-Headers: {"##ttl_ms":60000}`)
	})
}

// TestConsumeStream reads server-sent events, and finishes their messages.
func TestConsumeStream(t *testing.T) {
	p := newPolled(t, consume.Options{})
	server := httptest.NewServer(p.handler)
	defer server.Close()
	request, err := http.NewRequestWithContext(wait.Context(t), http.MethodPost, server.URL+"/v1/consume?topic=t&channel=c&max_in_flight=1", nil)
	require.NoError(t, err)
	request.Header.Set("Accept", "text/event-stream")
	response, err := server.Client().Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	next := func(prefix string) string {
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), prefix); ok {
				return rest
			}
		}
		require.Fail(t, "the stream ended", lines.Err())
		return ""
	}
	next(": alive") // it is subscribed
	headed := httptest.NewRequest(http.MethodPost, "/pub?topic=t", strings.NewReader("one"))
	headed.Header.Set("X-Nsq-Headers", `{"Region":"eu"}`)
	headed.Header.Set("X-Nsq-Message-Id", "order-1")
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, headed)
	require.Equal(t, http.StatusOK, w.Code)
	p.put("two")
	for _, x := range []struct {
		body   string
		header map[string]any
	}{{"one", map[string]any{"##id": "order-1", "Region": "eu"}}, {"two", nil}} {
		require.Equal(t, "message", next("event: "))
		id := next("id: ")
		var m struct {
			ID, Receipt, Body string
			Header            map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(next("data: ")), &m))
		require.Equal(t, x.body, m.Body)
		require.Equal(t, x.header, m.Header)
		require.Equal(t, id, m.ID)
		require.Equal(t, 1, p.cluster.Topics("t", "", false)[0].Channels[0].InFlightCount)
		require.Equal(t, `{"finished":1}`, text(t, p.post("/v1/finish?topic=t&channel=c&receipt="+m.Receipt, "", "")))
	}
	require.NoError(t, p.cluster.Do(t.Context(), api.DeleteChannel{Topic: "t", Channel: "c"}))
	require.Equal(t, "end", next("event: "))
	require.Equal(t, `{"message":"channel not found: it has been deleted"}`, next("data: "))
}

// broken fails after some bytes, as a connection does whose client leaves in the middle of an answer.
type broken struct {
	*httptest.ResponseRecorder
	left int
}

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return b.ResponseRecorder.Write(p)
}

// TestAClientLeavesInTheAnswer: all its messages come again at once.
func TestAClientLeavesInTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t, consume.Options{})
		body := strings.Repeat("x", 900)
		for range 50 {
			p.put(body)
		}
		for _, accept := range []string{"application/json", "multipart/mixed"} {
			r := httptest.NewRequest(http.MethodPost, "/v1/consume?topic=t&channel=c&max=50", nil)
			r.Header.Set("Accept", accept)
			p.handler.ServeHTTP(&broken{httptest.NewRecorder(), 20_000}, r)
			c := p.cluster.Topics("t", "", false)[0].Channels[0]
			require.Zero(t, c.InFlightCount, accept)
			require.Equal(t, int64(50), c.Depth, accept)
		}
		require.Equal(t, 3, p.consume("").Messages[0].Attempts)
	})
}

// slow lets time pass in each write, as the connection of a client does that reads slowly, until the client leaves.
type slow struct {
	*httptest.ResponseRecorder
	each time.Duration
	ctx  context.Context
}

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(s.each)
	if s.ctx.Err() != nil {
		return 0, io.ErrClosedPipe
	}
	return s.ResponseRecorder.Write(p)
}

// TestAnAnswerHasNoMessageWhoseTimeoutIsOver: while a slow client reads the answer, the rest of its messages go to other
// clients.
func TestAnAnswerHasNoMessageWhoseTimeoutIsOver(t *testing.T) {
	const timeout, each = time.Minute, 50 * time.Second
	for accept, x := range map[string]struct {
		limit, mark string
		begins      time.Duration // when it takes the messages
	}{
		"application/json":  {"max=50", `"receipt"`, 0},
		"multipart/mixed":   {"max=50", "X-Nsq-Receipt", 0},
		"text/event-stream": {"max_in_flight=50", "event: message", each}, // after the first comment
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPolled(t, consume.Options{})
			body := strings.Repeat("x", 900)
			for range 50 {
				p.put(body)
			}
			ctx, cancel := context.WithTimeout(t.Context(), x.begins+7*each/2)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/consume?topic=t&channel=c&"+x.limit, nil)
			r.Header.Set("Accept", accept)
			w := &slow{httptest.NewRecorder(), each, ctx}
			done := make(chan struct{})
			go func() { // ends with the answer
				defer close(done)
				p.handler.ServeHTTP(w, r)
			}()
			time.Sleep(x.begins + timeout + time.Second)
			require.Len(t, p.consume("&client=another&max=50").Messages, 50, accept)
			<-done
			written := strings.Count(w.Body.String(), x.mark)
			require.Greater(t, written, 20, accept) // a write has about 16 messages, and the first two begin in time
			require.Less(t, written, 40, accept)
		})
	}
}

// TestAShortTimeoutLeavesTimeForTheAnswer: a poll does not wait for more messages until the timeout of the first one is
// over.
func TestAShortTimeoutLeavesTimeForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t, consume.Options{})
		p.put("m")
		require.Len(t, p.consume("&max=10&msg_timeout=1ms").Messages, 1)
	})
}

// TestConsumersOfANetwork: the addresses of one IPv6 /64 share the limit of an address.
func TestConsumersOfANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t, consume.Options{MaxSessions: 9, MaxPerClient: 2})
		for i, remote := range []string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "[2001:db8:0:1::1]:1", "192.0.2.1:1", "192.0.2.2:1"} {
			r := httptest.NewRequest(http.MethodPost, "/v1/consume?topic=t&channel=c", nil)
			r.RemoteAddr = remote
			w := httptest.NewRecorder()
			p.handler.ServeHTTP(w, r)
			want := http.StatusOK
			if i == 2 {
				want = http.StatusTooManyRequests
			}
			require.Equal(t, want, w.Code, "%s: %s", remote, w.Body)
		}
	})
}

// judge answers as an auth service whose answers run out at once. It has no socket, which would stop the
// time of a bubble.
type judge struct {
	state  *authd.State
	denied atomic.Bool
}

// judgeOf compiles the answer of a service.
func judgeOf(t *testing.T, answer string) *judge {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	defer s.Close()
	state, err := authd.New(settings.AuthService{AuthHTTPAddress: []string{s.URL}}, nil).Query(t.Context(), authd.Request{})
	require.NoError(t, err)
	return &judge{state: &authd.State{Identity: state.Identity, Authorizations: state.Authorizations}} // it has expired
}

func (j *judge) Query(context.Context, authd.Request) (*authd.State, error) {
	if j.denied.Load() {
		return nil, authd.ErrDenied
	}
	return j.state, nil
}

// TestConsumersNeedTheRightToTheChannel: an auth service is asked for the channel of the request.
func TestConsumersNeedTheRightToTheChannel(t *testing.T) {
	service := judgeOf(t, `{"ttl":60,"identity":"me","authorizations":[{"topic":"^t$","channels":["^c$"],"permissions":["subscribe"]}]}`)
	synctest.Test(t, service.allowsOneChannel)
}

func (j *judge) allowsOneChannel(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	cluster := edgetest.New()
	defer cluster.Close()
	sessions := consume.New(consume.Options{}, cluster, nil)
	defer sessions.Stop()
	h := httpapi.NSQD(httpapi.Options{Connection: settings.Connection{MaxRdyCount: 10}, Messages: settings.Messages{MsgTimeout: time.Minute, MaxMsgTimeout: time.Minute}}, httpapi.Backend{
		Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Consumers: sessions, Log: log,
		Guard: guard.New(guard.Options{Log: log, External: j}),
	})
	for _, path := range []string{"/v1/consume", "/v1/finish", "/v1/requeue", "/v1/touch"} {
		for query, want := range map[string][]int{
			"topic=t&channel=c": {http.StatusOK, http.StatusBadRequest}, "topic=t&channel=d": {http.StatusForbidden},
			"topic=u&channel=c": {http.StatusForbidden}, "topic=t": {http.StatusForbidden},
		} {
			r := httptest.NewRequest(http.MethodPost, path+"?"+query, nil)
			r.Header.Set("Authorization", "Bearer secret")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Contains(t, want, w.Code, "%s?%s", path, query)
		}
	}
	require.Equal(t, "auth-service:me", cluster.Topics("t", "", true)[0].Channels[0].Clients[0].AuthIdentity)
}

// TestALostRightEndsAPoll: the right is asked for again before messages are sent, and they go back.
func TestALostRightEndsAPoll(t *testing.T) {
	service := judgeOf(t, `{"ttl":1,"identity":"me","authorizations":[{"topic":".*","channels":[".*"],"permissions":["subscribe","publish"]}]}`)
	synctest.Test(t, service.endsPolls)
}

func (j *judge) endsPolls(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	p := newPolled(t, consume.Options{})
	sessions := consume.New(consume.Options{RequeueOnDisconnect: true}, p.cluster, nil)
	defer sessions.Stop()
	h := httpapi.NSQD(httpapi.Options{Connection: settings.Connection{MaxRdyCount: 10}, Messages: settings.Messages{MsgTimeout: time.Minute, MaxMsgTimeout: time.Minute}}, httpapi.Backend{
		Publisher: p.cluster, Stats: p.cluster, Admin: p.cluster, Directory: p.cluster.Directory(), Consumers: sessions, Log: log,
		Guard: guard.New(guard.Options{Log: log, External: j}),
	})
	for i, accept := range []string{"application/json", "text/event-stream"} {
		j.denied.Store(false)
		send := func(target string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, target, nil)
			r.Header.Set("Authorization", "Bearer secret")
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		ended := make(chan *httptest.ResponseRecorder)
		go func() {
			ended <- send("/v1/consume?topic=t&channel=c" + map[bool]string{true: "&wait=1m"}[accept == "application/json"])
		}()
		synctest.Wait()
		require.Equal(t, i+1, sessions.Count(), "it waits for a message")
		j.denied.Store(true)
		require.NotEqual(t, http.StatusBadRequest, send("/v1/finish?topic=t&channel=c").Code)
		p.put("secret")
		require.NotContains(t, (<-ended).Body.String(), "secret")
		require.Equal(t, int64(1), p.cluster.Topics("t", "", false)[0].Channels[0].Depth)
		sub, err := p.cluster.Subscribe(t.Context(), api.SubscribeRequest{Topic: "t", Channel: "c", MsgTimeoutMS: 60_000})
		require.NoError(t, err)
		for _, d := range sub.Pull(10, nil) {
			require.NoError(t, sub.Finish(d.ID))
		}
		sub.Close(true)
	}
}
