package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestVigilJudgesPutsThatAreTried: all producers failed at a broker once, and then waited at one that was cut off.
// That is no fault of the first broker, where nobody tried. A put that fails, or waits, when service is due is one.
func TestVigilJudgesPutsThatAreTried(t *testing.T) {
	const limit = 7 * time.Second
	for name, c := range map[string]struct {
		at     func(v *vigil, b *broker, now time.Time)
		faults int
	}{
		"nobody tries":       {func(*vigil, *broker, time.Time) {}, 0},
		"a put has begun":    {func(v *vigil, b *broker, now time.Time) { v.tries(b).began = now.Add(-time.Second / 2) }, 0},
		"a put waits":        {func(v *vigil, b *broker, now time.Time) { v.tries(b).began = now.Add(-2 * time.Second) }, 1},
		"a put fails":        {func(v *vigil, b *broker, _ time.Time) { v.answered(v.tries(b), judge.Refused) }, 1},
		"a put is answered":  {func(v *vigil, b *broker, _ time.Time) { v.answered(v.tries(b), judge.OK) }, 0},
		"a put waits nearby": {func(v *vigil, _ *broker, now time.Time) { v.tries(v.brokers[1]).began = now.Add(-2 * time.Second) }, 0},
		"answered, and fails": {func(v *vigil, b *broker, _ time.Time) {
			v.answered(v.tries(b), judge.OK)
			v.answered(v.tries(b), judge.Refused)
		}, 0},
	} {
		v := newVigil(&cluster{brokers: []*broker{{name: "n1"}, {name: "n2"}}})
		now := time.Now()
		since, first := now.Add(-limit-time.Second), v.tries(v.brokers[0])
		v.answered(first, judge.Refused)
		v.failing["n1"], v.failed["n1"] = since.Add(-time.Second), since.Add(-time.Second)
		c.at(v, v.brokers[0], now)
		v.able[1] = since
		v.serves(now.Add(time.Millisecond), 3, since, limit)
		require.Len(t, v.faults, c.faults, name)
	}
}

// TestVigilJudgesCommitsThatAreTried: a partition that commits nothing shows a fault only if a put fails or waits at
// a broker of the set.
func TestVigilJudgesCommitsThatAreTried(t *testing.T) {
	now, limit := time.Now(), 7*time.Second
	since := now.Add(-limit - time.Second)
	for _, failed := range []bool{false, true} {
		v := newVigil(&cluster{brokers: []*broker{{name: "n1"}, {name: "n2"}}})
		v.able[3], v.commits[0] = since, &commitWatch{moved: since}
		if failed {
			v.failed["n2"] = now
		}
		v.serves(now, 3, since, limit)
		require.Equal(t, failed, len(v.faults) == 1)
	}
}
