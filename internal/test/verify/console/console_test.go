package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

const (
	brokers   = 3
	walkLimit = 30 * time.Minute // of all steps; each has wait.Limit
	year      = 365 * 24 * time.Hour

	portsPerBroker = 100 // how far those of two brokers are apart, as devcluster lays them out
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slowMachine are the settings of brokers that may get no processor for seconds: none of them is
// declared dead for that.
var slowMachine = []string{
	"--session-ttl=30s", "--etcd-election-timeout=1s", "--peer-timeout=10s", "--replica-timeout=15s",
	"--leader-hold=30s", "--write-timeout=30s", "--put-hold=75s", "--min-free-disk-bytes=1",
}

// TestConsole walks through the console. LOCKSTEP_SHOTS names a folder for a picture of each page.
func TestConsole(t *testing.T) {
	if testing.Short() {
		t.Skip("starts broker processes; left out with -short")
	}
	folder, chromium := prepare(t)
	binaries := os.Getenv(clusters.BinariesEnv)
	if binaries == "" {
		binaries = t.TempDir()
		require.NoError(t, clusters.Build(binaries))
	}
	c := start(t, filepath.Join(binaries, "nsqd"), freePorts(t))
	control := newControl(t, c)
	addresses, secure := map[string]string{}, map[string]string{}
	for _, b := range c.Brokers {
		addresses[b.Name], secure[b.Name] = b.HTTP, b.HTTPS
	}
	given, err := json.Marshal(map[string]any{"limit": wait.Limit.Milliseconds(), "brokers": addresses, "https": secure, "control": control.URL, "chromium": chromium, "shots": os.Getenv("LOCKSTEP_SHOTS")})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), walkLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "walk.mjs")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "WALK="+string(given), "HOME="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the browser, too
	text, err := cmd.CombinedOutput()
	t.Logf("the walk:\n%s", text)
	require.NoError(t, err)
}

