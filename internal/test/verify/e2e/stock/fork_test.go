package stock

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestConformanceFork: the public Go client of the fork youzan/nsq publishes and consumes through kills of all brokers in turn,
// plainly, with traces, in order, with JSON headers, and by partition. All that was acknowledged arrives, as it was published.
// LOCKSTEP_KILLS is the number of kills.
func TestConformanceFork(t *testing.T) {
	e2etest.Processes(t)
	if !env.Long() {
		env.Skip(t, "run by make conformance (LOCKSTEP_LONG=1)")
	}
	program := buildFork(t)
	c := e2etest.Start(t, 3)
	for _, way := range forkWays {
		c.Create(way, forkChannel, 3)
	}
	fork := startFork(t, program, c)
	for i := range env.Number(t, "LOCKSTEP_KILLS", 9) {
		fork.advance(c, 100)
		victim := e2etest.Names(c)[i%3]
		c.Crash(victim)
		fork.advance(c, 100)
		c.Restart(victim)
		for _, way := range forkWays {
			c.Whole(way)
		}
	}
	for _, r := range fork.end(t) {
		t.Logf("%s: %d acknowledged, %d delivered, %d deliveries, %d missing, %d differences, errors of publishing: %v",
			r.Way, r.Acked, r.Distinct, r.Deliveries, len(r.Missing), len(r.Differences), r.Errors)
		require.Empty(t, r.Missing, r.Way)
		require.Empty(t, r.Differences[:min(len(r.Differences), 20)], r.Way)
		for text := range r.Errors {
			require.NotContains(t, text, "E_", r.Way) // the client's own texts name a connection that ended
		}
	}
}

// The topics and the channel of the program fork.
var forkWays = []string{"plain", "trace", "ordered", "headers", "parts"}

const forkChannel = "fork"

// buildFork builds the program, a module of its own that requires the fork's client.
func buildFork(t *testing.T) string {
	t.Helper()
	download := exec.Command("go", "mod", "download")
	download.Dir = "fork"
	if out, err := download.CombinedOutput(); err != nil {
		env.Missing(t, "the module of the fork's client", fmt.Sprintf("%v: %s", err, out))
	}
	program := filepath.Join(t.TempDir(), "fork")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "fork"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// forkProgram is the program at work; each line of its output but the last counts the acknowledged messages of each way.
type forkProgram struct {
	cmd   *exec.Cmd
	stdin io.Closer
	mu    sync.Mutex
	acked map[string]int
	last  []byte
	read  chan struct{} // closed when the output has ended
}

// forkReport is the Report of the program.
type forkReport struct {
	Way                         string
	Acked, Distinct, Deliveries int
	Errors                      map[string]int
	Missing, Differences        []string
}

func startFork(t *testing.T, program string, c *e2etest.Cluster) *forkProgram {
	t.Helper()
	var lookups []string
	for _, b := range c.Brokers {
		lookups = append(lookups, b.HTTP)
	}
	f := &forkProgram{cmd: exec.Command(program, strings.Join(lookups, ",")), acked: map[string]int{}, read: make(chan struct{})}
	f.cmd.Stderr = os.Stderr
	stdin, err := f.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := f.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, f.cmd.Start())
	f.stdin = stdin
	t.Cleanup(func() { _ = f.cmd.Process.Kill() }) // no effect on one that has ended
	go func() {
		defer close(f.read)
		lines := bufio.NewReader(stdout)
		for line, err := lines.ReadBytes('\n'); err == nil; line, err = lines.ReadBytes('\n') {
			f.mu.Lock()
			f.last = line
			_ = json.Unmarshal(line, &f.acked) // the last line has another form
			f.mu.Unlock()
		}
	}()
	return f
}

// advance waits until each way has published so many messages more.
func (f *forkProgram) advance(c *e2etest.Cluster, more int) {
	c.T.Helper()
	counts := func() (all []int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, way := range forkWays {
			all = append(all, f.acked[way])
		}
		return all
	}
	before := counts()
	c.Until("messages of each way of the fork's client", func() bool {
		for i, n := range counts() {
			if n < before[i]+more {
				return false
			}
		}
		return true
	})
}

// end stops the publishers, waits until the program has consumed all that was acknowledged, and returns its reports.
func (f *forkProgram) end(t *testing.T) (reports []forkReport) {
	t.Helper()
	require.NoError(t, f.stdin.Close())
	<-f.read
	require.NoError(t, f.cmd.Wait())
	require.NoError(t, json.Unmarshal(f.last, &reports))
	require.Len(t, reports, len(forkWays))
	require.False(t, slices.ContainsFunc(reports, func(r forkReport) bool { return r.Acked == 0 }))
	return reports
}
