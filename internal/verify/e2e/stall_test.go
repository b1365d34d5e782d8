package e2e

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// fault is one thing done to the brokers. A slow put counts for the fault before it.
type fault struct {
	what  string
	limit time.Duration // promised: no put at another broker waits longer
	at    time.Time
}

// stall is how long producers at brokers that stayed up had to wait.
type stall struct {
	gap     time.Duration // between two acknowledgements, of whichever producer
	slowest time.Duration // one put
	puts    int           // acknowledged ones that were looked at
}

// String gives both figures.
func (s stall) String() string {
	return fmt.Sprintf("gap %s, slowest of %d puts %s", s.gap.Round(100*time.Microsecond), s.puts, s.slowest.Round(100*time.Microsecond))
}

// stall looks at the attempts that ended within a time, at brokers that were up.
// It is for after the load: an attempt that has no answer yet is not known.
func (l *load) stall(from, to time.Time) (s stall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := from
	for _, a := range l.attempts { // in the order of the answers, nearly
		if a.to.Before(from) || a.to.After(to) || l.c.down.excuse(a.broker, a.from, a.to) {
			continue
		}
		s.slowest = max(s.slowest, a.to.Sub(a.from))
		if a.answer == history.OK {
			s.puts++
			s.gap = max(s.gap, a.to.Sub(last))
			last = a.to
		}
	}
	return s
}

// hiccup is what one stall of several may take longer, because the machine that
// tests does other things as well.
const hiccup = time.Second

// requireStalls shows what each fault cost the producers at other brokers, and
// holds it against what is promised: half of the faults of a kind within the
// slack, all of them within a hiccup more.
func (l *load) requireStalls(faults []fault) {
	l.c.t.Helper()
	slowest := map[string][]time.Duration{}
	for i, f := range faults {
		until := time.Now()
		if i+1 < len(faults) {
			until = faults[i+1].at
		}
		got := l.stall(f.at, until)
		l.c.t.Logf("fault %d, %s: %s", i+1, f.what, got)
		require.Greater(l.c.t, got.puts, 50, "puts at brokers that stayed up, after %s", f.what)
		require.Less(l.c.t, got.slowest, slack(f.limit)+hiccup, f.what)
		slowest[f.what] = append(slowest[f.what], got.slowest)
	}
	for _, what := range slices.Sorted(maps.Keys(slowest)) {
		all := slices.Sorted(slices.Values(slowest[what]))
		promised := limitOf(faults, what)
		l.c.t.Logf("%d times %s: slowest put p50 %s, worst %s; promised %s", len(all), what,
			all[(len(all)-1)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond), promised)
		require.Less(l.c.t, all[(len(all)-1)/2], slack(promised), what)
	}
}

func limitOf(faults []fault, what string) time.Duration {
	return faults[slices.IndexFunc(faults, func(f fault) bool { return f.what == what })].limit
}

// requireLoad requires puts in the second before a fault: without them the fault proves
// nothing.
func (l *load) requireLoad(before time.Time) {
	l.c.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, a := range l.attempts {
		if a.answer == history.OK && a.to.After(before.Add(-time.Second)) && a.to.Before(before) {
			n++
		}
	}
	require.Greater(l.c.t, n, 50, "acknowledged puts in the second before the fault")
}
