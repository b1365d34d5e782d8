package sim

import (
	"flag"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

var mutantSeedsFlag = flag.Int("sim.mutant.seeds", 600, "TestMutant: seeds to try")

// unmutatedSeeds are run when the binary is no mutant.
const unmutatedSeeds = 10

// TestMutant fails at the first seed in which the mutant breaks a promise
// (internal/test/verify/mutants builds this test with it, and sets LOCKSTEP_MUTANT).
// The machine's own assertions and alarms are off: a mutant must be caught by the
// behaviour of the cluster. Without a mutant no seed may fail.
func TestMutant(t *testing.T) {
	limit := *mutantSeedsFlag
	if env.Mutant() == "" {
		limit = unmutatedSeeds
		if testing.Short() {
			limit /= 10
		}
	}
	r, tried := firstFailure(Config{}, limit)
	if r == nil {
		t.Logf("no failure in %d seeds", tried)
		return
	}
	t.Errorf("broken promise: seed %d: %s", r.Seed, brief(r.Failure.Error(), lineBytes))
}

// firstFailure runs seeds, on all processors, until one breaks a promise. A panic is
// none: it is an assertion of the code under test.
func firstFailure(c Config, limit int) (*Result, int) {
	results := make([]Result, limit)
	fails := func(r *Result) bool { return r.Failure != nil && r.Failure.Check != panicked }
	var next, stop atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for stop.Load() == 0 {
				i := int(next.Add(1)) - 1
				if i >= limit {
					return
				}
				one := c
				one.Seed = uint64(i + 1)
				results[i] = Run(one)
				if fails(&results[i]) {
					stop.Store(1)
				}
			}
		})
	}
	workers.Wait()
	for i := range results {
		if fails(&results[i]) {
			return &results[i], i + 1
		}
	}
	return nil, limit
}

// falsified reports puts in doubt as rolled back: a promise that the cluster does not
// keep.
func falsified(d *outcome.Completion) {
	if d.Outcome == outcome.InDoubt {
		d.Outcome = outcome.RolledBack
	}
}

// TestLastLines: the end of a trace has whole lines, each of them cut, within its limit.
func TestLastLines(t *testing.T) {
	long := strings.Repeat("0", 32<<10)
	text := lastLines("first\n"+long+"\nlast\n", 2*lineBytes)
	require.Equal(t, "first\n"+brief(long, lineBytes)+"\nlast\n", text)
	require.Len(t, brief(long, lineBytes), lineBytes)
	require.Equal(t, "last\n", lastLines("first\n"+long+"\nlast\n", lineBytes))
}

// TestFailureIsExplained: the explanation of a failing seed names the promise, the step
// and the moment, shrinks to few faults that break the same promise, and is short; the
// file that it names has everything that led to it.
func TestFailureIsExplained(t *testing.T) {
	if testing.Short() {
		t.Skip("shrinks; left out with -short")
	}
	c := Config{tamper: falsified}
	r, _ := firstFailure(c, *mutantSeedsFlag)
	require.NotNil(t, r)
	require.Equal(t, "refused, then seen", r.Failure.Check)
	require.NotZero(t, r.Failure.Step)
	c.Seed = r.Seed
	t.Setenv("TMPDIR", t.TempDir())
	text, plan := explain(t, c, *r, 30)
	require.Less(t, len(text), explainBytes)
	require.Contains(t, text, r.Failure.Text)
	require.Regexp(t, `step \d+: request`, text)
	require.Less(t, len(plan), len(r.Plan)*4/5, "of %d faults, in so few tries", len(r.Plan))
	file := regexp.MustCompile(`\S+\.trace`).FindString(text)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, `\d+\.\d{3} n\d +p\d +answer ticket \d+: rolled back`, string(whole))
	require.Contains(t, string(whole), strings.Join(plan, "\n"))
}
