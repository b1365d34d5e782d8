package cost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/bench"
)

const (
	turnBursts = 8  // of each cluster in one turn
	leastTurns = 8  // of a row in one round
	roundTurns = 48 // of all rows in one round, if there are few
)

// Builds are the executables of nsqd that are compared, in the order base, head.
type Builds [2]string

// The indices of Builds.
const (
	base = iota
	head
)

// judged is a row with its figures so far.
type judged struct {
	row
	times  []float64            // ratio of each turn
	used   [2][]float64         // nanoseconds of processor time a message in each turn
	counts map[string][]float64 // ratio of each round
}

// verdict is regressed if any figure of the row is, and accepted if all are.
func (j *judged) verdict() verdict {
	all := accepted
	if j.connections > 0 {
		all = judgeTime(j.times)
	}
	for _, ratios := range j.counts {
		if v := judgeCount(ratios); v == regressed || all == accepted {
			all = v
		}
	}
	return all
}

// Limits bound the rounds: none begins after them.
type Limits struct {
	Usual      time.Duration
	Suspicious time.Duration // while the median of a row is above the allowed ratio
}

// suspicious reports whether a median is above the allowed ratio so far.
func (j *judged) suspicious() bool {
	for _, ratios := range j.counts {
		if median(ratios) > allowed {
			return true
		}
	}
	return median(j.times) > allowed
}

// Guard compares two builds.
type Guard struct {
	builds Builds
	limits Limits
	rows   []*judged
	idle   *judged // the bytes that the clusters hold after a round; it has no workload
}

// New returns a guard.
func New(builds Builds, limits Limits) *Guard {
	g := &Guard{builds: builds, limits: limits, idle: &judged{row: row{name: "idle"}, counts: map[string][]float64{}}}
	for _, r := range rows {
		g.rows = append(g.rows, &judged{row: r, counts: map[string][]float64{}})
	}
	return g
}

// Run compares until every row is decided or the time is up.
func (g *Guard) Run(ctx context.Context) error {
	began := time.Now()
	for round := 0; ; round++ {
		open := g.open(time.Since(began))
		if round > 0 && len(open) == 0 && g.idle.verdict() != undecided {
			return nil
		}
		if err := g.round(ctx, round, open); err != nil {
			return fmt.Errorf("cost: %w", err)
		}
	}
}

// open returns the undecided rows whose time is not up.
func (g *Guard) open(elapsed time.Duration) (rows []*judged) {
	for _, j := range g.rows {
		limit := g.limits.Usual
		if j.suspicious() {
			limit = g.limits.Suspicious
		}
		if j.verdict() == undecided && (elapsed < limit || len(j.times) == 0) {
			rows = append(rows, j)
		}
	}
	return rows
}

// round starts both clusters, measures rows and stops them.
func (g *Guard) round(ctx context.Context, round int, rows []*judged) (err error) {
	dir, err := os.MkdirTemp("", "lockstep-cost-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var both [2]*cluster
	for k := range both {
		i := (k + round) % 2
		c, err := start(ctx, g.builds[i], filepath.Join(dir, fmt.Sprint(k)))
		if err != nil {
			return err
		}
		defer c.kill()
		both[i] = c
	}
	for _, j := range rows {
		if err := j.measure(ctx, both, max(leastTurns, roundTurns/len(rows))); err != nil {
			return fmt.Errorf("%s: %w", j.name, err)
		}
	}
	var bytes [2]float64
	for i, c := range both {
		if bytes[i], err = c.held(ctx); err != nil {
			return err
		}
	}
	g.idle.counts[held] = append(g.idle.counts[held], bytes[head]/bytes[base])
	return nil
}

// measure runs turns of a row.
func (j *judged) measure(ctx context.Context, both [2]*cluster, turns int) error {
	var work, fill [2]*clients
	var before, after [2]counters
	for i, c := range both {
		if err := c.create(ctx, j.names()); err != nil {
			return err
		}
		var err error
		if work[i], err = connect(ctx, j.row, c.tcp); err != nil {
			return err
		}
		defer work[i].close()
		if j.consume {
			if fill[i], err = connect(ctx, j.backlog(), c.tcp); err != nil {
				return err
			}
			defer fill[i].close()
			// Messages that wait at one consumer are not delivered to another: there must be more than the turns need.
			if err := fill[i].burst(); err != nil {
				return err
			}
		}
		if before[i], err = c.counters(ctx); err != nil {
			return err
		}
	}
	for turn := range turns {
		if err := j.turn(both, work, fill, turn); err != nil {
			return err
		}
	}
	for i, c := range both {
		var err error
		if after[i], err = c.counters(ctx); err != nil {
			return err
		}
	}
	for _, figure := range figures {
		j.counts[figure] = append(j.counts[figure], (after[head][figure]-before[head][figure])/(after[base][figure]-before[base][figure]))
	}
	return ctx.Err()
}

// turn runs bursts at both clusters in the order ABBA.
func (j *judged) turn(both [2]*cluster, work, fill [2]*clients, turn int) error {
	var used [2]float64
	for i := range both {
		if j.consume {
			if err := fill[i].burst(); err != nil {
				return err
			}
		}
	}
	for i, c := range both {
		used[i] = -float64(bench.CPU(c.pids))
	}
	for b := range 2 * turnBursts {
		if err := work[((b+1)/2+turn)%2].burst(); err != nil {
			return err
		}
	}
	for i, c := range both {
		used[i] += float64(bench.CPU(c.pids))
		j.used[i] = append(j.used[i], used[i]/float64(turnBursts*j.messages()))
	}
	if used[base] <= 0 {
		return errors.New("this system does not report the processor time of other processes")
	}
	j.times = append(j.times, used[head]/used[base])
	return nil
}

// Regressed returns the names of the rows that cost too much.
func (g *Guard) Regressed() []string { return g.with(regressed) }

// Undecided returns the names of the rows that are not decided.
func (g *Guard) Undecided() []string { return g.with(undecided) }

func (g *Guard) with(v verdict) (names []string) {
	for _, j := range append(g.rows, g.idle) {
		if j.verdict() == v {
			names = append(names, j.name)
		}
	}
	return names
}

// Report writes the table of all rows.
func (g *Guard) Report(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(t, "row\tCPU ns/message\tratio\t95 % interval\tturns\t")
	for _, figure := range figures {
		_, _ = fmt.Fprint(t, figure, "\t")
	}
	_, _ = fmt.Fprintln(t, held+"\t\t")
	for _, j := range append(g.rows, g.idle) {
		if j.connections > 0 {
			low, high := interval(j.times, wronglyAccepted/2)
			_, _ = fmt.Fprintf(t, "%s\t%.0f → %.0f\t%s\t%s … %s\t%d\t", j.name, median(j.used[base]), median(j.used[head]), percent(median(j.times)), percent(low), percent(high), len(j.times))
		} else {
			_, _ = fmt.Fprintf(t, "%s\t\t\t\t\t", j.name)
		}
		for _, figure := range append(figures[:], held) {
			text := ""
			if ratios := j.counts[figure]; len(ratios) > 0 {
				text = percent(median(ratios))
			}
			_, _ = fmt.Fprint(t, text, "\t")
		}
		_, _ = fmt.Fprintf(t, "%s\t\n", [...]string{undecided: "undecided", accepted: "ok", regressed: "REGRESSED"}[j.verdict()])
	}
	return t.Flush()
}

// percent formats a ratio as a change.
func percent(ratio float64) string { return fmt.Sprintf("%+.1f %%", 100*(ratio-1)) }
