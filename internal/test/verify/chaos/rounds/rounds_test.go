package rounds

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/chaos"
)

func TestMain(m *testing.M) { chaos.Main(m) }

const longSeries = 20 // rounds from which every rare event has to have happened

// TestChaos runs LOCKSTEP_ROUNDS rounds; round i follows the plan of seed
// LOCKSTEP_SEED+i, its first fault LOCKSTEP_NEMESIS if set. Pairs of faults follow
// each other until LOCKSTEP_SECONDS are over, at least one. LOCKSTEP_KEEP is where
// logs and data of failed ones stay.
func TestChaos(t *testing.T) {
	chaos.Inside(t)
	rounds := env.Number(t, "LOCKSTEP_ROUNDS", 1)
	first := env.Number(t, "LOCKSTEP_SEED", uint64(time.Now().Unix()))
	var s chaos.Series
	for i := range uint64(rounds) {
		p := chaos.NewPlan(first+i, rounds > 1)
		t.Run(p.String(), func(t *testing.T) {
			o := p.Run(t)
			t.Log(o)
			o.Failed = t.Failed()
			s.Add(p, o)
			fmt.Fprintf(os.Stderr, "%s %s: %s\n", time.Now().Format("15:04:05"), p, o)
		})
	}
	t.Log(s.String())
	fmt.Fprintln(os.Stderr, s.String())
	if rounds >= longSeries {
		s.RequireRough(t)
	}
}
