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
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
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
	var r api.SeekResult
	require.NoError(t, json.Unmarshal([]byte(run("--dry-run", "-o", "json")), &r))
	require.EqualValues(t, 14, *r.Skips)

	answer = `{"dry_run":false,"skips":null,"repeats":null,"partitions":[{"partition":0,"from":null,"to":null,"skips":null,"repeats":null}]}`
	text = run()
	require.Equal(t, []string{"/v1/channel/seek?dry_run="}, asked)
	require.Contains(t, text, "unknown messages skipped, unknown repeated\n")
	require.Regexp(t, `(?m)^0 +unknown +unknown +unknown +unknown *$`, text)
}

// A peek at a partition without a leader reports that.
func TestPeekReportsAMissingLeader(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.ClusterView{Topics: []api.TopicView{{Topic: "orders", Partitions: []api.PartitionView{{}}}}})
	}))
	defer s.Close()
	root := newRoot()
	root.SetArgs([]string{"peek", "orders", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://")})
	err := root.ExecuteContext(t.Context())
	require.ErrorContains(t, err, "leader")
}

// PUB ends a name at a blank: without the check the put would go to another topic.
func TestPubRefusesANameThatIsNone(t *testing.T) {
	root := newRoot()
	in := filepath.Join(t.TempDir(), "in")
	require.NoError(t, os.WriteFile(in, []byte("x\n"), 0o600))
	root.SetArgs([]string{"pub", "--topic", "bad topic", "--retry", "0s", "-q", "--nsqd-tcp-address", "127.0.0.1:1", in})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), "topic")
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

// TestMoveToABrokerThatLeaves: the move can never be done.
func TestMoveToABrokerThatLeaves(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.ClusterView{
			Brokers: []api.BrokerView{{Name: "n1", Alive: true}, {Name: "n2"}, {Name: "n3", Alive: true, Leaving: true}},
			Topics: []api.TopicView{{Topic: "orders", ReplicationFactor: 2, Partitions: []api.PartitionView{
				{Replicas: []ident.Node{"n1", "n2"}, ISR: []ident.Node{"n1", "n2"}, Target: []ident.Node{"n1", "n3"}},
			}}},
		})
	}))
	defer s.Close()
	_, err := run(t, wait.Limit, "topic", "move", "orders", "--from=n2", "--to=n3", "--wait=1h", "--nsqd-http-address="+s.Listener.Addr().String())
	require.ErrorContains(t, err, "n3 is being decommissioned")
}
