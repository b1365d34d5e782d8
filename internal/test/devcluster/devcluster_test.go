package devcluster_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) {
	startAgain()
	goleak.VerifyTestMain(m)
}

// againEnv is how often a process restarts itself.
const againEnv = "LOCKSTEP_TEST_START_AGAIN"

// startAgain makes this process a broker that restarts itself under its own pid, as brokers
// do, from another thread than its first.
func startAgain() {
	left, err := strconv.Atoi(os.Getenv(againEnv))
	if err != nil {
		return
	}
	if left == 0 {
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		<-stop
		os.Exit(0)
	}
	_ = os.Setenv(againEnv, strconv.Itoa(left-1))
	go func() {
		runtime.LockOSThread()
		_ = syscall.Exec(os.Args[0], os.Args, os.Environ())
	}()
	runtime.LockOSThread()
	select {}
}

// TestABrokerThatStartsAgainIsNotDead: its first thread is a zombie until another thread
// replaces it.
func TestABrokerThatStartsAgainIsNotDead(t *testing.T) {
	const times = 30
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(againEnv, fmt.Sprint(times))
	c, err := devcluster.New(devcluster.Config{Nodes: 1, DataDir: t.TempDir(), BasePort: 20000, NSQD: self, Tied: true})
	require.NoError(t, err)
	require.NoError(t, c.StartAll())
	t.Cleanup(func() { _ = c.StopAll(time.Second) })
	last := []byte(againEnv + "=0\x00")
	for variables := []byte(nil); !bytes.Contains(variables, last); {
		require.Empty(t, c.Dead())
		variables, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.Brokers[0].PID))
		if os.IsNotExist(err) {
			env.Missing(t, "/proc", err)
		}
	}
}

// TestStartsAtTheSameTime: several processes start one broker each. Afterwards all pids are
// stored, and no broker runs twice.
func TestStartsAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	broker := filepath.Join(dir, "broker")
	require.NoError(t, os.WriteFile(broker, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755))
	const nodes = 5
	c, err := devcluster.New(devcluster.Config{Nodes: nodes, DataDir: dir, BasePort: 20000, NSQD: broker, Tied: true})
	require.NoError(t, err)
	loaded := make([]*devcluster.Cluster, 2*nodes)
	for i := range loaded {
		loaded[i], err = devcluster.Load(dir)
		require.NoError(t, err)
	}
	started := make([]error, len(loaded))
	var starts sync.WaitGroup
	for i := range loaded {
		starts.Go(func() { started[i] = loaded[i].Start(fmt.Sprintf("n%d", i%nodes+1)) })
	}
	starts.Wait()
	for i := range nodes {
		require.NotEqual(t, started[i] == nil, started[i+nodes] == nil, "broker %d is started once: %v, %v", i+1, started[i], started[i+nodes])
	}
	require.NoError(t, c.StopAll(wait.Limit))
	for i, b := range c.Brokers {
		require.NotZero(t, b.PID, "broker %d", i+1)
	}
	for _, l := range loaded { // reaps the process
		_ = l.StopAll(time.Second)
	}
}

// TestARunningClusterIsNotForgotten: a second cluster in the directory of a running one would
// overwrite the pids of the first, whose brokers no command could stop then.
func TestARunningClusterIsNotForgotten(t *testing.T) {
	dir := t.TempDir()
	cfg := devcluster.Config{Nodes: 2, DataDir: dir, BasePort: 20000, NSQD: "/bin/false"}
	c, err := devcluster.New(cfg)
	require.NoError(t, err)
	before, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
	require.NoError(t, err)
	runs := flock.New(filepath.Join(c.Brokers[1].DataDir, "nsqd.lock")) // as a running broker holds it
	require.NoError(t, runs.Lock())
	cfg.Nodes, cfg.BasePort = 1, 30000
	_, err = devcluster.New(cfg)
	require.ErrorContains(t, err, "n2 runs")
	after, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.NoError(t, runs.Unlock())
	_, err = devcluster.New(cfg)
	require.NoError(t, err)
}

