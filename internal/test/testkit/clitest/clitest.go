package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
	"github.com/lockstepmq/lockstep/internal/test/testkit/brokertest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// FakeBroker answers the requests of the commands; each /stats counts 50 messages more.
func FakeBroker(t *testing.T) *httptest.Server {
	t.Helper()
	count := 0
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	mux.HandleFunc("/v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"brokers":[{"name":"n1","alive":true,"http_address":%q}],"topics":[{"topic":"orders","partitions":[{"partition":0,"leader":"n1"}]}]}`, s.Listener.Addr())
	})
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		count += 50
		fmt.Fprintf(w, `{"topics":[{"topic_name":"orders","message_count":%d,"paused":true,"channels":[{"channel_name":"ch","depth":7}]}]}`, count)
	})
	mux.HandleFunc("/v1/topic/peek", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("from") == "earliest" {
			fmt.Fprint(w, `{"next":1,"end":2,"messages":[{"id":"a","sequence":0,"body":"one"}]}`)
			return
		}
		fmt.Fprint(w, `{"next":2,"end":2,"messages":[{"id":"b","sequence":1,"body_base64":"/w=="}]}`)
	})
	return s
}

// TCPBroker is a fake broker for the duration of the test.
func TCPBroker(t *testing.T) string {
	t.Helper()
	address, _ := brokertest.Start(t, tcp.DefaultOptions())
	return address
}

// Running is a running command whose input is not at its end.
type Running struct {
	t      *testing.T
	in     *io.PipeWriter
	Cancel context.CancelFunc // Ctrl-C
	done   chan struct{}
	mu     sync.Mutex
	out    bytes.Buffer
	err    error // after done
}

// Write implements io.Writer for the output of the command.
func (r *Running) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(b)
}

// Said returns the output so far.
func (r *Running) Said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// Ends waits for the end of the command.
func (r *Running) Ends() error {
	r.t.Helper()
	wait.For(r.t, r.done, "the end of the command")
	return r.err
}

// LineFile returns the name of a new file with these lines.
func LineFile(t *testing.T, lines ...string) string {
	name := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return name
}

// DeadAddress is an address without a listener.
const DeadAddress = "127.0.0.1:1"

// Answering is a broker that answers with h.
func Answering(t *testing.T, h http.HandlerFunc) (address string) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// FakeCluster serves a view of three brokers whose live ones have its address.
func FakeCluster(t *testing.T, view func() api.ClusterView) (address string) {
	return ReportingCluster(t, view, nil)
}

// ReportingCluster is a FakeCluster whose brokers report faults of their own.
func ReportingCluster(t *testing.T, view func() api.ClusterView, own map[ident.Node]health.Own) (address string) {
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	address = s.Listener.Addr().String()
	mux.HandleFunc("/v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
		v := view()
		for i := range v.Brokers {
			v.Brokers[i].HTTPAddress = address
		}
		_ = json.NewEncoder(w).Encode(v)
	})
	mux.HandleFunc("/v1/console/brokers", func(w http.ResponseWriter, _ *http.Request) {
		var all console.Brokers
		for _, b := range view().Brokers {
			if b.Alive {
				all.Brokers = append(all.Brokers, console.Broker{BrokerView: b, Live: &console.Live{Own: own[b.Name]}})
			}
		}
		_ = json.NewEncoder(w).Encode(all)
	})
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"topics":[]}`)) })
	mux.HandleFunc("/topics", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"topics":["orders","audit"]}`)) })
	mux.HandleFunc("/channels", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"channels":["of-` + r.URL.Query().Get("topic") + `"]}`))
	})
	return address
}

// OneLess is a cluster whose broker n2 is dead; it led a partition if leads.
func OneLess(leads bool) api.ClusterView {
	p := api.PartitionView{Leader: "n1", Replicas: []ident.Node{"n1", "n2", "n3"}, ISR: []ident.Node{"n1", "n3"}, MinInSync: 2, CommittedSequence: 4711}
	if leads {
		p.Leader = "n2"
	}
	return api.ClusterView{Cluster: "c", Controller: "n1", Self: "n1",
		Brokers: []api.BrokerView{{Name: "n1", Alive: true}, {Name: "n2"}, {Name: "n3", Alive: true}},
		Topics:  []api.TopicView{{Topic: "orders", ReplicationFactor: 3, MinInSync: 2, Partitions: []api.PartitionView{p}}}}
}

// Planning is a broker that shows a plan, and notes the requests that change something.
func Planning(t *testing.T, plan *api.Plan, v api.ClusterView) (address string, changes func() []string) {
	var posted []string
	address = Answering(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			posted = append(posted, r.URL.Path+"?"+r.URL.RawQuery)
		case r.URL.Path == "/v1/cluster":
			_ = json.NewEncoder(w).Encode(v)
		default:
			_ = json.NewEncoder(w).Encode(plan)
		}
	})
	return address, func() []string { return posted }
}

// Run runs one command line, at most for limit.
func Run(t *testing.T, root *cobra.Command, limit time.Duration, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var b bytes.Buffer
	root.SetOut(&b)
	root.SetErr(&b)
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	return b.String(), err
}

// Begin starts one command line.
func Begin(t *testing.T, root *cobra.Command, args ...string) *Running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	r := &Running{t: t, in: out, Cancel: cancel, done: make(chan struct{})}
	root.SetOut(r)
	root.SetErr(r)
	root.SetIn(in)
	root.SetArgs(args)
	go func() { // Ends with the command
		defer close(r.done)
		r.err = root.ExecuteContext(ctx)
	}()
	t.Cleanup(func() { _ = out.Close(); cancel(); <-r.done })
	return r
}
