package tracing

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	parent  = "00-" + traceID + "-b7ad6b7169203331-01"
)

// TestMain lifts the limits of an export: a test waits for its collector however busy the machine is.
func TestMain(m *testing.M) {
	exportTimeout, closeTimeout = wait.Limit, wait.Limit
	os.Exit(m.Run())
}

// sink is an OpenTelemetry collector on loopback.
type sink struct {
	collector.UnimplementedTraceServiceServer
	mu  sync.Mutex
	got []*spans.Span
}

// Export implements collector.TraceServiceServer.
func (s *sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			s.got = append(s.got, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (s *sink) span(name string) *spans.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.got, func(x *spans.Span) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return s.got[i]
}

func attributes(x *spans.Span) map[string]string {
	m := map[string]string{}
	for _, a := range x.Attributes {
		m[a.Key] = a.Value.GetStringValue()
	}
	return m
}

// listen returns a collector and its address.
func listen(t *testing.T) (*sink, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, server := &sink{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); served.Wait() })
	return s, l.Addr().String()
}

type counts struct {
	mu            sync.Mutex
	sent, dropped int
}

func (c *counts) add(what metrics.Count, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch what {
	case metrics.SpansSent:
		c.sent += n
	case metrics.SpansDropped:
		c.dropped += n
	}
}

func newTracer(t *testing.T, address string, sample float64) (*Tracer, *counts) {
	log := logrus.New()
	log.Out = io.Discard
	c := &counts{}
	tr, err := New(Options{Address: address, Plain: true, Sample: sample, Node: "n1", Version: "1", Count: c.add, Log: log})
	require.NoError(t, err)
	return tr, c
}

// echo is a publisher that answers at once, and a subscription that delivers what it is given.
type echo struct {
	api.Subscription
	err error
	out []api.Delivery
}

func (*echo) Admit(context.Context, string, int) error { return nil }
func (e *echo) Publish(_ string, _ int, _ []byte, _ queue.Draft, a api.Answerer) {
	a.Answer(api.PutResult{Err: e.err, ID: api.MessageID{'i', 'd'}})
}
func (e *echo) Subscribe(context.Context, api.SubscribeRequest) (api.Subscription, error) {
	return e, nil
}
func (e *echo) Pull(_ int, dst []api.Delivery) []api.Delivery {
	dst = append(dst, e.out...)
	e.out = nil
	return dst
}
func (e *echo) Finish(api.MessageID) error         { return e.err }
func (e *echo) Requeue(api.MessageID, int64) error { return e.err }
func (e *echo) Touch(api.MessageID) error          { return e.err }
func (*echo) Close(bool)                           {}

type nobody struct{}

func (nobody) Answer(api.PutResult) {}

func draftOf(t *testing.T, header string) queue.Draft {
	d := queue.NewDraft(0)
	m := queue.Message{Body: []byte("the body is a secret")}
	if header != "" {
		m.Header = []byte(header)
	}
	require.NoError(t, d.AddMessage(m))
	return d.Draft(ident.RequestID{})
}

// TestSpansOfAPut: of the put at the edge and of the leader's stages, with the message's parent.
func TestSpansOfAPut(t *testing.T) {
	s, address := listen(t)
	tr, c := newTracer(t, address, 0)
	d := draftOf(t, `{"traceparent":"`+parent+`"}`)
	tr.Publisher(&echo{}).Publish("orders", api.AnyPartition, nil, d, nobody{})
	tr.Publisher(&echo{err: outcome.ErrNotEnough}).Publish("refused", 3, nil, d, nobody{})
	at := time.Unix(1_700_000_000, 0)
	stored := tr.Store(&d)
	require.NotNil(t, stored)
	stored(Stored{
		Topic: "orders", Partition: 2, Submitted: at, Proposed: at.Add(time.Millisecond), Committed: at.Add(5 * time.Millisecond),
		Synced: 3 * time.Millisecond, Messages: 1, Bytes: 20,
	})
	tr.Close()

	put, store := s.span("publish orders"), s.span("store orders")
	for _, x := range []*spans.Span{put, store, s.span("publish refused")} {
		require.NotNil(t, x)
		require.Equal(t, traceID, hex.EncodeToString(x.TraceId))
		require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(x.ParentSpanId))
	}
	require.Equal(t, "6964", hex.EncodeToString([]byte(attributes(put)["messaging.message.id"])[:2]))
	require.Equal(t, spans.Status_STATUS_CODE_ERROR, s.span("publish refused").Status.Code)
	require.Equal(t, 5*time.Millisecond, lasted(store))
	for name, took := range map[string]time.Duration{"queue": time.Millisecond, "journal": 3 * time.Millisecond, "replicate": 4 * time.Millisecond} {
		x := s.span(name)
		require.Equal(t, store.SpanId, x.ParentSpanId, name)
		require.Equal(t, took, lasted(x), name)
	}
	for _, x := range s.got {
		require.NotContains(t, x.String(), "secret")
	}
	require.Equal(t, len(s.got), c.sent)
	require.Zero(t, c.dropped)
}

