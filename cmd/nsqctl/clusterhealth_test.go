package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/console"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/health"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// fakeCluster serves a view of three brokers whose live ones have its address.
func fakeCluster(t *testing.T, view func() edge.ClusterView) (address string) {
	return reporting(t, view, nil)
}

// reporting is a fakeCluster whose brokers report faults of their own.
func reporting(t *testing.T, view func() edge.ClusterView, own map[ident.Node]health.Own) (address string) {
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
				all.Brokers = append(all.Brokers, console.Broker{Name: b.Name, Alive: true, Live: &console.Live{Own: own[b.Name]}})
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

func TestClusterHealth(t *testing.T) {
	var leads atomic.Bool
	at := "--nsqd-http-address=" + fakeCluster(t, func() edge.ClusterView { return oneLess(leads.Load()) })
	out, err := run(t, time.Minute, "cluster", "health", at)
	require.Equal(t, 1, exitCode(t.Context(), err))
	require.Contains(t, out, "degraded: 2 of 3 brokers alive")
	require.Contains(t, out, "where: orders/0")
	leads.Store(true)
	out, err = run(t, time.Minute, "cluster", "health", "-o", "json", at)
	require.Equal(t, 2, exitCode(t.Context(), err))
	var r health.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, health.NoLeader, r.Alarms[0].Code)
	_, err = run(t, time.Minute, "cluster", "health", "--nsqd-http-address", "127.0.0.1:1")
	require.Equal(t, exitUnreachable, exitCode(t.Context(), err))
}

// TestClusterHealthHasReports: what a broker says of itself counts.
func TestClusterHealthHasReports(t *testing.T) {
	well := func() edge.ClusterView {
		v := oneLess(false)
		v.Brokers[1].Alive, v.Topics[0].Partitions[0].ISR = true, v.Topics[0].Partitions[0].Replicas
		return v
	}
	own := map[ident.Node]health.Own{"n3": {CertificateSeconds: map[string]float64{"client": 3600}}}
	out, err := run(t, time.Minute, "cluster", "health", "--nsqd-http-address="+reporting(t, well, own))
	require.Equal(t, 1, exitCode(t.Context(), err))
	require.Contains(t, out, "degraded: the client certificate of n3 expires in 60 minutes\n  where: n3\n  do:    replace the files")
	own = map[ident.Node]health.Own{"n3": {CorruptSecondsAgo: new(float64)}}
	out, err = run(t, time.Minute, "cluster", "health", "--nsqd-http-address="+reporting(t, well, own))
	require.Equal(t, 2, exitCode(t.Context(), err))
	require.Contains(t, out, "unsafe: bytes change on the way to n3")
}

// TestClusterHealthWaits until the cluster is well, and no longer.
func TestClusterHealthWaits(t *testing.T) {
	began := time.Now()
	at := "--nsqd-http-address=" + fakeCluster(t, func() edge.ClusterView {
		v := oneLess(false)
		if time.Since(began) > time.Second {
			v.Brokers[1].Alive, v.Topics[0].Partitions[0].ISR = true, v.Topics[0].Partitions[0].Replicas
		}
		return v
	})
	out, err := run(t, time.Minute, "cluster", "health", "--wait", "30s", at)
	require.NoError(t, err)
	require.Contains(t, out, "well: 3 of 3 brokers alive")
}

func TestSafeToStopIsForScripts(t *testing.T) {
	at := "--nsqd-http-address=" + fakeCluster(t, func() edge.ClusterView { return oneLess(false) })
	out, err := run(t, time.Minute, "cluster", "safe-to-stop", "n3", at)
	require.Equal(t, exitFailed, exitCode(t.Context(), err))
	require.Contains(t, out, "orders/0 would have 1 of 2 in-sync replicas")
	out, err = run(t, time.Minute, "cluster", "safe-to-stop", "n2", "-o", "json", at)
	require.NoError(t, err)
	require.JSONEq(t, `{"broker":"n2","safe":true,"reasons":[]}`, out)
}

// TestUnknownIsUnknown: numbers that only a dead leader has are not shown as 0, and not left out.
func TestUnknownIsUnknown(t *testing.T) {
	at := "--nsqd-http-address=" + fakeCluster(t, func() edge.ClusterView { return oneLess(true) })
	out, err := run(t, time.Minute, "stats", at)
	require.ErrorContains(t, err, "incomplete")
	require.Regexp(t, `orders +unknown +unknown +n2 is dead \(partitions: 1\)`, out)
	out, err = run(t, time.Minute, "cluster", "status", at)
	require.NoError(t, err)
	require.Regexp(t, `orders +0 +n2 \(dead\) .* unknown +unknown`, out)
	require.NotContains(t, out, "4711")
	out, err = run(t, time.Minute, "cluster", "status", "-o", "wide", at)
	require.NoError(t, err)
	require.Contains(t, out, "MIN IN SYNC")
}

func TestNamesAreCompleted(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	at := "--nsqd-http-address=" + fakeCluster(t, func() edge.ClusterView { return oneLess(false) })
	for want, line := range map[string][]string{
		"orders\naudit\n":   {"topic", "describe", at, ""},
		"of-orders\n":       {"channel", "pause", at, "orders", ""},
		"n1\nn2\nn3\n":      {"cluster", "safe-to-stop", at, ""},
		":4\nCompletion en": {"topic", "describe", at, "orders", ""}, // nothing more
	} {
		out, err := run(t, time.Minute, append([]string{"__complete"}, line...)...)
		require.NoError(t, err)
		require.Contains(t, out, want)
	}
}
