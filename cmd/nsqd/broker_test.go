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
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// underTest makes the test binary a broker.
const underTest = "LOCKSTEP_RUN_NSQD"

const limit = 30 * time.Second // of any condition

func TestMain(m *testing.M) {
	if os.Getenv(underTest) != "" {
		os.Exit(run(os.Args[1:]))
	}
	// The tests that call t.Parallel wait for their brokers most of the time, so that more of
	// them run at once than there are processors; the flag -parallel prevails.
	_ = flag.Set("test.parallel", "4")
	// The goroutine of an external etcd that stops ends only after its check of the password.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("golang.org/x/crypto/bcrypt.CompareHashAndPassword"))
}

// broker is one nsqd process of a test.
type broker struct {
	t         *testing.T
	cmd       *exec.Cmd
	dir       string
	base      int // TCP; HTTP +1, HTTPS +2, RPC +3, etcd +4 and +5
	http      *http.Client
	log       string // file
	done      chan struct{}
	exit      error // valid after done
	began     time.Time
	tcpSocket string // in place of the port
	ulimit    int    // of files; 0: the test's
	env       []string
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
	return &broker{t: t, dir: t.TempDir(), base: freePorts(t), http: &http.Client{Timeout: 10 * time.Second}}
}

// run starts the process; the given flags replace the harness's own.
func (b *broker) run(flags ...string) {
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
	b.cmd.Env = append(append(os.Environ(), underTest+"=1"), b.env...)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	b.log = filepath.Join(b.t.TempDir(), "log")
	log, err := os.Create(b.log)
	require.NoError(b.t, err)
	b.cmd.Stderr, b.cmd.Stdout = log, log
	b.began = time.Now()
	require.NoError(b.t, b.cmd.Start())
	_ = log.Close() // the process has its own descriptor
	b.done = make(chan struct{})
	done, cmd := b.done, b.cmd
	go func() {
		b.exit = cmd.Wait()
		close(done)
	}()
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended already
		<-done
		b.http.CloseIdleConnections()
		if b.t.Failed() {
			b.t.Logf("log of %v:\n%s", args, b.logged())
		}
	})
}

func (b *broker) ready() {
	b.t.Helper()
	b.eventually("serves", func() bool {
		select {
		case <-b.done:
			b.t.Fatalf("nsqd ended: %v", b.exit)
		default:
		}
		resp, err := b.http.Get(b.url("/info"))
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized { // TLS is required, from the start on, or a token
			return strings.Contains(b.logged(), "INFO: READY, ")
		}
		return resp.StatusCode == http.StatusOK
	})
}

func (b *broker) address(plus int) string { return fmt.Sprintf("127.0.0.1:%d", b.base+plus) }
func (b *broker) url(path string) string  { return "http://" + b.address(1) + path }
func (b *broker) logged() string {
	text, _ := os.ReadFile(b.log)
	return string(text)
}

// wait returns the exit code.
func (b *broker) wait() int {
	b.t.Helper()
	select {
	case <-b.done:
		return b.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		b.t.Fatal("nsqd does not end")
		return 0
	}
}

func (b *broker) signal(s os.Signal) {
	b.t.Helper()
	require.NoError(b.t, b.cmd.Process.Signal(s))
}

// stop ends the process as an operator would.
func (b *broker) stop() {
	b.t.Helper()
	b.signal(syscall.SIGTERM)
	require.Zero(b.t, b.wait())
}

func (b *broker) eventually(what string, ok func() bool) {
	b.t.Helper()
	require.Eventually(b.t, ok, limit, 5*time.Millisecond, what)
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
	cmd.Env = append(os.Environ(), underTest+"=1")
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