// TestAnotherBrokersPort: a process at a broker's address is refused. Otherwise a broker of
// another cluster would be taken for it and reported ready.
func TestAnotherBrokersPort(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // always ready
	defer other.Close()
	u, err := url.Parse(other.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	c, err := devcluster.New(devcluster.Config{Nodes: 1, DataDir: t.TempDir(), BasePort: port - 1, NSQD: "/bin/false"})
	require.NoError(t, err)
	err = c.StartAll()
	if err == nil {
		err = c.Ready(t.Context())
	}
	require.ErrorContains(t, err, "address already in use")
	require.NoError(t, c.StopAll(wait.Limit))
}

// TestNobodyIsSignalled: a broker that was not started has pid 0, and a signal to 0 reaches
// this process's own group.
func TestNobodyIsSignalled(t *testing.T) {
	c, err := devcluster.New(devcluster.Config{Nodes: 1, DataDir: t.TempDir(), BasePort: 20000, NSQD: "/bin/false"})
	require.NoError(t, err)
	require.ErrorContains(t, c.Signal("n1", syscall.SIGCONT), "never started")
}

// TestStateSaysWhy: State returns the reason of a waiting broker's /readyz.
func TestStateSaysWhy(t *testing.T) {
	var ready atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "not ready: waiting for n2", http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	c, err := devcluster.New(devcluster.Config{Nodes: 1, DataDir: t.TempDir(), BasePort: 20000, NSQD: "/bin/false"})
	require.NoError(t, err)
	state, err := c.State("n1")
	require.NoError(t, err)
	require.False(t, state.Answers)
	c.Brokers[0].HTTP = s.Listener.Addr().String()
	becomes := func(want devcluster.State) {
		t.Helper()
		wait.Until(t, func() bool { // an answer that takes a second is none
			state, err := c.State("n1")
			require.NoError(t, err)
			return state == want
		}, "%+v", want)
	}
	becomes(devcluster.State{Answers: true, Why: "not ready: waiting for n2"})
	ready.Store(true)
	becomes(devcluster.State{Ready: true, Answers: true})
}

// TestLookReapsWhatHasEnded: a broker that is killed from elsewhere is reported once, with how it
// ended, and leaves no zombie; one that another process starts again is reported, too.
func TestLookReapsWhatHasEnded(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(againEnv, "0")
	dir := t.TempDir()
	c, err := devcluster.New(devcluster.Config{Nodes: 2, DataDir: dir, BasePort: 20100, NSQD: self, Tied: true})
	require.NoError(t, err)
	require.NoError(t, c.StartAll())
	t.Cleanup(func() { _ = c.StopAll(time.Second) })
	look := func() (ended []devcluster.Ended, started []devcluster.Broker) {
		ended, started, err := c.Look()
		require.NoError(t, err)
		return ended, started
	}
	ended, started := look()
	require.Empty(t, ended)
	require.Empty(t, started)
	pid := c.Brokers[1].PID
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	wait.Until(t, func() bool { ended, _ = look(); return len(ended) > 0 }, "the end is reported")
	require.Equal(t, []devcluster.Ended{{Name: "n2", PID: pid, State: "signal: killed"}}, ended)
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "it is a zombie")
	ended, _ = look()
	require.Empty(t, ended, "it is reported once")

	other, err := devcluster.Load(dir)
	require.NoError(t, err)
	require.NoError(t, other.Start("n2"))
	_, started = look()
	require.Len(t, started, 1)
	require.Equal(t, other.Brokers[1].PID, started[0].PID)
	require.NoError(t, other.Kill("n2"))
	wait.Until(t, func() bool { ended, _ = look(); return len(ended) > 0 }, "the end is reported")
	require.Equal(t, []devcluster.Ended{{Name: "n2", PID: started[0].PID}}, ended)
}
