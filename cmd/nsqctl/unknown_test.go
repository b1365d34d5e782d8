package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// TestUnknownIsUnknown: numbers that only a dead leader has are not shown as 0, and not left out.
func TestUnknownIsUnknown(t *testing.T) {
	at := "--nsqd-http-address=" + clitest.FakeCluster(t, func() api.ClusterView { return clitest.OneLess(true) })
	out, err := run(t, time.Minute, "stats", at)
	require.ErrorContains(t, err, "incomplete")
	require.Regexp(t, `orders +unknown +unknown +n2 is dead \(1 partition\)`, out)
	out, err = run(t, time.Minute, "cluster", "status", at)
	require.NoError(t, err)
	require.Regexp(t, `orders +0 +n2 \(dead\) .* unknown +unknown`, out)
	require.NotRegexp(t, `\b4711\b`, out) // a port may contain it
	out, err = run(t, time.Minute, "cluster", "status", "-o", "wide", at)
	require.NoError(t, err)
	require.Contains(t, out, "MIN IN SYNC")

	silent := clitest.OneLess(false)
	silent.Topics[0].Partitions[0].EndsUnknown = true
	at = "--nsqd-http-address=" + clitest.FakeCluster(t, func() api.ClusterView { return silent })
	out, err = run(t, time.Minute, "cluster", "status", at)
	require.NoError(t, err)
	require.Regexp(t, `orders +0 +n1 .* unknown +unknown`, out, "its leader lives, and does not answer")
	target := clitest.OneLess(false)
	target.Brokers = nil // or it would be the source
	from := "--from-http-address=" + strings.TrimPrefix(at, "--nsqd-http-address=")
	at = "--nsqd-http-address=" + clitest.FakeCluster(t, func() api.ClusterView { return target })
	out, err = run(t, time.Minute, "mirror", "status", "orders", at, from, "--state="+filepath.Join(t.TempDir(), "mirror.json"))
	require.NoError(t, err)
	require.Regexp(t, `orders +0 +0 +unknown +unknown`, out)
}

func TestNamesAreCompleted(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	at := "--nsqd-http-address=" + clitest.FakeCluster(t, func() api.ClusterView { return clitest.OneLess(false) })
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
