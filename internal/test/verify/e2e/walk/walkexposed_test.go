package walk

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestWalkOfAnExposedPort: n3 is to serve clients on a network, and no client has to authenticate. It starts only with
// --insecure-clients. Then the page says nothing, because the port is open by an operator's decision: the log does.
func TestWalkOfAnExposedPort(t *testing.T) {
	e2etest.Walking(t)
	if os.Getenv(e2etest.NetworkEnv) == "" {
		e2etest.InNamespace(t, e2etest.NetworkEnv+"=1")
		return
	}
	const network = "192.0.2.1" // of this namespace alone
	if out, err := exec.Command("ip", "addr", "add", network+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	n3 := c.Brokers[2]
	_, port, err := net.SplitHostPort(n3.HTTP)
	require.NoError(t, err)
	exposed := "--http-address=0.0.0.0:" + port

	f := w.Fail("exposed", "n3 is started with a port for clients on the network, without users", "n1", func() {
		c.Crash("n3")
		reconfigure(c, "n3", exposed)
		require.NoError(t, c.Start("n3"))
		c.Until("n3 to end", func() bool { return slices.Contains(c.Dead(), "n3") })
		said := c.Logged("n3")
		require.Contains(t, said, exposed+" is reachable from the network, and no client has to authenticate: give --require-users")
		require.Contains(t, said, "or allow it with --insecure-http")
	})
	deadUntil(f, "n3", func() { reconfigure(c, "n3", "--http-address="+n3.HTTP) })

	f = w.Fail("exposed-allowed", "the same, allowed with --insecure-http", "n1", func() {
		c.Crash("n3")
		reconfigure(c, "n3", exposed, "--insecure-http")
		require.NoError(t, c.Start("n3"))
	})
	c.ReadyAgain("n3")
	f.Until("healthy", func(said string) bool { return strings.HasPrefix(said, "healthy: 3 of 3 brokers alive") })
	resp, err := c.HTTP.Post("http://"+net.JoinHostPort(network, port)+"/pub?topic="+e2etest.Topic, "", strings.NewReader("a stranger's"))
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
	f.Page = "nothing: the port is open as configured; the log of n3 has `open to the network`"
	f.Asked(0, "healthy: 3 of 3 brokers alive")
	require.Contains(t, c.Logged("n3"), "open to the network")
	f.Noted()
}

// reconfigure gives a broker these flags from its next start on.
func reconfigure(c *e2etest.Cluster, name string, flags ...string) {
	c.T.Helper()
	file := filepath.Join(c.Dir, name+".command.json") // devcluster reads it at each start
	text, err := os.ReadFile(file)
	require.NoError(c.T, err)
	var command map[string]any
	require.NoError(c.T, json.Unmarshal(text, &command))
	own, err := c.Args(name)
	require.NoError(c.T, err)
	for _, flag := range flags {
		key, _, _ := strings.Cut(flag, "=")
		own = slices.DeleteFunc(own, func(a string) bool { return strings.HasPrefix(a, key+"=") })
	}
	command["args"] = append(own, flags...)
	text, err = json.Marshal(command)
	require.NoError(c.T, errors.Join(err, os.WriteFile(file, text, 0o600)))
}