func lasted(x *spans.Span) time.Duration {
	return time.Duration(x.EndTimeUnixNano - x.StartTimeUnixNano)
}

// TestSpansOfADelivery: the first one with its wait, and each with its outcome.
func TestSpansOfADelivery(t *testing.T) {
	s, address := listen(t)
	tr, _ := newTracer(t, address, 0)
	for _, end := range []string{"finished", "requeued", "timed out", "connection closed"} {
		e := &echo{}
		sub, err := tr.Subscribers(e).Subscribe(t.Context(), api.SubscribeRequest{Topic: end, Channel: "billing"})
		require.NoError(t, err)
		published := time.Now().Add(-time.Second)
		m := queue.Message{Header: []byte(`{"traceparent":"` + parent + `"}`), Attempts: 1, Time: published.UnixNano()}
		id := api.MessageID{'x'}
		e.out = []api.Delivery{{ID: id, Message: m}, {ID: api.MessageID{'y'}, Message: queue.Message{Attempts: 1}}}
		require.Len(t, sub.Pull(2, nil), 2)
		switch end {
		case "finished":
			require.NoError(t, sub.Finish(id))
		case "requeued":
			require.NoError(t, sub.Requeue(id, 0))
		case "timed out":
			e.err = outcome.ErrNotInFlight
			require.ErrorIs(t, sub.Finish(id), e.err)
		default:
			sub.Close(true)
		}
	}
	tr.Close()
	require.Len(t, s.got, 4*3, "those of the message without a parent are missing")
	for _, end := range []string{"finished", "requeued", "timed out", "connection closed"} {
		x := s.span("deliver " + end)
		require.NotNil(t, x, end)
		require.Equal(t, end, attributes(x)["lockstep.outcome"])
		require.Equal(t, "billing", attributes(x)["messaging.consumer.group.name"])
		require.Equal(t, traceID, hex.EncodeToString(x.TraceId))
		require.Greater(t, lasted(x), time.Second)
	}
	waited, inFlight := s.span("wait"), s.span("in flight")
	require.GreaterOrEqual(t, lasted(waited), time.Second)
	require.Equal(t, waited.EndTimeUnixNano, inFlight.StartTimeUnixNano)
	require.Equal(t, s.span("deliver finished").EndTimeUnixNano, inFlight.EndTimeUnixNano)
}

// TestDeliveriesThatTimeOut: a message that its consumer forgets, and one that it touches.
func TestDeliveriesThatTimeOut(t *testing.T) {
	s, address := listen(t)
	tr, _ := newTracer(t, address, 0)
	e := &echo{}
	sub, err := tr.Subscribers(e).Subscribe(t.Context(), api.SubscribeRequest{Topic: "orders", Channel: "billing", MsgTimeoutMS: 10})
	require.NoError(t, err)
	m := queue.Message{Header: []byte(`{"traceparent":"` + parent + `"}`), Attempts: 2}
	e.out = []api.Delivery{{ID: api.MessageID{'x'}, Message: m}, {ID: api.MessageID{'y'}, Message: m}}
	now := time.Now()
	require.Len(t, sub.Pull(2, nil), 2)
	traced := sub.(*subscription)
	traced.mu.open[api.MessageID{'y'}] = delivery{o: traced.mu.open[api.MessageID{'y'}].o, began: now, deadline: now}
	require.NoError(t, sub.Touch(api.MessageID{'y'}))
	traced.sweep(now.Add(2 * time.Millisecond))
	require.Len(t, traced.mu.open, 2)
	traced.mu.swept = time.Time{}
	touched := traced.mu.open[api.MessageID{'y'}]
	touched.deadline = now.Add(time.Hour)
	traced.mu.open[api.MessageID{'y'}] = touched
	traced.sweep(now.Add(time.Minute))
	require.Len(t, traced.mu.open, 1, "the touched delivery continues")
	tr.Close()
	x := s.span("deliver orders")
	require.NotNil(t, x)
	require.Equal(t, "timed out", attributes(x)["lockstep.outcome"])
	require.Equal(t, 10*time.Millisecond, lasted(x), "until its deadline, not until it was noticed")
}

