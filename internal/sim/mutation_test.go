package sim

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/mutation"
)

var mutationSeedsFlag = flag.Int("sim.mutation.seeds", 600, "seeds to try for each rule that is switched off")

var mutationFlag = flag.String("sim.mutation", "", "try this rule alone")

// mutations are the rules that can be switched off. The machine's own
// assertions are off too: a removal must be caught by what the cluster does.
var mutations = []string{
	replica.BreakSyncBeforeAck, replica.BreakEpochCheck, replica.BreakMaximalISR, replica.BreakMarkerGate,
	replica.BreakDupCRC, replica.BreakRollbackEpoch, replica.BreakRollbackAnswer, replica.BreakStoreID,
	replica.BreakJoinBar, replica.BreakIncarnation, replica.BreakAckVerified, replica.BreakFollowerCommit,
	replica.BreakRequestID, replica.BreakMinISR, replica.BreakElectOutsideISR, replica.BreakConfirmOrder,
	replica.BreakAckEpoch, replica.BreakVisible, replica.BreakRestartBelow, replica.BreakParting,
	breakBootID, breakDeadlines, breakCarried,
}

// unmutatedSeeds are run when nothing is switched off.
const unmutatedSeeds = 20

// TestMutations: a simulator that does not notice a missing rule proves nothing
// about the rule.
func TestMutations(t *testing.T) {
	if *seedFlag != 0 {
		t.Skip("one seed was asked for")
	}
	var score strings.Builder
	caught := 0
	var missed []string
	for _, rule := range mutations {
		if *mutationFlag != "" && rule != *mutationFlag {
			continue
		}
		r, tried := firstFailure(rule, *mutationSeedsFlag)
		if r == nil {
			fmt.Fprintf(&score, "  %-20s not caught in %d seeds\n", rule, tried)
			missed = append(missed, rule)
			continue
		}
		caught++
		fmt.Fprintf(&score, "  %-20s seed %d: %s\n", rule, r.Seed, firstLine(r.Failure))
	}
	t.Logf("%d of %d caught\n%s", caught, len(mutations), score.String())
	require.Empty(t, missed, "rules whose removal went unnoticed")
}

// TestFailureIsExplained: what a failing seed prints names the promise, the step
// and the moment, shrinks to few faults that break the same promise, and shows
// what led to it.
func TestFailureIsExplained(t *testing.T) {
	if testing.Short() {
		t.Skip("shrinks; left out with -short")
	}
	const rule, tries = replica.BreakRollbackAnswer, 80
	r, _ := firstFailure(rule, *mutationSeedsFlag)
	require.NotNil(t, r)
	c := Shrink(Config{Seed: r.Seed, Break: rule}, r.Failure.Check, tries)
	c.Trace = true
	short := Run(c)
	require.NotNil(t, short.Failure)
	require.Equal(t, r.Failure.Check, short.Failure.Check)
	require.Less(t, len(short.Plan), len(r.Plan)*4/5, "of %d faults, in so few tries", len(r.Plan))
	require.NotZero(t, short.Failure.Step)
	require.Regexp(t, `\d+\.\d{3} n\d +p\d +answer ticket \d+: rolled back`, short.Failure.Trace)
	require.Regexp(t, `step \d+: request`, short.Failure.Error())
}

// TestMutant fails at the first seed that shows the line which this binary has
// switched off (build tag mutation). Without one it passes.
func TestMutant(t *testing.T) {
	if !mutation.Enabled {
		t.Skip("needs -tags mutation; see make sim-mutations")
	}
	limit := *mutationSeedsFlag
	if mutation.Chosen() == "" {
		limit = unmutatedSeeds
	}
	r, tried := firstFailure("", limit)
	if r == nil {
		t.Logf("no failure in %d seeds", tried)
		return
	}
	explain(t, Config{Seed: r.Seed}, *r)
}

// firstFailure runs seeds, on all processors, until one fails.
func firstFailure(rule string, limit int) (*Result, int) {
	results := make([]Result, limit)
	var next, stop atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for stop.Load() == 0 {
				i := int(next.Add(1)) - 1
				if i >= limit {
					return
				}
				results[i] = Run(Config{Seed: uint64(i + 1), Break: rule})
				if results[i].Failure != nil {
					stop.Store(1)
				}
			}
		})
	}
	workers.Wait()
	for i := range results {
		if results[i].Failure != nil {
			return &results[i], i + 1
		}
	}
	return nil, limit
}

func firstLine(f *Failure) string {
	text, _, _ := strings.Cut(f.Error(), "\n")
	return text
}
