package nsqd

import (
	"context"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// place is the place of a message.
type place uint8

const (
	inLog place = iota // depth, redeliveries included
	inFlight
	inDeferred
	done
)

// fate is the state of one message in the reference.
type fate struct {
	place    place
	again    bool // it was deferred: a read ahead does not return it
	attempts int  // before the present delivery
	deadline int64
	start    int64
	sub      int
	put      int64 // deliver-at
	since    int64 // when its life began
	life     int64 // its own limit, ns; 0 = none
	receipt  Receipt
	released bool // its move to the dead letters failed: an ordered channel does not wait for it
}

// Holders of a message in flight other than a subscriber.
const (
	noSubscriber = -1 // its subscriber has left
	deadHold     = -2 // in the dead-letter hold
)

// reference is a channel as a flat list: slow and simple.
type reference struct {
	*rig
	channel *Channel
	subs    []*Subscriber
	ordered bool
	start   int
	limit   int
	paused  bool
	topic   bool // topic paused
	fates   []fate
	// An ordered finish that is not replicated yet.
	pending     int
	follower    *Partition // receives every delta
	fed         int
	relocations int
	given       []Receipt // of all deliveries
	policy      Policy
	ttl         int64 // of the topic, ms; 0 = none
}

const refTimeoutMS = 50

func (r *reference) attach(t *rapid.T) {
	r.subs = nil
	for range 3 {
		s := &Subscriber{Direct: true, MsgTimeoutMS: refTimeoutMS}
		require.NoError(t, r.channel.Attach(s))
		r.subs = append(r.subs, s)
	}
}

// publish puts a few messages, some with a delay.
func (r *reference) publish(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		m := queue.Message{Time: r.clock.now(), Body: []byte("x")}
		if rapid.IntRange(0, 4).Draw(t, "delayed") == 0 {
			m.DeliverAt = r.clock.now() + rapid.Int64Range(1, 80).Draw(t, "delay")*nsPerMS
		}
		f := fate{put: m.DeliverAt, since: max(m.Time, m.DeliverAt)}
		if rapid.IntRange(0, 4).Draw(t, "mortal") == 0 {
			ms := rapid.Int64Range(1, 200).Draw(t, "life")
			m.Header, f.life = fmt.Appendf(nil, `{"##ttl_ms":%d}`, ms), ms*nsPerMS
		}
		r.log.publish(m)
		r.fates = append(r.fates, f)
	}
	r.Advance(r.log.Committed())
	if !r.topic {
		r.limit = len(r.fates)
	}
}

// prescanAll does what the statistics do: it defers delayed messages.
func (r *reference) prescanAll() {
	for i := r.start; i < r.limit; i++ {
		f := &r.fates[i]
		if f.place == inLog && !f.again && f.put > r.clock.now() {
			f.place, f.again, f.deadline = inDeferred, true, f.put
		}
	}
}

func (r *reference) deliverable(i int) bool {
	if r.paused || i >= r.limit || i < r.start || r.fates[i].place != inLog || r.expired(i) || r.isDead(i) {
		return false
	}
	return !r.ordered || r.pending == 0 && !slices.ContainsFunc(r.fates, func(f fate) bool { return f.place == inFlight }) && !r.retrying()
}

func (r *reference) pull(t *rapid.T) {
	sub, credit := rapid.IntRange(0, 2).Draw(t, "sub"), rapid.IntRange(0, 4).Draw(t, "credit")
	got := r.channel.Pull(r.subs[sub], credit, nil)
	require.LessOrEqual(t, len(got), credit)
	for _, d := range got {
		i := int(d.Message.Seq)
		f := &r.fates[i]
		require.True(t, r.deliverable(i), "message %d: %+v", i, *f)
		if r.ordered && f.put == 0 { // delayed messages come when they are due
			for j := r.start; j < i; j++ {
				require.False(t, r.fates[j].place == inLog && r.fates[j].put == 0 && !r.expired(j), "%d before %d", i, j)
			}
		}
		require.Equal(t, f.attempts+1, int(d.Message.Attempts))
		require.Equal(t, api.MessageIDOf(testID, d.Message.Seq), d.ID)
		f.place, f.sub, f.start, f.receipt = inFlight, sub, r.clock.now(), ReceiptOf(&d)
		r.given = append(r.given, f.receipt)
		f.deadline = f.start + refTimeoutMS*nsPerMS
	}
	if len(got) < credit && !(r.ordered && r.hasDead()) {
		for i := range r.fates {
			require.False(t, r.deliverable(i), "message %d was left", i)
		}
	}
}

