package controller

import (
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// transferShare is the share of the cluster's partitions whose leadership the controller transfers in
	// a second. The puts of a partition wait while its leadership is transferred, on a busy machine for 150 ms. At
	// 1.5 % a second fewer than 0.25 % of all puts wait. A drain of one of n brokers takes 67/n s, however many
	// partitions there are. The publish p99 during a drain was eleven times that before at 10 %, about twice that at 3 %, and
	// 1.3 times that at 1.5 % (docs/results.md).
	transferShare = 0.015
	// fewTransfers is the least rate, a second: a cluster of a few partitions is not kept waiting.
	fewTransfers = 1
	// transferBurst is the time whose transfers may come in one moment, and two at least: the controller
	// plans a little late.
	transferBurst = 100 * time.Millisecond
	leastBurst    = 2
)

// pace spreads the planned transfers of leaderships over time: a drain, an undrain, a move, and the return to
// the preferred replica. A failover and the planned stop of a broker do not pass here. It is used by
// one goroutine.
type pace struct {
	tokens *rate.Limiter
	last   ident.Partition // the partition of the last transfer
}

// newPace makes a pace that lets the first transfers pass at once.
func newPace() pace { return pace{tokens: rate.NewLimiter(0, leastBurst)} }

// due takes the transfers out of a plan that have to wait. wait is the time until the next one is due, 0 if none
// waits. The turn goes round: the partition after the last one is the next, so that a transfer that
// fails again and again does not delay the others.
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
		wait = time.Duration(missing*float64(time.Second)) + time.Microsecond // more than a token's rounding
	}
	return due, wait
}
