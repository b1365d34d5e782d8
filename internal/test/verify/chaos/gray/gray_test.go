package gray

import (
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/chaos"
)

func TestMain(m *testing.M) { chaos.Main(m) }

// TestChaosGray: each gray nemesis for some seconds, one after the other, with the checks of
// liveness and the operator's commands. In a long series they are part of the mix.
func TestChaosGray(t *testing.T) {
	chaos.Inside(t)
	t.Log(chaos.NewGrayPlan(env.Number(t, "LOCKSTEP_SEED", uint64(time.Now().Unix()))).Run(t))
}
