package nsqd

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Deliveries end in the order of their deadlines, whatever was taken out of the middle
// or moved.
func TestFlightsEndInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var f flights
		s := &Subscriber{}
		left := map[ident.Sequence]int64{}
		for seq := range ident.Sequence(60) {
			left[seq] = rng.Int64N(100)
			f.add(flight{seq: seq, sub: s, deadline: left[seq]})
		}
		for seq := range ident.Sequence(60) {
			switch rng.IntN(3) {
			case 0:
				f.remove(f.bySeq[seq])
				delete(left, seq)
			case 1:
				left[seq] = rng.Int64N(100)
				f.delay(f.bySeq[seq], left[seq])
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

// What waits comes in the order of its deadlines, and of the log where they are equal.
func TestWaitingComesInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var a asideSet
		left := map[ident.Sequence]int64{}
		for _, n := range rng.Perm(60) {
			seq := ident.Sequence(n)
			left[seq] = rng.Int64N(10)
			a.wait(newEntry(seq, left[seq], 1))
		}
		for seq := range ident.Sequence(60) {
			if rng.IntN(2) == 0 {
				require.True(t, a.drop(seq))
				delete(left, seq)
			}
		}
		var want []ident.Sequence
		for seq := range left {
			want = append(want, seq)
		}
		slices.SortFunc(want, func(x, y ident.Sequence) int {
			if left[x] != left[y] {
				return int(left[x] - left[y])
			}
			return int(x) - int(y)
		})
		require.Equal(t, len(want), a.expire(10, 100))
		var got []ident.Sequence
		for seq, ok := a.peek(); ok; seq, ok = a.peek() {
			got = append(got, seq)
			a.deliver(seq)
		}
		require.Equal(t, want, got)
	}
}

// A set that was large and is empty still belongs to an ordered channel.
func TestEmptiedSetKeepsItsOrder(t *testing.T) {
	a := asideSet{bySeq: true}
	for seq := range ident.Sequence(5000) {
		a.wait(newEntry(seq, 1, 0))
	}
	for seq := range ident.Sequence(5000) {
		a.drop(seq)
	}
	a.makeReady(9, 1)
	a.makeReady(3, 1)
	seq, _ := a.peek()
	require.Equal(t, ident.Sequence(3), seq)
}

// One of several deliveries is left to its timeout; the others are finished, and it
// comes again alone.
func TestDisownedDeliveryWaitsForItsTimeout(t *testing.T) {
	r := newRig(Options{MsgTimeoutMS: 1000})
	c := r.channel(t, "ch", ChannelOptions{})
	s := subscribe(t, c)
	r.publishN(3)
	require.Len(t, c.Pull(s, 3, nil), 3)
	require.NoError(t, c.Disown(s, 1))
	require.NoError(t, c.Finish(s, 0, 1))
	require.NoError(t, c.Finish(s, 2, 1))
	require.Zero(t, c.InFlight(s))
	require.Empty(t, c.Pull(s, 3, nil))
	r.tick(1001)
	d := c.Pull(s, 3, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(1), d[0].Message.Seq)
	require.EqualValues(t, 2, d[0].Message.Attempts)
	require.NoError(t, c.Finish(s, 1, 1))
	require.Zero(t, c.InFlight(s))
}

// Whatever will be due is known when it becomes so, and not when somebody pulls next.
func TestDueIsKnownAtOnce(t *testing.T) {
	due := func(t *testing.T, r *rig, ms int64) {
		t.Helper()
		require.LessOrEqual(t, r.Due(), r.clock.now()+ms*nsPerMS)
	}
	one := func(t *testing.T) (*rig, *Channel, *Subscriber) {
		r := newRig(Options{MsgTimeoutMS: 10_000})
		c := r.channel(t, "ch", ChannelOptions{})
		s := subscribe(t, c)
		r.publishN(2)
		require.Len(t, c.Pull(s, 1, nil), 1)
		return r, c, s
	}
	t.Run("requeued", func(t *testing.T) {
		r, c, s := one(t)
		require.NoError(t, c.Requeue(s, 0, 200))
		due(t, r, 200)
	})
	t.Run("reclaimed", func(t *testing.T) {
		r, _, _ := one(t)
		n := r.failover()
		c, _ := n.Channel("ch")
		require.Empty(t, c.Reclaim(subscribe(t, c), []Held{{Sequence: 0, Attempts: 1}}))
		due(t, n, 10_000)
	})
	t.Run("handed over", func(t *testing.T) {
		r, c, s := one(t)
		r.clock.add(9_000 * nsPerMS)
		next := subscribe(t, c)
		require.Empty(t, c.Succeed(s, next, []Held{{Sequence: 0, Attempts: 1}}))
		r.tick(2_000)
		require.Equal(t, 1, c.InFlight(next), "its time begins anew")
	})
	t.Run("cannot be read", func(t *testing.T) {
		r, c, s := one(t)
		require.Len(t, c.Pull(s, 1, nil), 1)
		r.Expire(r.clock.now())
		r.log.fail = errors.New("no disk")
		r.publishN(1)
		require.Empty(t, c.Pull(s, 1, nil))
		due(t, r, 100)
		r.Expire(r.clock.now())
		due(t, r, 100)
	})
}

