package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// underTest makes the test binary a broker.
const (
	underTest    = "LOCKSTEP_RUN_NSQD"
	smallFiles   = underTest + "=small"   // of the metadata
	productFiles = underTest + "=product" // as large as a broker's
)

const limit = wait.Limit // of any condition

func TestMain(m *testing.M) {
	mode := os.Getenv(underTest)
	if underTest+"="+mode != productFiles {
		// etcd allocates two files of 64 MB at each start; a test's metadata fits into much less.
		wal.SegmentSizeBytes = 1 << 20
	}
	if mode != "" {
		os.Exit(run(os.Args[1:]))
	}
	// The tests that call t.Parallel wait for their brokers most of the time, so that more of
	// them run at once than there are processors; the flag -parallel prevails.
	_ = flag.Set("test.parallel", "4")
	// The goroutine of an external etcd that stops ends only after its check of the password.
	goleak.VerifyTestMain(allTests{m}, goleak.IgnoreAnyFunction("golang.org/x/crypto/bcrypt.CompareHashAndPassword"))
}

// broker is one nsqd process of a test.
type broker struct {
	t         *testing.T
	cmd       *exec.Cmd
	dir       string
	base      int // TCP; HTTP +1, HTTPS +2, RPC +3, etcd +4 and +5
	http      *http.Client
	dialer    net.Dialer // of TCP clients
	log       string     // file
	done      chan struct{}
	tcpSocket string // in place of the port
	ulimit    int    // of files; 0: the test's
	env       []string
	skipped   int    // bytes of the log that were written before this test
	root      string // token of an administrator; "" without users
}

// start runs a single broker on an empty directory until it serves.
func start(t *testing.T, flags ...string) *broker {
	t.Helper()
	b := prepare(t)
	b.run(flags...)
	b.ready()
	return b
}

// prepare chooses ports and a directory.
func prepare(t *testing.T) *broker {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	return &broker{t: t, dir: t.TempDir(), base: freePorts(t), http: newHTTPClient()}
}

// newHTTPClient returns a client with connections of its own.
func newHTTPClient() *http.Client {
	return &http.Client{Timeout: limit, Transport: &http.Transport{}}
}

// run starts the process until the end of the test; the given flags replace the harness's own.
func (b *broker) run(flags ...string) {
	b.t.Helper()
	b.launch(filepath.Join(b.t.TempDir(), "log"), flags...)
	cmd, done := b.cmd, b.done
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended already
		<-done
		b.http.CloseIdleConnections()
		if b.t.Failed() {
			b.t.Logf("log of %v:\n%s", cmd.Args, b.logged())
		}
	})
}

// launch starts the process with this log.
func (b *broker) launch(log string, flags ...string) {
	b.t.Helper()
	args := append([]string{
		"--node-name=n1", "--broadcast-address=127.0.0.1", "--data-path=" + b.dir,
		"--tcp-address=" + b.address(0), "--http-address=" + b.address(1), "--https-address=" + b.address(2),
		"--rpc-address=" + b.address(3), "--etcd-client-address=" + b.address(4), "--etcd-peer-address=" + b.address(5),
	}, flags...)
	b.cmd = exec.Command(os.Args[0], args...)
	if b.ulimit != 0 {
		b.cmd = exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, b.ulimit), os.Args[0]}, args...)...)
	}
	// With this GODEBUG the process need not restart itself (pace).
	b.cmd.Env = append(append(os.Environ(), smallFiles, "GODEBUG="+slowTrace), b.env...)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	b.log = log
	file, err := os.Create(log)
	require.NoError(b.t, err)
	b.cmd.Stderr, b.cmd.Stdout = file, file
	require.NoError(b.t, b.cmd.Start())
	_ = file.Close() // the process has its own descriptor
	done, cmd := make(chan struct{}), b.cmd
	b.done = done
	go func() { // ends with the process
		_ = cmd.Wait() // its state has the exit code
		close(done)
	}()
}

// ready waits until the broker serves.
func (b *broker) ready() {
	b.t.Helper()
	b.alive("serves", func() bool { return strings.Contains(b.logged(), "ready to serve clients") })
}

// alive waits for a condition of a broker that must not end during the wait.
func (b *broker) alive(what string, ok func() bool) {
	b.t.Helper()
	b.eventually(what, func() bool {
		if b.ended() {
			b.t.Fatalf("nsqd ended: %v", b.cmd.ProcessState)
		}
		return ok()
	})
}

func (b *broker) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

func (b *broker) address(plus int) string { return fmt.Sprintf("127.0.0.1:%d", b.base+plus) }
func (b *broker) url(path string) string  { return "http://" + b.address(1) + path }
func (b *broker) logged() string {
	text, _ := os.ReadFile(b.log)
	return string(text[min(b.skipped, len(text)):])
}

// wait returns the exit code.
func (b *broker) wait() int {
	b.t.Helper()
	wait.For(b.t, b.done, "the end of nsqd")
	return b.cmd.ProcessState.ExitCode()
}

func (b *broker) signal(s os.Signal) {
	b.t.Helper()
	require.NoError(b.t, b.cmd.Process.Signal(s))
}

// signalIfAlive is signal for a process that may have ended by itself.
func (b *broker) signalIfAlive(s os.Signal) { _ = b.cmd.Process.Signal(s) }

// stop ends the process as an operator would.
func (b *broker) stop() {
	b.t.Helper()
	b.signal(syscall.SIGTERM)
	require.Zero(b.t, b.wait())
}

// askEvery leaves checks of a condition out: most of them are requests, and cost more than a read of a variable.
const askEvery = 5

func (b *broker) eventually(what string, ok func() bool) {
	b.t.Helper()
	calls := -1
	wait.Until(b.t, func() bool { calls++; return calls%askEvery == 0 && ok() }, "%s", what)
}

// get and post return status and body.
func (b *broker) get(path string) (int, string) { return b.do(http.MethodGet, path, "") }

func (b *broker) post(path, body string) (int, string) { return b.do(http.MethodPost, path, body) }

func (b *broker) do(method, path, body string) (int, string) {
	b.t.Helper()
	return ask(b.t, b.http, method, b.url(path), body)
}

func ask(t *testing.T, c *http.Client, method, url, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

// metric reads one line of /metrics.
func (b *broker) metric(series string) (value float64) {
	b.t.Helper()
	_, text := b.get("/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			_, err := fmt.Sscan(rest, &value)
			require.NoError(b.t, err)
			return value
		}
	}
	b.t.Fatalf("no %s in /metrics", series)
	return 0
}

// refused runs nsqd with only these arguments until it ends.
func refused(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), smallFiles, "GODEBUG="+slowTrace)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code tells
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// firstPorts and givenPorts number the ports that the tests of this process use: no two tests
// that run at the same time get the same ones.
var (
	firstPorts = rand.Uint32N(800)
	givenPorts atomic.Uint32
)

// freePorts returns the first of six free ports in a row, below the ephemeral ones.
func freePorts(t *testing.T) int {
	t.Helper()
	for range 200 {
		base := 11000 + int((firstPorts+givenPorts.Add(1))%800)*10
		if allFree(base) {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func allFree(base int) bool {
	for plus := range 6 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+plus))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