// prepare returns the folder of the walk with its packages, and the browser. `make tools` has installed the
// packages, so that the test needs no network; without them it installs them into a folder of its own.
func prepare(t *testing.T) (folder, chromium string) {
	t.Helper()
	for _, program := range []string{"node", "npm", "chromium"} {
		path, err := exec.LookPath(program)
		if err != nil {
			env.Missing(t, program, err)
		}
		chromium = path
	}
	if installed(t, "walk") {
		return "walk", chromium
	}
	folder = t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "walk.mjs"} {
		text, err := os.ReadFile(filepath.Join("walk", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	cmd := exec.Command("npm", "ci", "--prefer-offline")
	cmd.Dir = folder
	if text, err := cmd.CombinedOutput(); err != nil {
		env.Missing(t, "the packages of npm: "+string(text), err)
	}
	return folder, chromium
}

// installed reports whether a folder has its packages, in the versions of its package.json.
func installed(t *testing.T, folder string) bool {
	t.Helper()
	var wanted struct {
		DevDependencies map[string]string `json:"devDependencies"`
	}
	text, err := os.ReadFile(filepath.Join(folder, "package.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &wanted))
	for name, version := range wanted.DevDependencies {
		var found struct{ Version string }
		text, err := os.ReadFile(filepath.Join(folder, "node_modules", name, "package.json"))
		if err != nil || json.Unmarshal(text, &found) != nil || found.Version != version {
			return false
		}
	}
	return true
}

func start(t *testing.T, nsqd string, basePort int) *devcluster.Cluster {
	t.Helper()
	authority := certs.New(t)
	authority.IssueUntil(time.Now().Add(year), "broker")
	args := append([]string{"--tls-cert=" + authority.File("broker.pem"), "--tls-key=" + authority.File("broker.key")}, slowMachine...)
	c, err := devcluster.New(devcluster.Config{Nodes: brokers, DataDir: t.TempDir(), BasePort: basePort, NSQD: nsqd, Args: args, Tied: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.StopAll(wait.Limit)
		if !t.Failed() {
			return
		}
		for _, b := range c.Brokers {
			log, _ := os.ReadFile(c.LogFile(b.Name))
			t.Logf("the log of %s ends with:\n%s", b.Name, log[max(0, len(log)-4<<10):])
		}
	})
	require.NoError(t, c.StartAll())
	require.NoError(t, c.Ready(wait.Context(t)))
	return c
}

// freePorts finds a base port with the ports of all brokers free, of LOCKSTEP_PORTS=FROM-TO if that is set.
func freePorts(t *testing.T) int {
	t.Helper()
	from, to := 31000, 32400 // below the ephemeral ports of Linux, above those of the other packages
	if text := os.Getenv("LOCKSTEP_PORTS"); text != "" {
		n, err := fmt.Sscanf(text, "%d-%d", &from, &to)
		require.True(t, err == nil && n == 2 && to-from >= 1000, "LOCKSTEP_PORTS=%s must be FROM-TO with a thousand ports", text)
	}
	for range 200 {
		base := from + rand.IntN((to-from-portsPerBroker*brokers)/10)*10
		if allFree(base) {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func allFree(base int) bool {
	for i := range brokers {
		for plus := range 6 {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+portsPerBroker*i+plus))
			if err != nil {
				return false
			}
			_ = l.Close()
		}
	}
	return true
}

// newControl serves the walk: it kills and starts brokers, and consumes.
func newControl(t *testing.T, c *devcluster.Cluster) *httptest.Server {
	mux := http.NewServeMux()
	handle := func(path string, f func(r *http.Request) error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			if err := f(r); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	handle("/kill", func(r *http.Request) error {
		for _, name := range r.URL.Query()["broker"] {
			if err := c.Signal(name, syscall.SIGKILL); err != nil {
				return err
			}
			if err := c.Stop(name, wait.Limit); err != nil { // its signal has no effect any more
				return err
			}
		}
		return nil
	})
	handle("/stop", func(r *http.Request) error { return c.Stop(r.FormValue("broker"), wait.Limit) })
	handle("/start", func(r *http.Request) error {
		names := r.URL.Query()["broker"]
		for _, name := range names {
			if err := c.Start(name); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), wait.Limit)
		defer cancel()
		return c.Ready(ctx, names...)
	})
	handle("/consume", func(r *http.Request) error {
		consumer, err := consume(c, r.FormValue("topic"), r.FormValue("channel"), func(*nsq.Message) error { return nil })
		if err == nil {
			t.Cleanup(func() { stop(consumer) })
		}
		return err
	})
	handle("/fail", func(r *http.Request) error {
		failed := make(chan struct{}, 1)
		consumer, err := consume(c, r.FormValue("topic"), r.FormValue("channel"), func(m *nsq.Message) error {
			m.DisableAutoResponse()
			m.Requeue(0)
			select {
			case failed <- struct{}{}:
			default:
			}
			return nil
		})
		if err != nil {
			return err
		}
		defer stop(consumer)
		select {
		case <-failed:
			return nil
		case <-time.After(wait.Limit):
			return fmt.Errorf("no message came within %s", wait.Limit)
		}
	})
	mux.HandleFunc("GET /foreign", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>A page of another origin</title>")
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s
}

func consume(c *devcluster.Cluster, topic, channel string, f nsq.HandlerFunc) (*nsq.Consumer, error) {
	config := nsq.NewConfig()
	config.ClientID = "walker"
	config.DialTimeout, config.WriteTimeout = time.Minute, time.Minute
	config.LookupdPollInterval = 100 * time.Millisecond // a goroutine of go-nsq sleeps so long before it connects again
	consumer, err := nsq.NewConsumer(topic, channel, config)
	if err != nil {
		return nil, err
	}
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelMax)
	consumer.AddHandler(f)
	if err := consumer.ConnectToNSQD(c.Brokers[0].TCP); err != nil {
		return nil, err
	}
	return consumer, nil
}

func stop(consumer *nsq.Consumer) {
	consumer.Stop()
	<-consumer.StopChan
}
