package e2etest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// NetworkEnv marks the process of a test that InNamespace started.
const NetworkEnv = "LOCKSTEP_E2E_NETWORK"

// InNamespace starts this test once more, in a network namespace with a loopback, with a variable in
// its environment.
func InNamespace(t *testing.T, variable string) {
	t.Helper()
	probe := exec.Command("unshare", "--net", "ip", "link", "set", "lo", "up")
	if out, err := probe.CombinedOutput(); err != nil {
		env.Missing(t, "root, unshare and ip, for a network namespace of its own", fmt.Sprintf("%v: %s", err, out))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c",
		`ip link set lo up && exec "$0" -test.run="^$1\$" -test.v`, self, t.Name())
	cmd.Env = append(os.Environ(), variable, clusters.BinariesEnv+"="+Built.dir, clusters.OverlayEnv+"=")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
}

// Nft gives these rules to the firewall of the namespace.
func Nft(t *testing.T, rules string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		env.Missing(t, "nft", fmt.Sprintf("%v: %s", err, out))
	}
}
