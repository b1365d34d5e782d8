package clustercmd

import (
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestClusterHealth(t *testing.T) {
	var leads atomic.Bool
	at := "--nsqd-http-address=" + clitest.FakeCluster(t, func() api.ClusterView { return clitest.OneLess(leads.Load()) })
	out, err := run(t, wait.Limit, "cluster", "health", at)
	require.Equal(t, 1, cli.ExitCode(t.Context(), err))
	require.Contains(t, out, "degraded: 2 of 3 brokers alive")
	require.Contains(t, out, "where: orders/0")
	leads.Store(true)
	out, err = run(t, wait.Limit, "cluster", "health", "-o", "json", at)
	require.Equal(t, 2, cli.ExitCode(t.Context(), err))
	var r health.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, health.NoLeader, r.Alarms[0].Code)
	_, err = run(t, wait.Limit, "cluster", "health", "--nsqd-http-address", "127.0.0.1:1")
	require.Equal(t, cli.ExitUnreachable, cli.ExitCode(t.Context(), err))
}

// TestClusterHealthHasReports: a broker's report on itself counts.
func TestClusterHealthHasReports(t *testing.T) {
	well := func() api.ClusterView {
		v := clitest.OneLess(false)
		v.Brokers[1].Alive, v.Topics[0].Partitions[0].ISR = true, v.Topics[0].Partitions[0].Replicas
		return v
	}
	own := map[ident.Node]health.Own{"n3": {CertificateSeconds: map[string]float64{"client": 3600}}}
	out, err := run(t, wait.Limit, "cluster", "health", "--nsqd-http-address="+clitest.ReportingCluster(t, well, own))
	require.Equal(t, 1, cli.ExitCode(t.Context(), err))
	require.Contains(t, out, "\nthe client certificate of n3 expires in 60 minutes\n  where: n3\n  do:    replace the files")
	own = map[ident.Node]health.Own{"n3": {CorruptSecondsAgo: new(float64)}}
	out, err = run(t, wait.Limit, "cluster", "health", "--nsqd-http-address="+clitest.ReportingCluster(t, well, own))
	require.Equal(t, 1, cli.ExitCode(t.Context(), err))
	require.Contains(t, out, "\nbytes change on the way to n3")
	require.Contains(t, out, "\n  alarm: network_corrupts\n", "the name in docs/operations")
}

// TestClusterHealthWaits until the cluster is healthy, and no longer.
func TestClusterHealthWaits(t *testing.T) {
	var asked atomic.Int32
	at := "--nsqd-http-address=" + clitest.FakeCluster(t, func() api.ClusterView {
		v := clitest.OneLess(false)
		if asked.Add(1) > 2 {
			v.Brokers[1].Alive, v.Topics[0].Partitions[0].ISR = true, v.Topics[0].Partitions[0].Replicas
		}
		return v
	})
	out, err := run(t, wait.Limit, "cluster", "health", "--wait", wait.Limit.String(), at)
	require.NoError(t, err)
	require.Contains(t, out, "healthy: 3 of 3 brokers alive")
}

func TestSafeToStopIsForScripts(t *testing.T) {
	at := "--nsqd-http-address=" + clitest.FakeCluster(t, func() api.ClusterView { return clitest.OneLess(false) })
	out, err := run(t, wait.Limit, "cluster", "safe-to-stop", "n3", at)
	require.Equal(t, cli.ExitFailed, cli.ExitCode(t.Context(), err))
	require.Contains(t, out, "orders/0 would have 1 of 2 in-sync replicas")
	out, err = run(t, wait.Limit, "cluster", "safe-to-stop", "n2", "-o", "json", at)
	require.NoError(t, err)
	require.JSONEq(t, `{"broker":"n2","safe":true,"reasons":[]}`, out)
}
