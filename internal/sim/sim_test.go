package sim

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	seedsFlag = flag.Int("sim.seeds", 500, "number of seeds to run")
	startFlag = flag.Uint64("sim.start", 1, "first seed")
	seedFlag  = flag.Uint64("sim.seed", 0, "run this one seed, with its trace if it fails")
	traceFlag = flag.Int("sim.trace", 150, "lines of trace to print")
)

// coverageWanted is how often each named state must be reached in a series of
// coverageSeeds seeds, or the series proves nothing.
const (
	coverageWanted = 100
	coverageSeeds  = 500
	faultsWanted   = 100
	shrinkTries    = 120
)

// TestSeeds is the simulator's verdict: no promise is broken in any seed, and
// the seeds were rough enough for that to mean something.
func TestSeeds(t *testing.T) {
	if *seedFlag != 0 {
		one(t, Config{Seed: *seedFlag, Check: true})
		return
	}
	seeds := *seedsFlag
	if testing.Short() {
		seeds = min(seeds, 60)
	}
	began := time.Now()
	s := runSeries(Config{Check: true}, *startFlag, seeds)
	t.Logf("%d seeds in %.1f s\n%s", seeds, time.Since(began).Seconds(), s)
	for i, f := range s.failed {
		if i == 3 {
			t.Logf("and %d more seeds failed:\n%s", len(s.failed)-i, list(s.failed[i:]))
			break
		}
		explain(t, Config{Seed: f.Seed, Check: true}, f)
	}
	require.Empty(t, s.failed, "failing seeds")
	require.GreaterOrEqual(t, s.faultsLeast, faultsWanted, "faults in the mildest seed")
	if seeds >= coverageSeeds {
		for state, n := range s.coverage {
			require.GreaterOrEqual(t, n, coverageWanted, "times reached: %s", State(state))
		}
	}
}

// TestSameSeedSameTrace: a seed is all there is to a run.
func TestSameSeedSameTrace(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			first := Run(Config{Seed: seed, Check: true})
			for range 19 {
				again := Run(Config{Seed: seed, Check: true})
				require.Equal(t, first.Hash, again.Hash)
				require.Equal(t, first.Steps, again.Steps)
			}
			traced := Run(Config{Seed: seed, Check: true, Trace: true})
			require.Equal(t, first.Hash, traced.Hash, "tracing must not change it")
		})
	}
}

// series sums many runs up.
type series struct {
	failed      []Result
	coverage    Coverage
	runs        int
	steps, puts int
	faults      int
	faultsLeast int
	virtualS    float64
}

func (s *series) add(r Result) {
	s.runs++
	s.coverage.Add(r.Coverage)
	s.steps += r.Steps
	s.puts += r.Puts
	s.faults += r.Faults
	s.virtualS += r.VirtualS
	if r.Failure != nil {
		s.failed = append(s.failed, r)
		return
	}
	if s.faultsLeast == 0 || r.Faults < s.faultsLeast {
		s.faultsLeast = r.Faults
	}
}

// String is the table that is printed after a series.
func (s *series) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d failed; %d faults (least %d in a run), %d puts, %d steps, %.0f virtual seconds\n",
		s.runs, len(s.failed), s.faults, s.faultsLeast, s.puts, s.steps, s.virtualS)
	for state, n := range s.coverage {
		fmt.Fprintf(&b, "  %-28s %8d\n", State(state), n)
	}
	return b.String()
}

// runSeries plays seeds on all processors; each run is single-threaded, and the
// results are summed up in the order of the seeds.
func runSeries(c Config, start uint64, n int) *series {
	results := make([]Result, n)
	work := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range work {
				one := c
				one.Seed = start + uint64(i)
				results[i] = Run(one)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	workers.Wait()
	s := &series{}
	for _, r := range results {
		s.add(r)
	}
	return s
}

func list(failed []Result) string {
	var b strings.Builder
	for _, r := range failed {
		fmt.Fprintf(&b, "seed %d (%s): %v\n", r.Seed, r.Profile, r.Failure)
	}
	return b.String()
}

func one(t *testing.T, c Config) {
	r := Run(c)
	t.Logf("seed %d (%s): hash %016x, %d steps, %d faults, %d puts, %.1f virtual seconds, coverage %v",
		r.Seed, r.Profile, r.Hash, r.Steps, r.Faults, r.Puts, r.VirtualS, r.Coverage)
	if r.Failure != nil {
		explain(t, c, r)
	}
}

// explain shrinks a failing seed and prints the shortest run with its trace.
func explain(t *testing.T, c Config, r Result) {
	c = Shrink(c, r.Failure.Check, shrinkTries)
	c.Trace = true
	short := Run(c)
	require.NotNil(t, short.Failure, "seed %d fails, its shrunk plan does not", r.Seed)
	lines := strings.Split(short.Failure.Trace, "\n")
	lines = lines[max(0, len(lines)-*traceFlag):]
	t.Errorf("seed %d (%s): %v\nshrunk to %d of %d faults: %v\n%s\n%s\nrun it again: go test ./internal/sim -run TestSeeds -sim.seed=%d",
		r.Seed, r.Profile, r.Failure, len(short.Plan), len(r.Plan), short.Failure,
		strings.Join(short.Plan, "\n"), strings.Join(lines, "\n"), r.Seed)
}
