package bench

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// constant is a subject that is always as fast.
type constant struct {
	name string
	rate float64
	isr  int
}

func (c constant) Label() string                     { return c.name }
func (c constant) Durability(context.Context) string { return "none" }

func (c constant) Repeat(_ context.Context, w Workload, row *Row, progress func(int)) error {
	if w.Kind == Idle {
		return nil
	}
	row.SawISR(3, 3)
	row.SawISR(c.isr, 3)
	n := float64(len(row.Runs)) // 0, 1, 2
	row.Runs = append(row.Runs, Run{Messages: 100, Took: time.Second, Rate: c.rate * (n + 1) * w.X, P50: time.Duration(w.X) * time.Millisecond, CPU: time.Second})
	progress(100)
	return nil
}

func turns() Turns {
	return Turns{Subjects: []Subject{constant{"ours", 100, 3}, constant{"theirs", 50, 2}}, Repeats: 3, Progress: &bytes.Buffer{}}
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
	require.Empty(t, rows, "nobody has such a thing")
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

func TestSweepsDrawCurves(t *testing.T) {
	sweep, err := ParseSweep("connections=1,2,64")
	require.NoError(t, err)
	report := Report{Sweep: sweep.Name}
	for _, w := range sweep.Points {
		rows, err := turns().Measure(context.Background(), w)
		require.NoError(t, err)
		report.Rows = append(report.Rows, rows...)
	}
	require.Equal(t, 64.0, report.Rows[4].X)
	for _, kind := range []string{"connections", ""} { // curves, bars
		report.Sweep = kind
		name := filepath.Join(t.TempDir(), "drawn.svg")
		require.NoError(t, report.Draw(name))
		drawn, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Contains(t, string(drawn), "<svg")
	}
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
