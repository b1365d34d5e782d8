package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	seedsFlag = flag.Int("sim.seeds", 100, "number of seeds to run")
	startFlag = flag.Uint64("sim.start", 1, "first seed")
	seedFlag  = flag.Uint64("sim.seed", 0, "run this one seed")
)

// coverageWanted is how often each named state must be reached in a series of
// coverageSeeds seeds, or the series proves nothing.
const (
	coverageWanted = 100
	coverageSeeds  = 500
	faultsWanted   = 100
	shrinkTries    = 120
	shortSeeds     = 10 // two of each profile
)

// An explanation has at most explainBytes, and each of its lines lineBytes; the rest is
// in a file.
const (
	explainBytes = 4 << 10
	lineBytes    = 240
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
		seeds = min(seeds, shortSeeds)
	}
	s := runSeries(Config{Check: true}, *startFlag, seeds)
	t.Logf("%d seeds\n%s", seeds, s)
	for i, f := range s.failed {
		if i == 3 {
			t.Logf("and %d more seeds failed:\n%s", len(s.failed)-i, list(s.failed[i:]))
			break
		}
		text, _ := explain(t, Config{Seed: f.Seed, Check: true}, f, shrinkTries)
		t.Error(text)
	}
	require.Zero(t, len(s.failed), "failing seeds")
	require.GreaterOrEqual(t, s.faultsLeast, faultsWanted, "faults in the mildest seed")
	if seeds >= coverageSeeds {
		for state, n := range s.coverage {
			require.GreaterOrEqual(t, n, coverageWanted, "times reached: %s", State(state))
		}
	}
}

// TestSameSeedSameTrace: a seed is all there is to a run.
func TestSameSeedSameTrace(t *testing.T) {
	seeds, repeats := []uint64{1, 2, 3, 4, 5}, 2
	if testing.Short() {
		seeds, repeats = seeds[:1], 1
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			first := Run(Config{Seed: seed, Check: true})
			for range repeats {
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
	if r.Profile == grayProfile {
		return // its faults are few and long
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

// list names the first of many failing seeds.
func list(failed []Result) string {
	var b strings.Builder
	for i, r := range failed {
		if b.Len() > explainBytes/2 {
			fmt.Fprintf(&b, "and %d more\n", len(failed)-i)
			break
		}
		fmt.Fprintf(&b, "seed %d (%s): %s\n", r.Seed, r.Profile, brief(r.Failure.Error(), lineBytes))
	}
	return b.String()
}

func one(t *testing.T, c Config) {
	r := Run(c)
	t.Logf("seed %d (%s): hash %016x, %d steps, %d faults, %d puts, %.1f virtual seconds, coverage %v",
		r.Seed, r.Profile, r.Hash, r.Steps, r.Faults, r.Puts, r.VirtualS, r.Coverage)
	if r.Failure != nil {
		text, _ := explain(t, c, r, shrinkTries)
		t.Error(text)
	}
}

// explain shrinks a failing seed, writes the shortest run with its plan and trace into
// a file that stays, and returns the end of it and the plan.
func explain(t *testing.T, c Config, r Result, tries int) (text string, plan []string) {
	c = Shrink(c, r.Failure.Check, tries)
	c.Trace = true
	short := Run(c)
	require.NotNil(t, short.Failure, "seed %d fails, its shrunk plan does not", r.Seed)
	file, err := os.CreateTemp("", fmt.Sprintf("sim-seed-%d-*.trace", r.Seed))
	require.NoError(t, err)
	_, err = fmt.Fprintf(file, "seed %d (%s): %v\n\nshrunk to %d of %d faults: %v\n%s\n\n%s",
		r.Seed, r.Profile, r.Failure, len(short.Plan), len(r.Plan), short.Failure, strings.Join(short.Plan, "\n"), short.Failure.Trace)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	head := fmt.Sprintf("seed %d (%s): %s\nshrunk to %d of %d faults: %s\n",
		r.Seed, r.Profile, brief(r.Failure.Error(), 2*lineBytes), len(short.Plan), len(r.Plan), brief(short.Failure.Error(), 2*lineBytes))
	foot := fmt.Sprintf("plan and whole trace: %s\nrun it again: go test ./internal/test/verify/sim -run TestSeeds -sim.seed=%d", file.Name(), r.Seed)
	return head + lastLines(short.Failure.Trace, explainBytes-len(head)-len(foot)-1) + foot, short.Plan
}

// lastLines are the last lines of a text, each of them brief, that fit into limit bytes.
func lastLines(text string, limit int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	tail := ""
	for i := len(lines) - 1; i >= 0; i-- {
		line := brief(lines[i], lineBytes) + "\n"
		if len(tail)+len(line) > limit {
			break
		}
		tail = line + tail
	}
	return tail
}

// brief is the first line of a text, cut to limit bytes.
func brief(text string, limit int) string {
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > limit {
		return text[:limit-len("…")] + "…"
	}
	return text
}
