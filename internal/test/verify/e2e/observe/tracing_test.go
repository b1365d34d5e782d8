package observe

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// spanSink is an OpenTelemetry collector that keeps the traces of each span's name.
type spanSink struct {
	collector.UnimplementedTraceServiceServer
	mu   sync.Mutex
	seen map[string]string // trace id by the name of the span
}

// Export implements collector.TraceServiceServer.
func (s *spanSink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, x := range scope.Spans {
				s.seen[x.Name] = hex.EncodeToString(x.TraceId)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (s *spanSink) trace(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[name]
}

// TestTracesOfThreeBrokers: a put by HTTP with a traceparent, at a broker that does not lead, and its
// delivery by HTTP at a third one, are in one trace with the stages at the leader.
func TestTracesOfThreeBrokers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	sink, server := &spanSink{seen: map[string]string{}}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, sink)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); served.Wait() })

	c := e2etest.Start(t, 3, "--otlp-endpoint="+l.Addr().String(), "--trace-sample=0")
	c.Create("orders", "billing", 1)
	others := []string{}
	for _, b := range c.Brokers {
		if b.Name != c.Leader("orders") {
			others = append(others, "http://"+b.HTTP)
		}
	}
	const trace = "0af7651916cd43dd8448eb211c80319c"
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPost, others[0]+"/pub?topic=orders", strings.NewReader("hello"))
	require.NoError(t, err)
	put.Header.Set("traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	r, err := http.DefaultClient.Do(put)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusOK, r.StatusCode)
	post := func(path string, arguments url.Values) (answer struct {
		Messages []struct {
			Receipt string `json:"receipt"`
		} `json:"messages"`
	}) {
		t.Helper()
		r, err := http.Post(others[1]+path+"?"+arguments.Encode(), "", nil)
		require.NoError(t, err)
		defer func() { _ = r.Body.Close() }()
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, r.StatusCode, "%s: %s", path, body)
		require.NoError(t, json.Unmarshal(body, &answer))
		return answer
	}
	got := post("/v1/consume", url.Values{"topic": {"orders"}, "channel": {"billing"}, "wait": {"10s"}})
	require.Len(t, got.Messages, 1)
	post("/v1/finish", url.Values{"topic": {"orders"}, "channel": {"billing"}, "receipt": {got.Messages[0].Receipt}})
	for _, name := range []string{"publish orders", "store orders", "queue", "replicate", "deliver orders", "in flight"} {
		require.Eventually(t, func() bool { return sink.trace(name) == trace }, 10*time.Second, 50*time.Millisecond, name)
	}
}
