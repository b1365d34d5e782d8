package model

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testenv"
)

// limits of the long runs: states of one configuration.
const (
	longStates     = 4_000_000
	mutationStates = 8_000_000
	// shortMutationStates bounds the search for what is not expected to be found.
	shortMutationStates = 200_000
)

// explore searches all configurations and logs a row of the table for each.
func explore(t *testing.T, all []Config) (total Result) {
	t.Logf("| configuration | states | transitions | depth | broker steps | to the end | seconds |")
	for _, c := range all {
		begun := time.Now()
		r := Explore(c)
		require.Empty(t, r.Failure, "%s, after %d states:\n%s", c.Name, r.States, strings.Join(r.Trace, "\n"))
		t.Logf("| %s | %d | %d | %d | %d | %v | %.1f |", c.Name, r.States, r.Transitions, r.Depth, r.BrokerSteps, r.Complete, time.Since(begun).Seconds())
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
	if testenv.Long() {
		all, least = Long(testenv.Number(t, "LOCKSTEP_STATES", longStates)), 0
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

// TestModelMutations: without a rule some promise breaks, or it is said why not.
func TestModelMutations(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	t.Logf("| rule | property that catches it | steps | states |")
	caught, all := 0, Mutations()
	for _, m := range all {
		m.Config.MaxStates = mutationStates
		if m.Why != "" && !testenv.Long() {
			m.Config.MaxStates = shortMutationStates
		}
		r := Explore(m.Config)
		if m.Why != "" {
			require.Empty(t, r.Failure, "%s is caught after all; say so:\n%s", m.Rule, strings.Join(r.Trace, "\n"))
			t.Logf("| `%s` | not caught: %s | – | %d, to the end: %v |", m.Rule, m.Why, r.States, r.Complete)
			continue
		}
		require.NotEmpty(t, r.Failure, "nothing catches the removal of %s in %d states", m.Rule, r.States)
		whole := m.Config
		whole.Break, whole.World, whole.MaxStates = "", "", r.States+10_000
		if !testenv.Long() {
			whole.MaxStates = min(whole.MaxStates, shortMutationStates)
		}
		require.Empty(t, Explore(whole).Failure, "%s: the same search fails with the rule in place", m.Rule)
		caught++
		t.Logf("| `%s` | %s | %d | %d |", m.Rule, r.Failure, len(r.Trace), r.States)
	}
	t.Logf("%d of %d rules are caught", caught, len(all))
}

// The same search twice is the same search.
func TestModelIsDeterministic(t *testing.T) {
	c := Config{Replicas: 2, MinISR: 2, Puts: 1, Retries: 1, Ticks: 1, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2}
	require.Equal(t, Explore(c), Explore(c))
	c.Break = "rollback-freeze"
	require.Equal(t, Explore(c), Explore(c))
}

// A violation comes with the way that leads to it.
func TestModelTraceEndsInTheViolation(t *testing.T) {
	r := Explore(Config{Replicas: 2, MinISR: 2, Puts: 1, Retries: 1, EagerSync: true, Depth: 2, MaxEpoch: 1, MaxCAS: 1, Break: "request-id"})
	require.Contains(t, r.Failure, "P5")
	require.Contains(t, r.Trace[0], "is asked to put request 1")
	require.NotEmpty(t, r.Trace[len(r.Trace)-1])
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
