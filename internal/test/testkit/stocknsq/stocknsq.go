// Package stocknsq builds the nsqd, the nsqlookupd and the tools of stock NSQ from their module,
// and runs them for a test.
package stocknsq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// Version is the release that the promises of a migration are about.
const Version = "v1.3.0"

// Binaries is a directory with nsqd and nsqlookupd, or with the tools.
type Binaries string

// Path is the path of a program.
func (b Binaries) Path(name string) string { return filepath.Join(string(b), name) }

// Build compiles both. A machine without the module skips the test (env.Missing).
func Build(t testing.TB) Binaries {
	t.Helper()
	return build(t, "nsqd", "nsqlookupd")
}

// Tools are the programs for users that come with nsqd.
var Tools = []string{"nsqadmin", "nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "to_nsq"}

// BuildTools compiles the tools.
func BuildTools(t testing.TB) Binaries {
	t.Helper()
	return build(t, Tools...)
}

// Apps are some of all programs: those that `make tools` has built into a directory, or a build of its own.
func Apps(t testing.TB, prebuilt string, apps ...string) Binaries {
	t.Helper()
	missing := func(app string) bool {
		_, err := os.Stat(Binaries(prebuilt).Path(app))
		return err != nil
	}
	if slices.ContainsFunc(apps, missing) {
		return build(t, apps...)
	}
	return Binaries(prebuilt)
}

func build(t testing.TB, apps ...string) Binaries {
	t.Helper()
	dir := t.TempDir()
	download := exec.Command("go", "mod", "download", "-json", "github.com/nsqio/nsq@"+Version)
	download.Dir = dir // without a go.mod: the module of the test does not have it
	out, err := download.Output()
	var module struct{ Dir, Error string }
	if err := json.Unmarshal(out, &module); err != nil {
		module.Error = err.Error()
	}
	if err != nil || module.Dir == "" {
		env.Missing(t, "the module of NSQ "+Version, fmt.Sprint(err, " ", module.Error))
	}
	build := exec.Command("go", "build", "-C", module.Dir, "-o", dir+string(filepath.Separator))
	for _, app := range apps {
		build.Args = append(build.Args, "./apps/"+app)
	}
	if out, err := build.CombinedOutput(); err != nil {
		env.Missing(t, "a build of NSQ "+Version, fmt.Sprintf("%v: %s", err, out))
	}
	return Binaries(dir)
}

// Process is a running nsqd, nsqlookupd or nsqadmin. It ends with the test.
type Process struct {
	TCP, HTTP string
	Log       *Log
	t         testing.TB
	cmd       *exec.Cmd
	ended     chan struct{}
}

// Log collects the output of a process.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns the output up to now.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// NSQD starts an nsqd on a data path, at free ports of loopback.
func (b Binaries) NSQD(t testing.TB, dataPath string, flags ...string) *Process {
	t.Helper()
	return b.start(t, "nsqd", append([]string{"--data-path=" + dataPath, "--broadcast-address=127.0.0.1", "--tcp-address=127.0.0.1:0"}, flags...))
}

// Lookupd starts an nsqlookupd at free ports of loopback.
func (b Binaries) Lookupd(t testing.TB) *Process {
	t.Helper()
	return b.start(t, "nsqlookupd", []string{"--broadcast-address=127.0.0.1", "--tcp-address=127.0.0.1:0"})
}

// Admin starts an nsqadmin at a free port of loopback.
func (b Binaries) Admin(t testing.TB, flags ...string) *Process {
	t.Helper()
	return b.start(t, "nsqadmin", flags)
}

var listening = regexp.MustCompile(`(TCP|HTTP): listening on (\S+)`)

func (b Binaries) start(t testing.TB, name string, flags []string) *Process {
	t.Helper()
	p := &Process{t: t, Log: &Log{}, ended: make(chan struct{})}
	p.cmd = exec.Command(b.Path(name), append(flags, "--http-address=127.0.0.1:0")...)
	p.cmd.Stdout, p.cmd.Stderr = p.Log, p.Log
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.Kill)
	ended := func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	}
	wait.Until(t, func() bool {
		for _, m := range listening.FindAllStringSubmatch(p.Log.String(), -1) {
			if m[1] == "TCP" {
				p.TCP = m[2]
			} else {
				p.HTTP = m[2]
			}
		}
		return ended() || p.HTTP != "" && (p.TCP != "" || name == "nsqadmin")
	}, "%s listens", name)
	require.False(t, ended(), "%s: %s", name, p.Log)
	return p
}

// Kill ends the process with SIGKILL; one that has ended stays so.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
}

// Stop ends the process with SIGTERM, and waits for it: an nsqd writes its messages to disk.
func (p *Process) Stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(os.Signal(syscall.SIGTERM)))
	wait.For(p.t, p.ended, "the end of %s", p.cmd.Path)
}
