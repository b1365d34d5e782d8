package nsqd

import (
	"context"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// policies are those that the reference is run with.
var policies = []Policy{{}, {MaxAttempts: 2}, {MaxAttempts: 3, Backoff: Backoff{BaseMS: 10, Factor: 2, MaxMS: 30}}}

// retry is what becomes of a delivery that failed.
func (r *reference) retry(seq int, delayMS int64) {
	r.back(seq)
	f := &r.fates[seq]
	if delayMS = max(delayMS, r.policy.Backoff.delayMS(uint16(f.attempts))); delayMS > 0 && !r.ordered && !r.dies(seq) {
		f.place, f.deadline = inDeferred, r.clock.now()+delayMS*nsPerMS
	}
}

// dies: it may not be delivered any more.
func (r *reference) dies(i int) bool {
	return r.policy.MaxAttempts > 0 && r.fates[i].attempts >= int(r.policy.MaxAttempts)
}

// dying: a message that failed too often is still in the queue.
func (r *reference) dying() bool {
	for i := r.start; i < r.limit; i++ {
		if r.fates[i].place == inLog && r.dies(i) {
			return true
		}
	}
	return false
}

// expired: it has outlived its limit or the topic's.
func (r *reference) expired(i int) bool {
	f, age := &r.fates[i], r.clock.now()-r.fates[i].since
	return f.life > 0 && age >= f.life || r.ttl > 0 && age >= r.ttl*nsPerMS
}

// adopt takes over what the channel may do sooner or later: finish what has
// expired, bury what failed too often (also one that could not be moved, when
// the next leader has not heard of its rest).
func (r *reference) adopt() {
	c := r.channel
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range r.fates {
		f, seq := &r.fates[i], ident.Sequence(i)
		if i < r.start || i >= r.limit || f.place != inLog && f.place != inDeferred {
			continue
		}
		if f.place == inLog && r.expired(i) && c.cursor.settled(seq) && !c.cursor.aside.has(seq) {
			f.place, f.again = done, true
		}
		if x, ok := c.flights.bySeq[seq]; ok && x.sub == &c.grave && r.dies(i) {
			f.place, f.sub, f.deadline = inFlight, grave, x.deadline
		}
	}
}

// bury moves dead messages away, or fails to.
func (r *reference) bury(t *rapid.T) {
	for _, d := range r.channel.Dead() {
		f := &r.fates[d.Message.Seq]
		require.Equal(t, fate{place: inFlight, sub: grave}, fate{place: f.place, sub: f.sub})
		require.Equal(t, f.attempts, int(d.Message.Attempts))
		if rapid.Bool().Draw(t, "moved") {
			require.NoError(t, r.channel.Buried(d.Message.Seq, d.Epoch))
			f.place = done
			continue
		}
		r.channel.Exhumed(d.Message.Seq)
		f.place, f.deadline = inDeferred, r.clock.now()+1000*nsPerMS
	}
}

// cancel finishes a deferred message; others it leaves alone.
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
	_ = r.OrderChannel(context.Background(), "c", r.ordered) // it leads, and the channel is there
}

// carriedOn is a delivery that was under way when the leader changed.
type carriedOn struct{ seq, sub, attempts int }

func (r *reference) flying() (all []carriedOn) {
	for i, f := range r.fates {
		if f.place == inFlight && f.sub >= 0 {
			all = append(all, carriedOn{i, f.sub, f.attempts + 1})
		}
	}
	return all
}

// rejoin lets relays take up deliveries of the old leader again, or finish them.
func (r *reference) rejoin(t *rapid.T, flying []carriedOn) {
	const forget, reclaim, finish = 0, 1, 2
	for _, x := range flying {
		f, s := &r.fates[x.seq], r.subs[x.sub]
		switch rapid.IntRange(forget, finish).Draw(t, "rejoin") {
		case reclaim:
			busy := slices.ContainsFunc(r.fates, func(f fate) bool { return f.place == inFlight })
			refused := r.channel.Reclaim(s, []Held{{Sequence: ident.Sequence(x.seq), Attempts: uint16(x.attempts)}})
			require.Equal(t, r.ordered && busy, len(refused) == 1)
			if len(refused) == 0 {
				f.place, f.again, f.sub, f.start = inFlight, true, x.sub, r.clock.now()
				f.deadline = f.start + refTimeoutMS*nsPerMS
			}
		case finish:
			require.NoError(t, r.channel.Finish(s, ident.Sequence(x.seq), r.epoch-1))
			f.place, f.again = done, true
		}
	}
}
