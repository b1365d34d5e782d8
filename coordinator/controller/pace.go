package controller

import (
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// transferShare is the share of the cluster's partitions whose leadership the controller transfers per second.
	// During a transfer the partition's puts wait, on a busy machine for 150 ms, so at 1.5 % a second fewer than 0.25 %
	// of all puts wait. A drain of one of n brokers takes 67/n s, however many partitions there are. During a drain the
	// publish p99 rose to 11 times at 10 %, to about twice at 3 %, and to 1.3 times at 1.5 % (docs/results.md).
	transferShare = 0.015
	// fewTransfers is the least rate per second, for clusters with few partitions.
	fewTransfers = 1
	// transferBurst is the burst, as the time whose transfers may start together, at least leastBurst transfers. It
	// compensates for the controller planning a little late.
	transferBurst = 100 * time.Millisecond
	leastBurst    = 2
)

// pace spreads the planned transfers of leaderships over time: for a drain, an undrain, a move, and the return to the
// preferred replica. It does not limit failovers and planned stops. It is used by one goroutine.
type pace struct {
	tokens *rate.Limiter
	last   ident.Partition // the partition of the last transfer
}

func newPace() pace { return pace{tokens: rate.NewLimiter(0, leastBurst)} }

// due is the plan without the transfers that have to wait. wait is the time until the next transfer is due, 0 if none
// waits. It is round-robin: the partition after the last transferred one is next, so that a transfer that fails
// repeatedly does not delay the others.
func (p *pace) due(now time.Time, steps []plan.Action, partitions int) (due []plan.Action, wait time.Duration) {
	var transfers []plan.TransferLeadership
	for _, a := range steps {
		if t, ok := a.(plan.TransferLeadership); ok {
			transfers = append(transfers, t)
		} else {
			due = append(due, a)
		}
	}
	perSecond := max(fewTransfers, transferShare*float64(partitions))
	p.tokens.SetLimitAt(now, rate.Limit(perSecond))
	p.tokens.SetBurstAt(now, max(leastBurst, int(perSecond*transferBurst.Seconds())))
	n := min(len(transfers), int(p.tokens.TokensAt(now)))
	p.tokens.AllowN(now, n)
	next := slices.IndexFunc(transfers, func(t plan.TransferLeadership) bool { return t.Partition.Compare(p.last) > 0 })
	for i := range n {
		t := transfers[(max(0, next)+i)%len(transfers)]
		due, p.last = append(due, t), t.Partition
	}
	if n < len(transfers) {
		missing := (1 - p.tokens.TokensAt(now)) / perSecond
		wait = time.Duration(missing*float64(time.Second)) + time.Microsecond // so that the token is there despite rounding
	}
	return due, wait
}
