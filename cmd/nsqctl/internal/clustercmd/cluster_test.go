package clustercmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

// A dead broker's replicas cannot be moved if too few brokers remain. That is the fault to
// report, and not that they are out of sync.
func TestDecommissionSaysThatTooFewBrokersStay(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.ClusterView{
			Brokers: []api.BrokerView{{Name: "n1", Alive: true}, {Name: "n2", Alive: true}, {Name: "n3", Leaving: true}},
			Topics: []api.TopicView{{Topic: "orders", ReplicationFactor: 3, Partitions: []api.PartitionView{
				{Replicas: []ident.Node{"n1", "n2", "n3"}, ISR: []ident.Node{"n1", "n2"}},
			}}},
		})
	}))
	defer s.Close()
	root := newRoot()
	root.SetErr(new(strings.Builder))
	root.SetArgs([]string{"cluster", "decommission", "n3", "--wait", "1ms", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://")})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), "lower it with `nsqctl topic replication`")
}

// The output marks a partition without a leader, and a broker without metadata, where an empty
// column would not.
func TestStatusNamesFaults(t *testing.T) {
	v := api.ClusterView{Self: "n1", MetadataUnheardMS: 12_345, Topics: []api.TopicView{
		{Topic: "orders", Partitions: []api.PartitionView{{Replicas: []ident.Node{"n2"}, ISR: []ident.Node{"n2"}}}},
	}}
	out := text(func(w io.Writer) { printStatus(w, v, false) })
	require.Contains(t, out, "n1 has had no answer from etcd for 12s")
	require.Regexp(t, `orders +0 +none +0 +n2`, out)
}

// TestStatusNamesABrokerThatHangs: one that keeps its registration, because nobody can take over from it, says so itself
// alone. Without an answer of the console, the rest is printed.
func TestStatusNamesABrokerThatHangs(t *testing.T) {
	for _, answers := range []bool{true, false} {
		mux := http.NewServeMux()
		mux.HandleFunc("/v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(api.ClusterView{Brokers: []api.BrokerView{{Name: "n1", Alive: true}, {Name: "n2", Alive: true}}})
		})
		if answers {
			mux.HandleFunc("/v1/console/brokers", func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(console.Brokers{Brokers: []console.Broker{{BrokerView: api.BrokerView{Name: "n1"}, Live: &console.Live{}}, {BrokerView: api.BrokerView{Name: "n2"}, Live: &console.Live{Own: health.Own{JournalBusySeconds: 2}}}}})
			})
		}
		s := httptest.NewServer(mux)
		var out strings.Builder
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs([]string{"cluster", "status", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://")})
		require.NoError(t, root.ExecuteContext(t.Context()))
		s.Close()
		require.NotRegexp(t, `n1 .*hangs`, out.String())
		if answers {
			require.Regexp(t, `n2 +true .*hangs`, out.String())
		} else {
			require.Regexp(t, `n2 +true`, out.String())
		}
	}
}

// TestStatusShowsBuilds: the version of Lockstep, and not that of NSQ, which all brokers speak.
func TestStatusShowsBuilds(t *testing.T) {
	v := api.ClusterView{Brokers: []api.BrokerView{{Name: "n1", Zone: "a", Version: "1.3.0", Build: "9.8.7"}}}
	out := text(func(w io.Writer) { printStatus(w, v, false) })
	require.Regexp(t, `n1 +false .* a +9\.8\.7 `, out)
	require.NotContains(t, out, "1.3.0")
}

// TestWaitTriesAnotherBroker: the queried broker restarts while replicas move.
func TestWaitTriesAnotherBroker(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_ = json.NewEncoder(w).Encode(api.ClusterView{})
	}))
	defer other.Close()
	views := 0
	var first *httptest.Server
	first = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/cluster" {
			fmt.Fprint(w, `{"steps":[{"topic":"orders","partition":0}]}`)
			return
		}
		if views++; views > 1 {
			panic(http.ErrAbortHandler)
		}
		_ = json.NewEncoder(w).Encode(api.ClusterView{
			Brokers: []api.BrokerView{{Name: "n1", Alive: true, HTTPAddress: first.Listener.Addr().String()}, {Name: "n2", Alive: true, HTTPAddress: other.Listener.Addr().String()}},
			Topics:  []api.TopicView{{Topic: "orders", ReplicationFactor: 2, Partitions: []api.PartitionView{{}}}},
		})
	}))
	defer first.Close()
	_, err := run(t, time.Minute, "cluster", "balance", "--wait=1m", "--nsqd-http-address="+first.Listener.Addr().String())
	require.NoError(t, err)
	require.EqualValues(t, 1, asked.Load())
}
