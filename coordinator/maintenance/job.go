package maintenance

import (
	"context"
	"time"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// Job is one kind of periodic work. It waits for nothing between two looks.
type Job struct {
	// Every is the pause between two runs.
	Every time.Duration
	// Wake starts a run at once; nil = the pause alone.
	Wake <-chan struct{}
	// Run does the work that there is. It returns when ctx ends.
	Run func(ctx context.Context)
}

// Runner runs jobs, each in a goroutine of its own, in a group that ends and waits for
// them.
type Runner struct{ Group *concurrency.Group }

// Start runs jobs until the group ends. A look that takes longer than the pause delays
// the next.
func (r Runner) Start(jobs ...Job) {
	for _, j := range jobs {
		r.Group.Go(j.run)
	}
}

func (j Job) run(ctx context.Context) {
	tick := time.NewTicker(j.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.Wake:
		case <-tick.C:
		}
		j.Run(ctx)
	}
}
