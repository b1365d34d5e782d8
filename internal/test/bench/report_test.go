package bench

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// constant is a subject with a constant rate.
type constant struct {
	name string
	rate float64
	isr  int

	steal []float64 // percent, of one repeat after the other
	asked int
}

func (c *constant) Label() string                     { return c.name }
func (c *constant) Durability(context.Context) string { return "none" }

func (c *constant) Repeat(_ context.Context, w Workload, row *Row, progress func(int)) error {
	if w.Kind == Idle {
		return nil
	}
	steal := 0.0
	if c.asked < len(c.steal) {
		steal = c.steal[c.asked]
	}
	c.asked++
	row.SawISR(3, 3)
	row.SawISR(c.isr, 3)
	n := float64(len(row.Runs)) // 0, 1, 2
	row.Runs = append(row.Runs, Run{Messages: 100, Took: time.Second, Rate: c.rate * (n + 1) * w.X, P50: time.Duration(w.X) * time.Millisecond, CPU: time.Second, Steal: steal})
	progress(100)
	return nil
}

func turns() Turns {
	return Turns{Subjects: []Subject{&constant{name: "ours", rate: 100, isr: 3}, &constant{name: "theirs", rate: 50, isr: 2}}, Repeats: 3, Progress: &bytes.Buffer{}}
}

func TestTurnsGiveMediansAndExtremes(t *testing.T) {
	rows, err := turns().Measure(context.Background(), Workload{Name: "w", X: 1, Size: 1000})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, []float64{200, 100, 300}, []float64{rows[0].Rate, rows[0].RateMin, rows[0].RateMax})
	require.InDelta(t, 0.2, rows[0].MBps, 1e-9)
	require.InDelta(t, 10_000, rows[0].CPU, 1e-9, "a second for a hundred messages")
	require.False(t, rows[0].Void)
	require.True(t, rows[1].Void, "an in-sync set that shrank")

	rows, err = turns().Measure(context.Background(), Workload{Kind: Idle})
	require.NoError(t, err)
	require.Empty(t, rows, "no subject supports it")
}

func TestTurnsThatTheHostDisturbedAreMeasuredAgain(t *testing.T) {
	theirs := &constant{name: "theirs", rate: 50, isr: 3, steal: []float64{0, 9, 1.5, 3, 0}}
	all := turns()
	all.MaxSteal, all.Subjects[1] = 2, theirs
	rows, err := all.Measure(context.Background(), Workload{Name: "w", X: 1})
	require.NoError(t, err)
	for _, row := range rows {
		require.Len(t, row.Runs, 3, "both subjects' repeats of a disturbed turn are left out")
		require.Equal(t, []float64{row.Runs[0].Rate, 2 * row.Runs[0].Rate, 3 * row.Runs[0].Rate}, []float64{row.Runs[0].Rate, row.Runs[1].Rate, row.Runs[2].Rate})
	}
	require.Equal(t, 5, theirs.asked)
	require.InDelta(t, 1.5, rows[1].Steal, 1e-9, "the worst that was kept")

	theirs.asked, theirs.steal = 0, slices.Repeat([]float64{50}, 100)
	_, err = all.Measure(context.Background(), Workload{Name: "w", X: 1})
	require.NoError(t, err)
	require.Equal(t, 18, theirs.asked, "it ends on a host that is never quiet")
}

func TestReportTellsRatiosAndWhatIsNotKnown(t *testing.T) {
	rows, err := turns().Measure(context.Background(), Workload{Name: "w", X: 1})
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, (&Report{Rows: rows}).Text(&text))
	require.Contains(t, text.String(), "w: ours is 2.00 × as fast as theirs")
	require.Contains(t, text.String(), "3→2 void")
	rows[1].Durability = "some"
	text.Reset()
	require.NoError(t, (&Report{Rows: rows}).Text(&text))
	require.NotContains(t, text.String(), "as fast as", "they promise different things")
	var encoded bytes.Buffer
	require.NoError(t, (&Report{Rows: rows}).JSON(&encoded))
	require.NotContains(t, encoded.String(), "fdatasyncs", "the subject does not tell them")
}

func TestASweepHasItsValues(t *testing.T) {
	sweep, err := ParseSweep("connections=1,2,64")
	require.NoError(t, err)
	report := Report{Sweep: sweep.Name}
	for _, w := range sweep.Points {
		rows, err := turns().Measure(context.Background(), w)
		require.NoError(t, err)
		report.Rows = append(report.Rows, rows...)
	}
	require.Equal(t, 64.0, report.Rows[4].X)
}

func TestParseSweep(t *testing.T) {
	for _, name := range SweepNames() {
		s, err := ParseSweep(name)
		require.NoError(t, err)
		require.NotEmpty(t, s.Points)
		took := s.Limit(3) * time.Duration(3*len(s.Points))
		require.LessOrEqual(t, took, sweepTime)
	}
	for _, bad := range []string{"", "depth", "size=", "size=1,x", "size=0"} {
		_, err := ParseSweep(bad)
		require.Error(t, err, bad)
	}
}