// What a client that leaves gives back goes to who waits for messages here.
func TestOthersHearOfWhatIsGivenBack(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "ch", ChannelOptions{})
	leaves, waits := subscribe(t, c), subscribe(t, c)
	<-waits.Wake
	r.publishN(1)
	require.Len(t, c.Pull(leaves, 1, nil), 1)
	require.Empty(t, c.Pull(waits, 1, nil))
	c.Detach(leaves, true)
	require.NotEmpty(t, waits.Wake)
	require.Len(t, c.Pull(waits, 1, nil), 1)
}

// What was offered to clients here and taken is no offer any more: relays get the rest.
func TestOfferThatWasTakenIsOver(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "ch", ChannelOptions{})
	direct, relay := subscribe(t, c), &Subscriber{}
	require.NoError(t, c.Attach(relay))
	require.Empty(t, c.Pull(direct, 3, nil))
	r.publishN(3) // offered
	require.Len(t, c.Pull(direct, 3, nil), 3)
	r.publishN(3)
	require.Len(t, c.Pull(relay, 3, nil), 3)

	require.Empty(t, c.Pull(direct, 3, nil))
	r.publishN(3) // offered to one who leaves
	c.Detach(direct, true)
	require.Len(t, c.Pull(relay, 9, nil), 6)
}

// A leader that has reached its replicas never, but the metadata, serves no ordered
// channel.
func TestOrderedChannelIsFencedFromTheFirst(t *testing.T) {
	r := newRig(Options{})
	strict, plain := r.channel(t, "strict", ChannelOptions{Ordered: true}), r.channel(t, "plain", ChannelOptions{})
	r.publishN(1)
	r.ExtendUnordered(r.clock.now() + 1000*nsPerMS)
	r.clock.add(1001 * nsPerMS)
	r.ExtendUnordered(r.clock.now() + 1000*nsPerMS)
	require.Len(t, plain.Pull(subscribe(t, plain), 1, nil), 1)
	require.Empty(t, strict.Pull(subscribe(t, strict), 1, nil))
}

// A late finish on an ordered channel that the replicas do not get: the message comes
// again as it had come before.
func TestLateOrderedFinishThatFails(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(2)
	require.Len(t, c.Pull(s, 1, nil), 1)
	n := r.failover()
	c, _ = n.Channel("strict")
	s = subscribe(t, c)
	n.rep.hold = true
	require.NoError(t, c.Finish(s, 0, 1))
	n.rep.answer(n.Partition, false)
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(0), d[0].Message.Seq)
	require.EqualValues(t, 1, d[0].Message.Attempts)
}

// What a client still holds counts as delivered so often, here and for the next leader.
func TestReclaimedDeliveriesKeepTheirAttempts(t *testing.T) {
	r := newRig(Options{})
	r.publishN(1)
	c := r.channel(t, "ch", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	require.Empty(t, c.Reclaim(s, []Held{{Sequence: 0, Attempts: 3}}))
	r.Flush()
	n := &rig{log: r.log, rep: &replicas{}, clock: r.clock}
	n.Partition = NewPartition("orders", testID, n.log, n.rep, r.o)
	for _, delta := range r.rep.deltas {
		n.Apply(delta)
	}
	require.NoError(t, c.Requeue(s, 0, 0))
	require.EqualValues(t, 4, c.Pull(s, 1, nil)[0].Message.Attempts)

	n.Lead(2)
	c, _ = n.Channel("ch")
	require.EqualValues(t, 3, c.Pull(subscribe(t, c), 1, nil)[0].Message.Attempts, "the third delivery is not over")
}

// A message that comes again and cannot be read rests, and is what it was.
func TestRestKeepsTheAttempts(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "ch", ChannelOptions{})
	s := subscribe(t, c)
	r.publishN(1)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, 0, 0))
	r.log.fail = errors.New("no disk")
	require.Empty(t, c.Pull(s, 1, nil))
	r.log.fail = nil
	r.tick(101)
	require.EqualValues(t, 2, c.Pull(s, 1, nil)[0].Message.Attempts)
}

// A late finish of what is finished already changes nothing: neither does the fate of
// what is told to the replicas beside it.
func TestLateFinishOfWhatIsFinished(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(2)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Finish(s, 0, 1))
	n := r.failover()
	c, _ = n.Channel("strict")
	s = subscribe(t, c)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, 1, 0))
	n.rep.hold = true
	require.NoError(t, c.Finish(s, 0, 1))
	n.rep.answer(n.Partition, false)
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(1), d[0].Message.Seq, "a step back")
	require.EqualValues(t, 2, d[0].Message.Attempts)
}
