package e2etest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// Fault is one thing done to the brokers. A slow put counts for the fault before it.
type Fault struct {
	What  string
	Limit time.Duration // promised: no put at another broker waits longer
	At    time.Time
}

// Stall is how long producers at brokers that stayed up had to wait.
type Stall struct {
	Gap     time.Duration // between two acknowledgements, of whichever producer
	slowest time.Duration // one put
	puts    int           // acknowledged ones that were looked at
}

// String gives both figures.
func (s Stall) String() string {
	return fmt.Sprintf("gap %s, slowest of %d puts %s", s.Gap.Round(100*time.Microsecond), s.puts, s.slowest.Round(100*time.Microsecond))
}

// Stall looks at the attempts that ended within a time, at brokers that were up.
// It is for after the load: an attempt that has no answer yet is not known.
func (l *Load) Stall(from, to time.Time) (s Stall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := from
	for _, a := range l.attempts { // in the order of the answers, nearly
		if a.To.Before(from) || a.To.After(to) || l.c.Down.excuse(a.broker, a.from, a.To) {
			continue
		}
		s.slowest = max(s.slowest, a.To.Sub(a.from))
		if a.Answer == judge.OK {
			s.puts++
			s.Gap = max(s.Gap, a.To.Sub(last))
			last = a.To
		}
	}
	return s
}

// hiccup is what one stall of several may take longer, because the machine that
// tests does other things as well.
const hiccup = time.Second

// RequireStalls shows what each fault cost the producers at other brokers, and
// holds it against what is promised: half of the faults of a kind within the
// slack, all of them within a hiccup more.
func (l *Load) RequireStalls(faults []Fault) {
	l.c.T.Helper()
	slowest := map[string][]time.Duration{}
	for i, f := range faults {
		until := time.Now()
		if i+1 < len(faults) {
			until = faults[i+1].At
		}
		got := l.Stall(f.At, until)
		l.c.T.Logf("fault %d, %s: %s", i+1, f.What, got)
		require.Greater(l.c.T, got.puts, 50, "puts at brokers that stayed up, after %s", f.What)
		require.Less(l.c.T, got.slowest, Slack(f.Limit)+hiccup, f.What)
		slowest[f.What] = append(slowest[f.What], got.slowest)
	}
	for _, what := range slices.Sorted(maps.Keys(slowest)) {
		all := slices.Sorted(slices.Values(slowest[what]))
		promised := limitOf(faults, what)
		l.c.T.Logf("%d times %s: slowest put p50 %s, worst %s; promised %s", len(all), what,
			all[(len(all)-1)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond), promised)
		require.Less(l.c.T, all[(len(all)-1)/2], Slack(promised), what)
	}
}

func limitOf(faults []Fault, what string) time.Duration {
	return faults[slices.IndexFunc(faults, func(f Fault) bool { return f.What == what })].Limit
}

// RequireLoad requires puts in the second before a fault: without them the fault proves
// nothing.
func (l *Load) RequireLoad(before time.Time) {
	l.c.T.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, a := range l.attempts {
		if a.Answer == judge.OK && a.To.After(before.Add(-time.Second)) && a.To.Before(before) {
			n++
		}
	}
	require.Greater(l.c.T, n, 50, "acknowledged puts in the second before the fault")
}
