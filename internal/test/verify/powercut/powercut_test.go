package powercut

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// sequences is how many cuts are looked at: LOCKSTEP_SEQUENCES in a long run.
func sequences(t *testing.T, otherwise int) int {
	return env.Number(t, "LOCKSTEP_SEQUENCES", otherwise)
}

// firstSeed is LOCKSTEP_SEED, with which a history is also printed. The scheduler of the
// stores' goroutines is not seeded: a seed may have to be tried several times.
func firstSeed(t *testing.T) uint64 { return env.Number(t, "LOCKSTEP_SEED", uint64(1)) }

// tally counts what many histories reached.
type tally struct {
	cuts, twice int
	writes      map[queue.WriteKind]int
	outcomes    [outcome.InDoubt + 1]int
}

func newTally() tally { return tally{writes: map[queue.WriteKind]int{}} }

func (a *tally) add(w *world) {
	for k, n := range w.seen {
		a.writes[k] += n
	}
	for o, n := range w.client.outcomes {
		a.outcomes[o] += n
	}
}

const (
	// lead is how many steps a history may take before its cuts begin: half of
	// the histories are young, half are old.
	lead = 400
	// perHistory is about how many cuts are taken of one history.
	perHistory = 50
)

// run takes one history and, from some step on, a cut at each of its syncs. It
// looks at each cut, and stops at the first that is wrong.
func run(w *world, seed uint64, a *tally) error {
	defer w.close()
	if err := w.found(); err != nil {
		return err
	}
	if w.rng.IntN(2) == 0 {
		if err := w.history(w.rng.IntN(lead)); err != nil {
			return err
		}
	}
	w.supply.arm(true)
	for end := a.cuts + perHistory; a.cuts < end; {
		if err := w.history(1); err != nil {
			return err
		}
		for _, c := range w.supply.take() {
			a.cuts++
			again := a.cuts%16 == 0
			if again {
				a.twice++
			}
			if err := c.verify(seed<<20+uint64(a.cuts), again); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestAllAtOnce takes the power from all three brokers at every sync point of
// random histories: nothing that was answered may be lost.
func TestAllAtOnce(t *testing.T) {
	want := sequences(t, 200)
	a := newTally()
	for seed := firstSeed(t); a.cuts < want; seed++ {
		w := newWorld(seed, known{strict: true})
		err := run(w, seed, &a)
		a.add(w)
		require.NoError(t, err, "seed %d%s", seed, w.story.String())
	}
	t.Logf("%d cuts of all three, %d of them followed by cuts in the recovery; writes %v; outcomes %v", a.cuts, a.twice, a.writes, a.outcomes)
}
