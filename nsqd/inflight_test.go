package nsqd

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Deliveries time out in the order of their deadlines, even after removals from the middle and
// changed deadlines.
func TestInFlightDeadlinesInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var f inFlightSet
		s := &Subscriber{}
		left := map[ident.Sequence]int64{}
		for seq := range ident.Sequence(60) {
			left[seq] = rng.Int64N(100)
			f.add(delivery{seq: seq, sub: s, deadline: left[seq]})
		}
		for seq := range ident.Sequence(60) {
			switch rng.IntN(3) {
			case 0:
				f.remove(f.bySeq[seq])
				delete(left, seq)
			case 1:
				left[seq] = rng.Int64N(100)
				f.setDeadline(f.bySeq[seq], left[seq])
			}
		}
		for len(left) > 0 {
			x := f.heap[0]
			for _, deadline := range left {
				require.LessOrEqual(t, x.deadline, deadline)
			}
			require.Equal(t, left[x.seq], x.deadline)
			f.remove(x)
			delete(left, x.seq)
		}
		require.Equal(t, never, f.next())
		require.Zero(t, s.inFlight)
	}
}