// TestSampling: a parent decides; without one the share does.
func TestSampling(t *testing.T) {
	_, address := listen(t)
	for _, x := range []struct {
		header string
		sample float64
		traced bool
	}{
		{`{"traceparent":"` + parent + `"}`, 0, true},
		{`{"traceparent":"` + parent[:len(parent)-1] + `0"}`, 1, false},
		{`{"traceparent":"nonsense"}`, 0, false},
		{`{"traceparent":7}`, 0, false},
		{`{"other":"traceparent"}`, 0, false},
		{`{"other":"\"traceparent\":\"` + parent + `\""}`, 0, false},
		{`{"a":"b", "traceparent" : "` + parent + `", "c":"d"}`, 0, true},
		{"", 0, false},
		{"", 1, true},
	} {
		tr, _ := newTracer(t, address, x.sample)
		d := draftOf(t, x.header)
		require.Equal(t, x.traced, tr.Store(&d) != nil, "%+v", x)
		tr.Close()
	}
}

// TestTracesAreBounded: producers that sample everything do not have everything traced.
func TestTracesAreBounded(t *testing.T) {
	_, address := listen(t)
	tr, _ := newTracer(t, address, 1)
	defer tr.Close()
	require.EqualValues(t, tracesPerSecond, tr.limit.Limit())
	tr.limit.SetLimit(0) // no time passes
	d, n := draftOf(t, ""), 0
	for range 10 * tracesPerSecond {
		if tr.Store(&d) != nil {
			n++
		}
	}
	require.Equal(t, tracesPerSecond, n)
}

// TestNoCollector: spans that cannot be sent are dropped and counted.
func TestNoCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	tr, c := newTracer(t, l.Addr().String(), 1)
	tr.Publisher(&echo{}).Publish("orders", api.AnyPartition, nil, draftOf(t, ""), nobody{})
	tr.Close()
	require.Positive(t, c.dropped)
	require.Zero(t, c.sent)
}

// TestOff: nothing is wrapped.
func TestOff(t *testing.T) {
	var tr *Tracer
	e := &echo{}
	require.Same(t, e, tr.Publisher(e))
	require.Same(t, e, tr.Subscribers(e))
	require.Nil(t, tr.Store(nil))
	tr.Close()
}

// TestParentOfARequest: the traceparent of an HTTP request becomes one of the message.
func TestParentOfARequest(t *testing.T) {
	_, address := listen(t)
	tr, _ := newTracer(t, address, 0)
	defer tr.Close()
	var got string
	h := tr.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get(messageHeaders) }))
	for _, x := range []struct{ path, parent, given, want string }{
		{"/pub", parent, "", `{"traceparent":"` + parent + `"}`},
		{"/mpub", parent, `{"a":"b"}`, `{"a":"b","traceparent":"` + parent + `"}`},
		{"/pub", parent, `{"traceparent":"own"}`, `{"traceparent":"own"}`},
		{"/pub", parent, `{nonsense`, `{nonsense`},
		{"/pub", "nonsense", "", ""},
		{"/pub", parent, `{"a":"` + strings.Repeat("x", queue.MaxMessageHeader-60) + `"}`, `{"a":"` + strings.Repeat("x", queue.MaxMessageHeader-60) + `"}`},
		{"/stats", parent, "", ""},
	} {
		r := httptest.NewRequest(http.MethodPost, x.path, nil)
		r.Header.Set("Traceparent", x.parent)
		if x.given != "" {
			r.Header.Set(messageHeaders, x.given)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, x.want, got, "%+v", x)
	}
}
