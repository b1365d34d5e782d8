package once

import (
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/chaos"
)

func TestMain(m *testing.M) { chaos.Main(m) }

// TestChaosOnce runs LOCKSTEP_FAULTS faults, two at a time: 4, and 100 in the long form. LOCKSTEP_SEED repeats their plan.
func TestChaosOnce(t *testing.T) {
	faults := 4
	if env.Long() {
		faults = 100
	}
	seed := env.Number(t, "LOCKSTEP_SEED", uint64(time.Now().Unix()))
	t.Logf("seed %d", seed)
	chaos.RunOnce(t, seed, env.Number(t, "LOCKSTEP_FAULTS", faults))
}
