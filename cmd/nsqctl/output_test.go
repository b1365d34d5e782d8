package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/brokertest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// full is an output on a full disk, after so many bytes.
type full struct{ room atomic.Int64 }

func (f *full) Write(p []byte) (int, error) {
	if f.room.Add(-int64(len(p))) < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

// runInto runs one command line with an output.
func runInto(ctx context.Context, out io.Writer, args ...string) error {
	root := newRoot()
	root.SetOut(out)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// TestAnOutputThatCannotBeWritten: every command says so, and does not end with 0. One that would run forever ends.
func TestAnOutputThatCannotBeWritten(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	good := "--nsqd-http-address=" + clitest.FakeBroker(t).Listener.Addr().String()
	names := "--nsqd-http-address=" + topicsBroker(t, "orders")
	does := "--nsqd-http-address=" + clitest.Answering(t, func(http.ResponseWriter, *http.Request) {})
	same := func(offset int64) uint32 { return uint32(offset) }
	checked := "--nsqd-http-address=" + checkedCluster(t, holding(t, 0, 100, same))
	dev := t.TempDir()
	content, err := json.Marshal(devcluster.Cluster{Brokers: []devcluster.Broker{{Name: "n1"}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dev, "cluster.json"), content, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dev, "n1.log"), []byte("a line\n"), 0o600))
	for _, line := range [][]string{
		{"topic", "list", names}, {"topic", "list", names, "-o=json"}, {"topic", "list", names, "-o=yaml"},
		{"stats", good}, {"stats", "--interval=1h", good}, {"peek", "orders", good}, {"check", "orders", checked}, {"version"},
		{"channel", "pause", "orders", "c", "-o=json", does}, {"profile", "list", "-o=json"}, {"dev", "logs", "--data-dir", dev}, {"dev", "logs", "-f", "--data-dir", dev},
	} {
		printed := &full{}
		printed.room.Store(1 << 30)
		if !strings.Contains(strings.Join(line, " "), "interval") && !strings.Contains(strings.Join(line, " "), "-f") {
			require.NoError(t, runInto(wait.Context(t), printed, line...), "%q", line)
			require.Less(t, printed.room.Load(), int64(1<<30), "%q prints nothing", line)
		}
		err := runInto(wait.Context(t), &full{}, line...)
		require.ErrorIs(t, err, syscall.ENOSPC, "%q", line)
		require.ErrorContains(t, err, "the output cannot be written")
		require.Equal(t, cli.ExitFailed, cli.ExitCode(t.Context(), err))
	}
}

// TestAFailureIsNotHiddenByTheOutput: the command's own error comes first.
func TestAFailureIsNotHiddenByTheOutput(t *testing.T) {
	own := errors.New("the broker refuses")
	w := &cli.Written{To: &full{}}
	require.Equal(t, own, w.Result(own))
	_, _ = w.Write([]byte("x"))
	require.ErrorContains(t, w.Result(own), "the broker refuses\nthe output cannot be written")
	require.NotContains(t, w.Result(cli.EndUnless(false, cli.ExitDiffers, nil)).Error(), "failed\n")
	require.NotContains(t, w.Result(context.Canceled).Error(), "canceled")
}

// TestTailOnAFullDisk: it ends with an error, and each message that it has not printed stays with the channel, with one
// attempt at most.
func TestTailOnAFullDisk(t *testing.T) {
	broker := clitest.TCPBroker(t)
	publishLines(t, broker, strings.Join(strings.Fields(strings.Repeat("message ", 50)), "\n")+"\n")
	out := &full{}
	out.room.Store(20)
	err := runInto(wait.Context(t), out, "tail", "--topic=orders", "--channel=ch", "--nsqd-tcp-address="+broker)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "the output cannot be written")
	text, err := run(t, wait.Limit, "tail", "--topic=orders", "--channel=ch", "-n=48", "-o=json", "--nsqd-tcp-address="+broker)
	require.NoError(t, err)
	require.Equal(t, 48, strings.Count(text, `"body":"message"`), "two were printed and finished")
	for line := range strings.FieldsSeq(text) {
		var m struct{ Attempts int }
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		require.LessOrEqual(t, m.Attempts, 2)
	}
}

// TestTailMakesNothing: a mistyped topic or channel is refused, an ephemeral channel is made.
func TestTailMakesNothing(t *testing.T) {
	o := tcp.DefaultOptions()
	address, cluster := brokertest.Start(t, o)
	publishLines(t, address, "one\n")
	web := clitest.Answering(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/lookup":
			http.NotFound(w, r)
		case r.FormValue("topic") != "orders":
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message":"TOPIC_NOT_FOUND"}`))
		default:
			_, _ = w.Write([]byte(`{"channels":["billing"],"producers":[]}`))
		}
	})
	tail := func(args ...string) error {
		_, err := run(t, time.Minute, append([]string{"tail", "-n=1", "--nsqd-tcp-address=" + address}, args...)...)
		return err
	}
	for _, at := range []string{"--nsqd-http-address=" + web, "--lookupd-http-address=" + web, "--lookupd-http-address=http://" + web} {
		err := tail("--topic=ordres", at)
		require.ErrorContains(t, err, `there is no topic "ordres"`)
		require.Equal(t, cli.ExitNotFound, cli.ExitCode(t.Context(), err))
		err = tail("--topic=orders", "--channel=biling", at)
		require.ErrorContains(t, err, `topic orders has no channel "biling"`)
		require.Equal(t, cli.ExitNotFound, cli.ExitCode(t.Context(), err))
	}
	require.Equal(t, []string{"orders"}, cluster.Directory().Topics())
	require.Empty(t, cluster.Directory().Channels("orders"))
	require.NoError(t, tail("--topic=orders", "--channel=billing", "--nsqd-http-address="+web))
}
