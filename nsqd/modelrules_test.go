package nsqd

import (
	"context"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

// policies are the policies of the reference runs.
var policies = []Policy{{}, {MaxAttempts: 2}, {MaxAttempts: 3, Backoff: option.Backoff{BaseMS: 10, Factor: 2, MaxMS: 30}, DeadLetters: true}, {DeadLetters: true}}

// retry is the state of a message after a failed delivery.
func (r *reference) retry(seq int, delayMS int64) {
	r.back(seq)
	f := &r.fates[seq]
	if delayMS = max(delayMS, r.policy.Backoff.DelayMS(uint16(f.attempts))); delayMS > 0 && !r.isDead(seq) {
		f.place, f.deadline, f.released = inDeferred, r.clock.now()+delayMS*nsPerMS, false
	}
}

// retrying reports whether a failed message waits for its next delivery.
func (r *reference) retrying() bool {
	for i, f := range r.fates {
		if i < r.limit && f.place == inDeferred && f.attempts > 0 && !f.released && !r.isDead(i) {
			return true
		}
	}
	return false
}

// isDead reports whether the message may not be delivered any more.
func (r *reference) isDead(i int) bool {
	return r.policy.MaxAttempts > 0 && r.fates[i].attempts >= int(r.policy.MaxAttempts)
}

// hasDead reports whether a dead message is still in the queue.
func (r *reference) hasDead() bool {
	for i := r.start; i < r.limit; i++ {
		if r.fates[i].place == inLog && r.dies(i) {
			return true
		}
	}
	return false
}

// expired reports whether the message has outlived its limit or the topic's.
func (r *reference) expired(i int) bool {
	f, age := &r.fates[i], r.clock.now()-r.fates[i].since
	return f.life > 0 && age >= f.life || r.ttl > 0 && age >= r.ttl*nsPerMS
}

// dies reports whether the message goes to the dead letters instead of being delivered: it has used up
// its attempts, or it has failed and then expired.
func (r *reference) dies(i int) bool {
	return r.isDead(i) || r.policy.DeadLetters && r.fates[i].attempts > 0 && r.expired(i)
}

// adopt accepts changes that the channel may make at any time: it finishes expired messages, and
// puts dead ones into the dead-letter hold (also one whose move failed, if the next leader does not
// have its delay).
func (r *reference) adopt() {
	c := r.channel
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range r.fates {
		f, seq := &r.fates[i], ident.Sequence(i)
		if i < r.start || i >= r.limit || f.place != inLog && f.place != inDeferred {
			continue
		}
		if f.place == inLog && r.expired(i) && !r.dies(i) && c.cursor.Settled(seq) && !c.cursor.Deferred.Has(seq) {
			f.place, f.again = done, true
		}
		if x, ok := c.inFlight.bySeq[seq]; ok && x.sub == &c.dead.hold && r.dies(i) {
			f.place, f.sub, f.deadline = inFlight, deadHold, x.deadline
		}
	}
}

// moveDead moves dead messages to the dead letters, or fails to.
func (r *reference) moveDead(t *rapid.T) {
	for _, d := range r.channel.DeadLetters() {
		f := &r.fates[d.Message.Seq]
		require.Equal(t, fate{place: inFlight, sub: deadHold}, fate{place: f.place, sub: f.sub})
		require.Equal(t, f.attempts, int(d.Message.Attempts))
		if rapid.Bool().Draw(t, "moved") {
			require.NoError(t, r.channel.DeadMoved(r.channel.of(d.Message.Seq, d.Epoch)))
			f.place = done
			continue
		}
		r.channel.ReleaseDead(r.channel.of(d.Message.Seq, 0))
		f.place, f.deadline, f.released = inDeferred, r.clock.now()+1000*nsPerMS, true
	}
}

// cancel finishes a deferred message and ignores others.
func (r *reference) cancel(t *rapid.T) {
	if len(r.fates) == 0 {
		t.Skip("nothing published")
	}
	seq := rapid.IntRange(0, len(r.fates)-1).Draw(t, "seq")
	n, err := r.CancelDeferred(context.Background(), "c", []ident.Sequence{ident.Sequence(seq)})
	require.NoError(t, err)
	if f := &r.fates[seq]; f.place == inDeferred {
		require.Equal(t, 1, n)
		f.place = done
		return
	}
	require.Zero(t, n)
}

// order makes the channel ordered, or unordered.
func (r *reference) order(*rapid.T) {
	r.ordered = !r.ordered
	r.forgetReleases()
	_ = r.OrderChannel(context.Background(), "c", r.ordered) // it leads, and the channel exists
}

// forgetReleases: the channel finds in its state what waits for a redelivery. A message whose move to the
// dead letters failed is then one of them, unless it has used up its attempts.
func (r *reference) forgetReleases() {
	for i := range r.fates {
		r.fates[i].released = false
	}
}

// oldDelivery is a delivery that was in flight when the leader changed.
type oldDelivery struct {
	seq, sub int
	receipt  Receipt
}

func (r *reference) oldDeliveries() (all []oldDelivery) {
	for i, f := range r.fates {
		if f.place == inFlight && f.sub >= 0 {
			all = append(all, oldDelivery{i, f.sub, f.receipt})
		}
	}
	return all
}

// stale uses a receipt of a delivery that has ended: it is refused, and the check after it finds nothing
// changed.
func (r *reference) stale(t *rapid.T) {
	if len(r.given) == 0 {
		return
	}
	x := rapid.SampledFrom(r.given).Draw(t, "receipt")
	if f := &r.fates[x.Sequence]; f.place == inFlight && f.sub != deadHold && f.receipt == x {
		return // it has not ended
	}
	var errs []error
	for _, s := range r.subs {
		errs = append(errs, r.channel.Requeue(s, x, 0), r.channel.Touch(s, x), r.channel.Undo(s, x), r.channel.Return(s, x), r.channel.AwaitTimeout(s, x))
		if x.Epoch == r.leadership.epoch { // a finish of an earlier epoch may count
			errs = append(errs, r.channel.Finish(s, x))
		}
	}
	errs = append(errs, r.channel.Finish(nil, x), r.channel.Requeue(nil, x, 0), r.channel.Touch(nil, x))
	for _, err := range errs {
		require.True(t, err == outcome.ErrNotInFlight || err == outcome.ErrNotOwner, "%v", err)
	}
}

// rejoin lets relays reclaim deliveries of the old leader, or finish them.
func (r *reference) rejoin(t *rapid.T, old []oldDelivery) {
	const forget, reclaim, finish = 0, 1, 2
	for _, x := range old {
		f, s := &r.fates[x.seq], r.subs[x.sub]
		switch rapid.IntRange(forget, finish).Draw(t, "rejoin") {
		case reclaim:
			busy := slices.ContainsFunc(r.fates, func(f fate) bool { return f.place == inFlight })
			refused := r.channel.Reclaim(s, []Receipt{x.receipt})
			require.Equal(t, r.ordered && busy, len(refused) == 1)
			if len(refused) == 0 {
				f.place, f.again, f.sub, f.start = inFlight, true, x.sub, r.clock.now()
				f.deadline = f.start + refTimeoutMS*nsPerMS
			}
		case finish:
			require.NoError(t, r.channel.FinishLate(s, x.receipt))
			f.place, f.again = done, true
		}
	}
}
