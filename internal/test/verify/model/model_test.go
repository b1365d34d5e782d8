package model

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

const (
	// longStates bounds each configuration of the long runs.
	longStates = 4_000_000
	// shortStates bounds the searches for mutants, without a mutant, with -short.
	shortStates = 5_000
)

var (
	searchFlag = flag.String("model.search", "", "TestMutant without a mutant: the search of this mutant alone")
	statesFlag = flag.Int("model.states", 20_000, "TestMutant: states of one search at most")
)

// explore searches all configurations and logs a row of the table for each.
func explore(t *testing.T, all []Config) (total Result) {
	t.Logf("| configuration | states | transitions | depth | broker steps | to the end |")
	for _, c := range all {
		r := Explore(c)
		require.Empty(t, r.Failure, "%s, after %d states:\n%s", c.Name, r.States, strings.Join(r.Trace, "\n"))
		t.Logf("| %s | %d | %d | %d | %d | %v |", c.Name, r.States, r.Transitions, r.Depth, r.BrokerSteps, r.Complete)
		require.True(t, r.Complete || c.MaxStates > 0, "%s was not explored to its end", c.Name)
		total.States += r.States
		total.Transitions += r.Transitions
		total.Reached.Add(r.Reached)
	}
	t.Logf("%d states, %d transitions; broker steps that reached: %+v", total.States, total.Transitions, total.Reached)
	return total
}

// TestModel: no interleaving of these small clusters breaks a promise.
func TestModel(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	all, least := Short(), 800_000
	if env.Long() {
		all, least = Long(env.Number(t, "LOCKSTEP_STATES", longStates)), 0
	}
	total := explore(t, all)
	require.Greater(t, total.States, least)
	r := total.Reached
	for name, n := range map[string]uint64{
		"elections": r.Elections, "rollbacks": r.Rollbacks, "rolled back": r.RolledBack, "in doubt": r.InDoubt,
		"truncations": r.Truncations, "shrinks": r.Shrinks, "grows": r.Grows, "swaps": r.Swaps, "late landings": r.LateLandings,
	} {
		require.Greater(t, n, uint64(100), "%s: a model that never gets there proves nothing", name)
	}
}

// TestMutant searches for the harm that a mutant does (internal/test/verify/mutants builds
// this test with it, and sets LOCKSTEP_MUTANT): it fails if a promise breaks.
// Without a mutant nothing may be found, by the searches of all mutants or of the one
// that -model.search names.
func TestMutant(t *testing.T) {
	if name := env.Mutant(); name != "" {
		searchAsMutant(t, name)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(searches())) {
		if *searchFlag != "" && *searchFlag != name {
			continue
		}
		c := searches()[name]
		if c.MaxStates = *statesFlag; testing.Short() {
			c.MaxStates = min(c.MaxStates, shortStates)
		}
		r := Explore(c)
		require.Empty(t, r.Failure, "the search for %s finds a failure with every rule in place:\n%s", name, strings.Join(r.Trace, "\n"))
		t.Logf("%s: nothing in %d states, to the end: %v", name, r.States, r.Complete)
	}
}

// searchAsMutant explores the configuration of one mutant; a mutant without one is
// searched for in the short configurations.
func searchAsMutant(t *testing.T, name string) {
	all := Short()
	if c, ok := searches()[name]; ok {
		all = []Config{c}
	}
	for _, c := range all {
		c.unasserted, c.MaxStates = true, *statesFlag
		r := Explore(c)
		if r.Failure != "" {
			t.Fatalf("broken promise: %s (%s: %d steps, %d states)\n%s", r.Failure, c.Name, len(r.Trace), r.States, strings.Join(r.Trace, "\n"))
		}
		t.Logf("%s: nothing in %d states, to the end: %v", c.Name, r.States, r.Complete)
	}
}

// The same search twice is the same search.
func TestModelIsDeterministic(t *testing.T) {
	c := Config{Replicas: 2, MinISR: 2, Puts: 1, Retries: 1, Ticks: 1, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2, MaxStates: 50_000}
	first := Explore(c)
	require.Equal(t, first, Explore(c))
	require.NotZero(t, first.Reached.Elections)
}

// A violation comes with the way that leads to it: here the history has it that another
// process has committed in epoch 1.
func TestTraceEndsInTheViolation(t *testing.T) {
	x := newExplorer(Config{Replicas: 2, MinISR: 2, Puts: 1, EagerSync: true, Depth: 2, MaxEpoch: 1, MaxCAS: 1})
	w, failure := x.first()
	require.Empty(t, failure)
	h := *x.histories.at(w.history)
	h.commits[1]++
	w.history = x.historyID(&h)
	var r Result
	x.search(x.given(w), &r)
	require.Contains(t, r.Failure, "P7")
	require.Contains(t, r.Trace[0], "is asked to put request 1")
	require.Contains(t, r.Trace[len(r.Trace)-1], "n1 receives ack of n2")
}

func TestSeenGrows(t *testing.T) {
	s := newSeen()
	for i := range uint64(200_000) {
		m := newMixer()
		m.word(i)
		require.True(t, s.add(m.sum()), "two of the first numbers have one hash")
	}
	m := newMixer()
	m.word(7)
	require.False(t, s.add(m.sum()))
	require.Equal(t, 200_000, s.used)
}