// held draws a message and a subscriber, mostly its own.
func (r *reference) held(t *rapid.T) (seq, sub int) {
	if len(r.fates) == 0 {
		t.Skip("nothing published")
	}
	var isInFlight []int
	for i, f := range r.fates {
		if f.place == inFlight && f.sub >= 0 {
			isInFlight = append(isInFlight, i)
		}
	}
	if len(isInFlight) > 0 && rapid.IntRange(0, 9).Draw(t, "fits") > 0 {
		seq = rapid.SampledFrom(isInFlight).Draw(t, "seq")
		return seq, r.fates[seq].sub
	}
	return rapid.IntRange(0, len(r.fates)-1).Draw(t, "any seq"), rapid.IntRange(0, 2).Draw(t, "any sub")
}

func (r *reference) wantError(seq, sub int) error {
	switch f := r.fates[seq]; {
	case f.place != inFlight:
		return outcome.ErrNotInFlight
	case f.sub != sub:
		return outcome.ErrNotOwner
	}
	return nil
}

func (r *reference) finish(t *rapid.T) {
	seq, sub := r.held(t)
	if r.ordered {
		r.rep.hold = true
	}
	err := r.channel.Finish(r.subs[sub], r.channel.of(ident.Sequence(seq), 0))
	r.rep.hold = false
	require.Equal(t, r.wantError(seq, sub), err)
	if err != nil {
		return
	}
	r.fates[seq].place, r.fates[seq].again = done, true
	if !r.ordered {
		return
	}
	ok := rapid.Bool().Draw(t, "replicated")
	require.Empty(t, r.channel.Pull(r.subs[sub], 1, nil), "ordered: nothing before the finish is confirmed")
	r.rep.answer(ok)
	if !ok {
		r.fates[seq].place = inLog
	}
}

func (r *reference) requeue(t *rapid.T) {
	seq, sub := r.held(t)
	delay := rapid.Int64Range(0, 60).Draw(t, "ms")
	err := r.channel.Requeue(r.subs[sub], r.channel.of(ident.Sequence(seq), 0), delay)
	require.Equal(t, r.wantError(seq, sub), err)
	if err == nil {
		r.retry(seq, delay)
	}
}

func (r *reference) back(seq int) {
	f := &r.fates[seq]
	f.place, f.again, f.attempts = inLog, true, f.attempts+1
}

func (r *reference) touch(t *rapid.T) {
	seq, sub := r.held(t)
	err := r.channel.Touch(r.subs[sub], r.channel.of(ident.Sequence(seq), 0))
	require.Equal(t, r.wantError(seq, sub), err)
	if f := &r.fates[seq]; err == nil {
		f.deadline = min(r.clock.now()+refTimeoutMS*nsPerMS, f.start+80*nsPerMS)
	}
}

func (r *reference) pass(t *rapid.T) {
	r.tick(rapid.Int64Range(1, 40).Draw(t, "ms"))
	for i := range r.fates {
		f := &r.fates[i]
		switch {
		case f.place == inFlight && f.deadline <= r.clock.now():
			r.retry(i, 0)
		case f.place == inDeferred && f.deadline <= r.clock.now():
			f.place = inLog
		}
	}
}

func (r *reference) pauseChannel(t *rapid.T) {
	r.paused = !r.paused
	if r.paused {
		require.NoError(t, r.PauseChannel(context.Background(), "c", true))
		return
	}
	require.NoError(t, r.PauseChannel(context.Background(), "c", false))
}

func (r *reference) pauseTopic(t *rapid.T) {
	r.topic = !r.topic
	if r.topic {
		require.NoError(t, r.PauseTopic(context.Background(), true))
		return
	}
	require.NoError(t, r.PauseTopic(context.Background(), false))
	r.limit = len(r.fates)
}

func (r *reference) seek(t *rapid.T) {
	to := rapid.IntRange(0, r.limit).Draw(t, "to")
	e := r.seekChannel(t, "c", seekTo(ident.Sequence(to)))
	to = max(to, int(r.log.start)) // the log does not reach back further
	var skips, repeats uint64
	for i, f := range r.fates {
		switch {
		case i < to && f.place != done:
			skips++
		case i >= to && f.place == done:
			repeats++
		}
	}
	require.EqualValues(t, to, e.To)
	require.Equal(t, skips, e.Skips, "%+v", e)
	require.Equal(t, repeats, e.Repeats, "%+v", e)
	r.moved(to)
}

