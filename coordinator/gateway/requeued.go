package gateway

import (
	"maps"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// A leader does not acknowledge a requeue. If it dies before another replica has the requeue, the next leader would
// redeliver the message at once instead of after its delay. So the edge sends recent requeues with a delay again to the
// next leader, which ignores those that it already has. The delay is the time that remains until the message is due.

const (
	// requeueMemory is how long a requeue is remembered: longer than a leader continues to serve without its replicas,
	// and longer than the detection of a dead leader takes.
	requeueMemory = 10 * time.Second
	maxRequeues   = 1024 // remembered for a subscription in a partition
)

// clientVerb is a finish or requeue with the time at which the client made it.
type clientVerb struct {
	wire.Verb
	at     time.Duration
	resent bool // an earlier leader has also received it, so a refusal means that the requeue is done
}

func (v clientVerb) isDelayed() bool { return v.Kind == wire.VerbRequeue && v.Argument > 0 }

func (v clientVerb) due(now time.Duration) wire.Verb {
	if v.isDelayed() {
		v.Argument = max(v.Argument-(now-v.at).Milliseconds(), 1)
	}
	return v.Verb
}

// passedLocked notes that a leader has received a verb.
func (h *partitionSubscription) passedLocked(v clientVerb) {
	if !v.isDelayed() {
		return
	}
	if len(h.requeued) >= maxRequeues {
		h.forgetRequeuesLocked()
	}
	if len(h.requeued) >= maxRequeues {
		return
	}
	if h.requeued == nil {
		h.requeued = map[ident.Sequence]clientVerb{}
	}
	h.requeued[v.Sequence] = v
}

// forgetRequeuesLocked forgets the requeues that any later leader has, or whose delay is over.
func (h *partitionSubscription) forgetRequeuesLocked() {
	now := h.sub.g.now()
	maps.DeleteFunc(h.requeued, func(_ ident.Sequence, v clientVerb) bool {
		return now-v.at >= min(requeueMemory, time.Duration(v.Argument)*time.Millisecond)
	})
}

// resendLocked adds the recent requeues to the backlog, because their leader may have died.
func (h *partitionSubscription) resendLocked() {
	h.forgetRequeuesLocked()
	for _, seq := range slices.Sorted(maps.Keys(h.requeued)) {
		v := h.requeued[seq]
		v.resent = true
		h.backlog = append(h.backlog, v)
	}
	h.requeued = nil
}

// wasResentLocked reports whether a refused verb is a requeue that was sent again.
func (h *partitionSubscription) wasResentLocked(v wire.Verb) bool {
	x := h.requeued[v.Sequence]
	return x.resent && x.Epoch == v.Epoch && x.Number == v.Number
}
