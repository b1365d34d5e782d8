package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// An unknown verb is an error at every level: a script with a typing error must not take the
// help for success.
func TestAVerbThatIsNotThereIsAnError(t *testing.T) {
	for _, line := range []string{"topic delte orders", "channel sek orders billing 5", "cluster decomission n3", "recover metdata"} {
		root := newRoot()
		root.SetArgs(strings.Fields(line))
		root.SetOut(new(strings.Builder))
		require.Error(t, root.ExecuteContext(t.Context()), line)
	}
}

// An invalid partition moves no channel, least of all in all partitions.
func TestSeekRefusesAPartitionBelowZero(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("partition") == "" {
			asked++
		}
	}))
	defer s.Close()
	root := newRoot()
	root.SetArgs([]string{"channel", "seek", "orders", "billing", "earliest", "--partition", "-7", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://")})
	_ = root.ExecuteContext(t.Context())
	require.Zero(t, asked, "all partitions were moved")
}

// A seek says what it skips and repeats. With --dry-run it asks for the numbers alone, and unknown numbers
// are no zeros.
func TestSeekSaysWhatItSkipsAndRepeats(t *testing.T) {
	var asked []string
	answer := `{"dry_run":true,"skips":14,"repeats":6,"partitions":[{"partition":0,"from":3,"to":20,"skips":14,"repeats":6},{"partition":1,"from":5,"to":5,"skips":0,"repeats":0,"stays":true}]}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+"?dry_run="+r.URL.Query().Get("dry_run"))
		fmt.Fprint(w, answer)
	}))
	defer s.Close()
	run := func(more ...string) string {
		t.Helper()
		asked = nil
		var out strings.Builder
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs(append([]string{"channel", "seek", "orders", "billing", "20", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://")}, more...))
		require.NoError(t, root.ExecuteContext(t.Context()))
		return out.String()
	}
	text := run("--dry-run")
	require.Equal(t, []string{"/v1/channel/seek?dry_run=true"}, asked, "the channel was moved")
	require.Contains(t, text, "14 messages would be skipped, 6 would be repeated; nothing has moved\n")
	require.Regexp(t, `(?m)^0 +3 +20 +14 +6 *$`, text)
	require.Regexp(t, `(?m)^1 +5 +5 +0 +0 +stays: it has consumers$`, text)
	var r edge.SeekResult
	require.NoError(t, json.Unmarshal([]byte(run("--dry-run", "-o", "json")), &r))
	require.EqualValues(t, 14, *r.Skips)

	answer = `{"dry_run":false,"skips":null,"repeats":null,"partitions":[{"partition":0,"from":null,"to":null,"skips":null,"repeats":null}]}`
	text = run()
	require.Equal(t, []string{"/v1/channel/seek?dry_run="}, asked)
	require.Contains(t, text, "unknown messages skipped, unknown repeated\n")
	require.Regexp(t, `(?m)^0 +unknown +unknown +unknown +unknown *$`, text)

	answer = "" // of an older build
	require.Empty(t, run())
}

// A peek at a partition without a leader reports that.
func TestPeekReportsAMissingLeader(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(edge.ClusterView{Topics: []edge.TopicView{{Topic: "orders", Partitions: []edge.PartitionView{{}}}}})
	}))
	defer s.Close()
	root := newRoot()
	root.SetArgs([]string{"peek", "orders", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://")})
	err := root.ExecuteContext(t.Context())
	require.ErrorContains(t, err, "leader")
}

// A dead broker's replicas cannot be moved if too few brokers remain. That is the fault to
// report, and not that they are out of sync.
func TestDecommissionSaysThatTooFewBrokersStay(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(edge.ClusterView{
			Brokers: []edge.BrokerView{{Name: "n1", Alive: true}, {Name: "n2", Alive: true}, {Name: "n3", Leaving: true}},
			Topics: []edge.TopicView{{Topic: "orders", ReplicationFactor: 3, Partitions: []edge.PartitionView{
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
	var out strings.Builder
	require.NoError(t, printStatus(&out, edge.ClusterView{Self: "n1", MetadataUnheardMS: 12_345, Topics: []edge.TopicView{
		{Topic: "orders", Partitions: []edge.PartitionView{{Replicas: []ident.Node{"n2"}, ISR: []ident.Node{"n2"}}}},
	}}, false))
	require.Contains(t, out.String(), "the metadata has not answered n1 for 12s")
	require.Regexp(t, `orders +0 +none +0 +n2`, out.String())
}

// The confirmation is the broker's name, which must be that of the data path.
func TestRecoverMetadataRefusesAnotherBrokersPath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "node.json"), []byte(`{"v":1,"node":"n3","boot":1}`), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "etcd/member/wal"), 0o700))
	root := newRoot()
	root.SetArgs([]string{"recover", "metadata", "--data-path", dir, "--node-name", "n9", "--confirm", "n9"})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), `belongs to node "n3"`)
	require.NoFileExists(t, filepath.Join(dir, "etcd.before-recovery"))
}

// PUB ends a name at a blank: without the check the put would go to another topic.
func TestPubRefusesANameThatIsNone(t *testing.T) {
	root := newRoot()
	in := filepath.Join(t.TempDir(), "in")
	require.NoError(t, os.WriteFile(in, []byte("x\n"), 0o600))
	root.SetArgs([]string{"pub", "--topic", "bad topic", "--retry", "0s", "-q", "--nsqd-tcp-address", "127.0.0.1:1", in})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), "topic")
}

// "dev kil n2" starts no cluster over the one that runs in the directory.
func TestDevRefusesUnknownVerbs(t *testing.T) {
	dir := t.TempDir()
	root := newRoot()
	root.SetArgs([]string{"dev", "kil", "n2", "--data-dir", dir, "--nsqd", "/bin/false", "--base-port", "39150"})
	root.SetOut(new(strings.Builder))
	require.ErrorContains(t, root.ExecuteContext(t.Context()), `unknown command "kil"`)
	require.NoFileExists(t, filepath.Join(dir, "cluster.json"))
}

// A wrong path is not reported as a running broker.
func TestRecoverMetadataNamesAMissingPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "typo")
	_, err := run(t, time.Minute, "recover", "metadata", "--data-path", dir, "--node-name", "n3", "--confirm", "n3")
	require.ErrorContains(t, err, "typo")
	require.NotContains(t, err.Error(), "still runs")
	require.NoDirExists(t, dir)
}

// If no replica has a message there is no range of messages.
func TestRecoverTopicSaysThatNothingIsLeft(t *testing.T) {
	for end, want := range map[int]string{0: "no replica that answers holds a message", 5: "n3 holds the most: messages 0 to 4"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"topic": "orders", "replicas": []map[string]any{{"node": "n3", "end_sequence": end}}})
		}))
		out, err := run(t, time.Minute, "recover", "topic", "orders", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://"))
		s.Close()
		require.NoError(t, err)
		require.Contains(t, out, want)
		require.Contains(t, out, "nsqctl recover topic orders --partition 0 --from n3 --confirm orders/0")
	}
}

// TestRedriveGoesOnWhileItMovesSomething: many messages need more than one request.
func TestRedriveGoesOnWhileItMovesSomething(t *testing.T) {
	dead, requests := 2500, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil || limit > 1000 {
			http.Error(w, "too many for one request", http.StatusBadRequest)
			return
		}
		n := min(limit, dead)
		dead -= n
		fmt.Fprintf(w, `{"redriven":%d}`, n)
	}))
	defer s.Close()
	at := "--nsqd-http-address=" + s.Listener.Addr().String()
	out, err := run(t, time.Minute, "channel", "redrive", "orders", "billing", "-n", "1200", at)
	require.NoError(t, err)
	require.Equal(t, "1200 redriven\n", out)
	out, err = run(t, time.Minute, "channel", "redrive", "orders", "billing", "-n", "100000", "-o=json", at)
	require.NoError(t, err)
	require.JSONEq(t, `{"redriven":1300}`, out)
	require.Equal(t, 4, requests)
}

// TestWaitTriesAnotherBroker: the queried broker restarts while replicas move.
func TestWaitTriesAnotherBroker(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_ = json.NewEncoder(w).Encode(edge.ClusterView{})
	}))
	defer other.Close()
	views := 0
	var first *httptest.Server
	first = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/cluster" {
			fmt.Fprint(w, "{}")
			return
		}
		if views++; views > 1 {
			panic(http.ErrAbortHandler)
		}
		_ = json.NewEncoder(w).Encode(edge.ClusterView{
			Brokers: []edge.BrokerView{{Name: "n1", Alive: true, HTTPAddress: first.Listener.Addr().String()}, {Name: "n2", Alive: true, HTTPAddress: other.Listener.Addr().String()}},
			Topics:  []edge.TopicView{{Topic: "orders", ReplicationFactor: 2, Partitions: []edge.PartitionView{{}}}},
		})
	}))
	defer first.Close()
	_, err := run(t, time.Minute, "cluster", "balance", "--wait=1m", "--nsqd-http-address="+first.Listener.Addr().String())
	require.NoError(t, err)
	require.EqualValues(t, 1, asked.Load())
}

// TestMoveToABrokerThatLeaves: the move can never be done.
func TestMoveToABrokerThatLeaves(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(edge.ClusterView{
			Brokers: []edge.BrokerView{{Name: "n1", Alive: true}, {Name: "n2"}, {Name: "n3", Alive: true, Leaving: true}},
			Topics: []edge.TopicView{{Topic: "orders", ReplicationFactor: 2, Partitions: []edge.PartitionView{
				{Replicas: []ident.Node{"n1", "n2"}, ISR: []ident.Node{"n1", "n2"}, Target: []ident.Node{"n1", "n3"}},
			}}},
		})
	}))
	defer s.Close()
	_, err := run(t, 5*time.Second, "topic", "move", "orders", "--from=n2", "--to=n3", "--wait=1h", "--nsqd-http-address="+s.Listener.Addr().String())
	require.ErrorContains(t, err, "n3 is being decommissioned")
}
