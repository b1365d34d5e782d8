package bench

import (
	"context"
	"io"
	"slices"

	"github.com/schollz/progressbar/v3"
)

// Subject is a measured broker or cluster, with a client for it.
type Subject interface {
	// Label returns the name in the report.
	Label() string
	// Durability returns the meaning of an acknowledgement; "" if it is unknown.
	Durability(ctx context.Context) string
	// Repeat runs a workload once and adds its Run and the circumstances to the row. It adds
	// no Run if the subject does not support the workload.
	Repeat(ctx context.Context, w Workload, row *Row, progress func(percent int)) error
}

// Turns measures workloads with several subjects.
type Turns struct {
	Subjects []Subject
	Repeats  int       // of each workload with each subject
	MaxSteal float64   // percent of the processors' time that the machine's host may take in a turn; 0: no limit
	Progress io.Writer // for the progress bar; io.Discard: none
}

// againAtMost bounds how often a disturbed turn is repeated, for each requested repeat.
const againAtMost = 5

// disturbed reports whether the host took too much time in a subject's last repeat.
func (t Turns) disturbed(rows []Row) bool {
	return t.MaxSteal > 0 && slices.ContainsFunc(rows, func(r Row) bool {
		return len(r.Runs) > 0 && r.Runs[len(r.Runs)-1].Steal > t.MaxSteal
	})
}

// Measure repeats one workload with all subjects in turn, so that other load of the machine
// affects them alike. It returns a row for each subject that supports the workload.
func (t Turns) Measure(ctx context.Context, w Workload) (rows []Row, err error) {
	bar := progressbar.NewOptions(100*t.Repeats*len(t.Subjects), progressbar.OptionSetWriter(t.Progress),
		progressbar.OptionSetDescription(w.Name), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false))
	defer bar.Finish()
	all := make([]Row, len(t.Subjects))
	for k, s := range t.Subjects {
		all[k] = Row{Workload: w.Name, X: w.X, Subject: s.Label(), Durability: s.Durability(ctx), size: w.Size}
	}
	again := againAtMost * t.Repeats // turns
	for i := 0; i < t.Repeats; i++ {
		before := slices.Clone(all)
		for k, s := range t.Subjects {
			progress := func(percent int) { _ = bar.Set(100*(i*len(t.Subjects)+k) + percent) }
			if err := s.Repeat(ctx, w, &all[k], progress); err != nil {
				return nil, err
			}
		}
		if t.disturbed(all) && again > 0 {
			all, again, i = before, again-1, i-1
		}
	}
	for k := range all {
		if len(all[k].Runs) > 0 {
			all[k].summarise()
			rows = append(rows, all[k])
		}
	}
	return rows, nil
}