// retain trims the log up to where every message is deferred or finished, and relocates the
// deferred ones.
func (r *reference) retain(t *rapid.T) {
	r.relocations++
	r.relocate(t, ident.Offset(r.relocations), max(r.Floor(), r.log.start))
}

func (r *reference) empty(t *rapid.T) {
	require.NoError(t, r.EmptyChannel(context.Background(), "c"))
	r.moved(r.limit)
}

func (r *reference) moved(to int) {
	r.start = min(r.start, to)
	for i := range r.fates {
		if i < to {
			r.fates[i].place = done
		} else {
			r.fates[i] = fate{put: r.fates[i].put, since: r.fates[i].since, life: r.fates[i].life}
		}
	}
}

func (r *reference) detach(t *rapid.T) {
	const keep, requeue, withdraw = 0, 1, 2
	sub, how := rapid.IntRange(0, 2).Draw(t, "sub"), rapid.IntRange(keep, withdraw).Draw(t, "how")
	if how == withdraw {
		r.channel.Withdraw(r.subs[sub])
	} else {
		r.channel.Detach(r.subs[sub], how == requeue)
	}
	r.subs[sub] = &Subscriber{Direct: true, MsgTimeoutMS: refTimeoutMS}
	require.NoError(t, r.channel.Attach(r.subs[sub]))
	for i := range r.fates {
		if f := &r.fates[i]; f.place == inFlight && f.sub == sub {
			f.sub = noSubscriber
			if how != keep {
				r.back(i)
			}
			if how == withdraw {
				f.attempts--
			}
		}
	}
}

// feed gives the follower the deltas since the last time.
func (r *reference) feed() {
	for ; r.fed < len(r.rep.deltas); r.fed++ {
		r.follower.Apply(r.rep.deltas[r.fed])
	}
}

// failover continues with the follower, or with a new replica that got a snapshot.
func (r *reference) failover(t *rapid.T) {
	next := &rig{log: r.log, clock: r.clock, rep: &replicas{}}
	if rapid.Bool().Draw(t, "by snapshot") {
		next.Partition = NewPartition("orders", testID, r.log, next.rep, r.o)
		next.Replace(r.Snapshot())
	} else {
		r.Flush()
		r.feed()
		next.Partition = r.follower
		next.Partition.rep = next.rep
	}
	r.takeOver(t, next)
}

func (r *reference) takeOver(t *rapid.T, next *rig) {
	old := r.oldDeliveries()
	r.Unlead()
	for _, s := range r.subs {
		<-s.Lost
		require.ErrorIs(t, r.channel.Err(s), ErrNotLeader)
	}
	next.SetTTL(r.ttl)
	next.Lead(r.leadership.epoch + 1)
	r.forgetReleases()
	for i := range r.fates {
		switch f := &r.fates[i]; {
		case f.place == inFlight:
			f.place = inLog
		case f.place == inDeferred && f.deadline <= r.clock.now():
			f.place = inLog
		}
	}
	var ok bool
	r.rig = next
	r.channel, ok = next.Channel("c")
	require.True(t, ok)
	r.attach(t)
	r.rejoin(t, old)
	r.newFollower()
}

// newFollower returns a follower with a snapshot. Later deltas may repeat parts of it.
func (r *reference) newFollower() {
	r.follower = NewPartition("orders", testID, r.log, nil, r.o)
	r.follower.Replace(r.Snapshot())
	r.fed = 0
}

func (r *reference) check(t *rapid.T) {
	got := countsOf(r.Partition, r.channel)
	r.prescanAll()
	r.adopt()
	var want counts
	for i := r.start; i < r.limit; i++ {
		switch r.fates[i].place {
		case inLog:
			want.depth++
		case inFlight:
			want.inFlight++
		case inDeferred:
			want.deferred++
		case done:
			want.finished++
		}
	}
	want.published = r.limit - r.start
	require.Equal(t, want, got)
	require.Equal(t, r.lowest(), int(r.lowWater()))
	if len(r.channel.inFlight.heap) == 0 {
		require.LessOrEqual(t, len(r.channel.cursor.Full().Settled), 1+len(r.fates))
	}
}

// lowest is the first unfinished message.
func (r *reference) lowest() int {
	for i := max(r.start, int(r.log.start)); i < r.limit; i++ { // relocated messages lie below
		if r.fates[i].place != done {
			return i
		}
	}
	return r.limit
}
