package e2e

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/e2e/history"
)

// fault is one thing done to the brokers, and the time until all was well again.
type fault struct {
	what     string
	limit    time.Duration // promised: no put at another broker waits longer
	from, to time.Time
}

// stall is how long producers at brokers that stayed up had to wait.
type stall struct {
	gap     time.Duration // between two acknowledgements, of whichever producer
	slowest time.Duration // one put
}

// String gives both figures.
func (s stall) String() string {
	return fmt.Sprintf("gap %s, slowest put %s", s.gap.Round(100*time.Microsecond), s.slowest.Round(100*time.Microsecond))
}

func (s stall) worse(than stall) stall {
	return stall{gap: max(s.gap, than.gap), slowest: max(s.slowest, than.slowest)}
}

// stall looks at the attempts that overlap a time, at brokers that were up. It is
// for after the load: an attempt that has no answer yet is not known.
func (l *load) stall(from, to time.Time) (s stall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := from
	for _, a := range l.attempts { // in the order of the answers, nearly
		if a.to.Before(from) || a.from.After(to) || l.c.down.excuse(a.broker, a.from, a.to) {
			continue
		}
		s.slowest = max(s.slowest, a.to.Sub(a.from))
		if a.answer == history.OK && a.to.Before(to) {
			s.gap = max(s.gap, a.to.Sub(last))
			last = a.to
		}
	}
	return s
}

// requireStalls shows what each fault cost the producers at other brokers, and
// holds it against what is promised. It returns the worst of each kind of fault.
func (l *load) requireStalls(faults []fault) map[string]stall {
	l.c.t.Helper()
	worst := map[string]stall{}
	for i, f := range faults {
		got := l.stall(f.from, f.to)
		l.c.t.Logf("fault %d, %s: %s (promised %s)", i+1, f.what, got, f.limit)
		worst[f.what] = got.worse(worst[f.what])
		require.Less(l.c.t, got.slowest, slack(f.limit), f.what)
	}
	return worst
}

// requireLoad wants puts in the second before a fault: without, it proves nothing.
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
