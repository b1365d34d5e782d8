package guide

import (
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// dev runs `nsqctl dev` on the cluster's directory.
func dev(c *e2etest.Cluster, args ...string) (string, error) {
	cmd := exec.Command(e2etest.Built.Path("nsqctl"), append(append([]string{"dev"}, args...), "--data-dir", c.Dir)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestStartAfterAllDied: one broker of three is no majority. `dev start` says so and ends;
// the broker waits, and serves when another one is there.
func TestStartAfterAllDied(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 3)
	t.Cleanup(func() { _ = c.StopAll(e2etest.StopLimit) }) // those that `dev` has started
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	out, err := dev(c, "kill", "--all")
	require.NoError(t, err, out)
	began := time.Now()
	out, err = dev(c, "start", "n1")
	require.NoError(t, err, out)
	require.Less(t, time.Since(began), e2etest.Slack(5*time.Second))
	require.Contains(t, out, "n1 runs, pid ")
	require.Contains(t, out, "1 of 3 members of the metadata run; start n2 or n3\n")
	require.Contains(t, out, "n1 is not ready: waiting for n2, n3: 1 of 3 members of the metadata run, 2 are needed")
	out, err = dev(c, "start", "n1", "--wait=1s")
	require.Error(t, err)
	require.Contains(t, out, "n1 runs already")

	out, err = dev(c, "start", "--all", "--wait")
	require.NoError(t, err, out)
	require.Contains(t, out, "n2 runs, pid ")
	require.True(t, strings.HasSuffix(out, "ready\n"), out)
	c.Whole(e2etest.Topic)
	out, err = dev(c, "start", "--all")
	require.NoError(t, err, out)
	require.Contains(t, out, "all brokers are running")

	out, err = dev(c, "restart", "n1", "n2")
	require.NoError(t, err, out)
	require.Equal(t, 2, strings.Count(out, " ready, pid "), out)
	out, err = dev(c, "stop", "n2", "n3")
	require.NoError(t, err, out)
	again, err := devcluster.Load(c.Dir)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"n2", "n3"}, again.Dead())
	require.Contains(t, c.Logged("n3"), "stopped")
	out, err = dev(c, "start", "n2", "n3", "--wait=60s")
	require.NoError(t, err, out)
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "x"))

	out, err = dev(c, "logs", "n1", "n2", "-n", "1")
	require.NoError(t, err, out)
	require.Regexp(t, `(?s)^n1\| .*\nn2\| .*\n$`, out)
}

// TestStartSaysWhyABrokerEnded: in the words of its log.
func TestStartSaysWhyABrokerEnded(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	c := e2etest.LayOut(t, e2etest.FreePorts(t, 1), 1, "--durability=never")
	out, err := dev(c, "start", "n1")
	require.Error(t, err)
	require.Contains(t, out, "ended right after its start")
	require.Contains(t, out, "durability")
}

// TestFollowedLogs: later lines are printed too, until Ctrl-C.
func TestFollowedLogs(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, e2etest.Built.Path("nsqctl"), "dev", "logs", "-f", "-n", "0", "--data-dir", c.Dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	bounce(c, "n1")
	text := make([]byte, 1)
	_, err = io.ReadFull(out, text)
	require.NoError(t, err)
	cancel()
	_ = cmd.Wait() // killed
}

// bounce stops and starts a broker.
func bounce(c *e2etest.Cluster, name string) {
	c.T.Helper()
	require.NoError(c.T, c.Stop(name, e2etest.StopLimit))
	c.Restart(name)
}
