package main

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

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/protocol"
	"github.com/lockstepmq/lockstep/internal/testkit/brokertest"
)

// fakeBroker answers the requests of the commands; each /stats counts 50 messages more.
func fakeBroker(t *testing.T) *httptest.Server {
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

// tcpBroker is a fake broker for the duration of the test.
func tcpBroker(t *testing.T) string {
	t.Helper()
	address, _ := brokertest.Start(t, protocol.DefaultOptions())
	return address
}

// running is a running command whose input is not at its end.
type running struct {
	t      *testing.T
	in     *io.PipeWriter
	cancel context.CancelFunc // Ctrl-C
	done   chan struct{}
	mu     sync.Mutex
	out    bytes.Buffer
	err    error // after done
}

func (r *running) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(b)
}

func (r *running) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// ends waits for the end of the command.
func (r *running) ends() error {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(10 * time.Second):
		require.FailNow(r.t, "it goes on", r.said())
	}
	return r.err
}

func lineFile(t *testing.T, lines ...string) string {
	name := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return name
}

// deadAddress is an address without a listener.
const deadAddress = "127.0.0.1:1"

// answering is a broker that answers with h.
func answering(t *testing.T, h http.HandlerFunc) (address string) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// fakeCluster serves a view of three brokers whose live ones have its address.
func fakeCluster(t *testing.T, view func() edge.ClusterView) (address string) {
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
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"topics":[]}`)) })
	mux.HandleFunc("/topics", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"topics":["orders","audit"]}`)) })
	mux.HandleFunc("/channels", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"channels":["of-` + r.URL.Query().Get("topic") + `"]}`))
	})
	return address
}

// oneLess is a cluster whose broker n2 is dead; it led a partition if leads.
func oneLess(leads bool) edge.ClusterView {
	p := edge.PartitionView{Leader: "n1", Replicas: []ident.Node{"n1", "n2", "n3"}, ISR: []ident.Node{"n1", "n3"}, MinInSync: 2, CommittedSequence: 4711}
	if leads {
		p.Leader = "n2"
	}
	return edge.ClusterView{Cluster: "c", Controller: "n1", Self: "n1",
		Brokers: []edge.BrokerView{{Name: "n1", Alive: true}, {Name: "n2"}, {Name: "n3", Alive: true}},
		Topics:  []edge.TopicView{{Topic: "orders", ReplicationFactor: 3, MinInSync: 2, Partitions: []edge.PartitionView{p}}}}
}

// planning is a broker that shows a plan, and notes the requests that change something.
func planning(t *testing.T, plan *edge.Plan, v edge.ClusterView) (address string, changes func() []string) {
	var posted []string
	address = answering(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			posted = append(posted, r.URL.Path+"?"+r.URL.RawQuery)
		case r.URL.Path == "/v1/cluster":
			_ = json.NewEncoder(w).Encode(v)
		case plan == nil:
			http.Error(w, `{"message":"METHOD_NOT_ALLOWED"}`, http.StatusMethodNotAllowed)
		default:
			_ = json.NewEncoder(w).Encode(plan)
		}
	})
	return address, func() []string { return posted }
}

// runLine runs one command line, at most for limit.
func runLine(t *testing.T, root *cobra.Command, limit time.Duration, args ...string) (out string, err error) {
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

// beginLine starts one command line.
func beginLine(t *testing.T, root *cobra.Command, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	r := &running{t: t, in: out, cancel: cancel, done: make(chan struct{})}
	root.SetOut(r)
	root.SetErr(r)
	root.SetIn(in)
	root.SetArgs(args)
	go func() { // ends with the command
		defer close(r.done)
		r.err = root.ExecuteContext(ctx)
	}()
	t.Cleanup(func() { _ = out.Close(); cancel(); <-r.done })
	return r
}
