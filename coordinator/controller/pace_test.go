package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// transfers is a plan that transfers these partitions' leaderships.
func transfers(numbers ...uint16) (steps []plan.Action) {
	for _, n := range numbers {
		steps = append(steps, plan.TransferLeadership{Partition: ident.Partition{Number: n}, From: "a", To: "b"})
	}
	return steps
}

// upTo lists the numbers below n.
func upTo(n int) (all []uint16) {
	for i := range n {
		all = append(all, uint16(i))
	}
	return all
}

// TestTransfersArePaced: 1.5 % of the partitions a second, however often the controller plans, and one of a few.
// The wait that is returned is long enough for the next one, and no longer than it takes.
func TestTransfersArePaced(t *testing.T) {
	for _, x := range []struct{ partitions, transfers, perSecond, burst int }{
		{200, 60, 3, 2}, {10_000, 2_500, 150, 15}, {6, 6, 1, 2},
	} {
		for name, step := range map[string]time.Duration{"waits": 0, "changes": 10 * time.Millisecond} {
			p, began := newPace(), time.Now()
			now, left := began, transfers(upTo(x.transfers)...)
			for len(left) > 0 {
				due, wait := p.due(now, left, x.partitions)
				require.LessOrEqual(t, len(due), x.burst, "%+v", x)
				left = left[len(due):]
				require.Equal(t, len(left) == 0, wait == 0, "%+v", x)
				if step > 0 {
					wait = step
				}
				now = now.Add(wait)
			}
			require.InDelta(t, float64(x.transfers-x.burst)/float64(x.perSecond), now.Sub(began).Seconds(), 0.6, "%s: %+v", name, x)
		}
	}
}

// TestPaceHoldsNothingElseUp: all other actions of a plan are due.
func TestPaceHoldsNothingElseUp(t *testing.T) {
	p, now := newPace(), time.Now()
	forget := plan.Forget{Node: "c"}
	due, wait := p.due(now, append(transfers(1, 2, 3), forget), 3)
	require.Equal(t, append([]plan.Action{forget}, transfers(1, 2)...), due)
	require.InDelta(t, time.Second, wait, float64(time.Millisecond))
	due, _ = p.due(now, append(transfers(3), forget), 3)
	require.Equal(t, []plan.Action{forget}, due)
	due, wait = p.due(now, nil, 3)
	require.Empty(t, due)
	require.Zero(t, wait)
}

// TestFailingTransferDelaysNoOther: its partition comes again when it is its turn.
func TestFailingTransferDelaysNoOther(t *testing.T) {
	p, now := newPace(), time.Now()
	var asked []plan.Action
	for len(asked) < 6 {
		due, wait := p.due(now, transfers(3, 5, 8), 3)
		require.NotEmpty(t, due)
		asked, now = append(asked, due...), now.Add(wait)
	}
	require.Equal(t, transfers(3, 5, 8, 3, 5, 8), asked)
}
