package dedupe

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func identifiedAt(id string, place int, clock queue.Clock) identified {
	return identified{
		identity: queue.IdentityOf([]byte(id)), seq: ident.Sequence(place), at: ident.Offset(100 * place), end: ident.Offset(100*place + 100),
		clock: clock,
	}
}

// putAt is the batch of one message with an id.
func putAt(id string, place int, clock queue.Clock) *queue.Batch {
	d := queue.NewDraft(0)
	if err := d.AddMessage(queue.Message{Identity: queue.IdentityOf([]byte(id))}); err != nil {
		panic(err)
	}
	draft := d.Draft(ident.RequestID{})
	draft.Clock = clock
	b := draft.Seal(ident.Position{Offset: ident.Offset(100 * place), Sequence: ident.Sequence(place)}, 1, 0, 0)
	b.End.Offset = ident.Offset(100*place + 100)
	return &b
}

func (d *Window) knows(id string) bool {
	return d.entries.find(queue.IdentityOf([]byte(id))) != nil
}

// TestTheOldestIDIsNotForgottenSilently: a replica that has to drop an identity within its window does
// not call an unknown one new, until that one's window has passed.
func TestTheOldestIDIsNotForgottenSilently(t *testing.T) {
	d := NewWindow(1000, 2, nil)
	d.Tick(0)
	d.Follow(1000, 0)
	for i, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		d.push(identifiedAt(id, i, queue.Clock(i+2)))
	}
	require.True(t, d.ReachesBack(0), "four times the bound")
	require.True(t, d.knows("a"))
	d.push(identifiedAt("i", 8, 10))
	require.False(t, d.knows("a"))
	require.True(t, d.knows("b"))
	require.False(t, d.ReachesBack(200))
	require.True(t, d.ReachesBack(201), "a would be forgotten now")
}

// TestRecogniseByMessage: known, new, and twice in one put; and the bound of the window.
func TestRecogniseByMessage(t *testing.T) {
	d := NewWindow(1000, 4, nil)
	d.Tick(0)
	for i, id := range []string{"a", "b"} {
		d.push(identifiedAt(id, i+5, queue.Clock(i+2)))
	}
	require.False(t, d.Full(2))
	require.True(t, d.Full(3))
	for _, row := range []struct {
		ids  []string
		want recognition
	}{
		{[]string{"a"}, recognition{Known: 1, First: 5, Any: true, End: 600}},
		{[]string{"x"}, recognition{New: 1}},
		{[]string{"x", "b"}, recognition{Known: 1, New: 1, End: 700, Fresh: []bool{true, false}}},
		{[]string{"a", "x"}, recognition{Known: 1, New: 1, First: 5, Any: true, End: 600, Fresh: []bool{false, true}}},
		{[]string{"x", "x"}, recognition{Known: 1, New: 1, Fresh: []bool{true, false}}},
		{[]string{"x", "y"}, recognition{New: 2}},
		{[]string{"b", "a"}, recognition{Known: 2, First: 6, Any: true, End: 700}},
	} {
		b := queue.NewDraft(0)
		for _, id := range row.ids {
			require.NoError(t, b.AddMessage(queue.Message{Identity: queue.IdentityOf([]byte(id))}))
		}
		draft := b.Draft(ident.RequestID{})
		require.Equal(t, row.want, d.Recognise(&draft), row.ids)
	}
}

// TestIDsAreBoundedByBroker: the partitions of a broker share its budget. A leader refuses more; a follower must
// not, so it forgets beyond twice the budget, and does not do that silently. A machine that ends gives its share back.
func TestIDsAreBoundedByBroker(t *testing.T) {
	b := NewBudget(10)
	leads, follows := NewWindow(1000, 100, b), NewWindow(1000, 100, b)
	for _, d := range []*Window{&leads, &follows} {
		d.Tick(0)
		d.Follow(1000, 0)
	}
	for n := range 7 {
		follows.Add(putAt(fmt.Sprint(n), n, 10), 0)
	}
	require.False(t, leads.Full(3))
	require.True(t, leads.Full(4))
	for n := range 13 {
		follows.Add(putAt(fmt.Sprint(7+n), 7+n, 11), 0)
	}
	require.True(t, follows.ReachesBack(0))
	follows.Add(putAt("20", 20, 12), 0)
	require.False(t, follows.knows("0"))
	require.False(t, follows.ReachesBack(0))
	require.Equal(t, 20, follows.Len())
	follows.Truncate(1500)
	follows.Tick(1201)
	require.Equal(t, 0, follows.Len())
	require.False(t, leads.Full(10))

	leads.Add(putAt("a", 0, 22), 1201)
	clone := leads.Clone()
	clone.Truncate(0)
	leads.Release()
	require.False(t, follows.Full(10))
	require.True(t, follows.Full(11))
	follows.Add(putAt("b", 30, 22), 1201)
	follows.Restart(5000, 0)
	require.False(t, leads.Full(10))
}

func TestDedupeFollowsTheLog(t *testing.T) {
	d := NewWindow(1000, 1000, nil)
	d.Tick(0)
	d.Follow(1, 0)
	d.push(identifiedAt("a", 0, 2))
	d.push(identifiedAt("b", 1, 5))
	d.push(identifiedAt("a", 2, 9)) // a replica that forgot it earlier has stored it again
	d.push(identified{})            // a message without an identity
	require.Equal(t, 3, d.Len())
	require.EqualValues(t, 2, d.entries.find(queue.IdentityOf([]byte("a"))).seq)
	before := d.Clone()
	d.Truncate(200)
	require.True(t, before.knows("a"), "a clone has its own")
	require.False(t, d.knows("a"))
	require.True(t, d.knows("b"))
	before.forget(1501)
	require.False(t, before.knows("b"))
	require.True(t, before.knows("a"))
	before.forget(1901)
	require.Zero(t, before.Len())
	require.Nil(t, before.entries.blocks)
	require.Nil(t, before.entries.index.tables)
	before.push(identifiedAt("c", 3, 20))
	require.True(t, before.knows("c"))
	d.Truncate(0)
	require.Zero(t, d.Len())
}

// TestManyIDsAreForgotten: the entries move to the front again and again; none is found in the place of
// another.
func TestManyIDsAreForgotten(t *testing.T) {
	d := NewWindow(10_000, 1000, nil)
	d.Tick(0)
	d.Follow(1, 0)
	name := func(i int) string { return string([]byte{byte(i), byte(i >> 8)}) }
	for i := range 5000 {
		d.push(identifiedAt(name(i), i, queue.Clock(i)))
		d.forget(int64(i) * 100)
		for _, back := range []int{0, 50, 99} {
			if i < back {
				continue
			}
			e := d.entries.find(queue.IdentityOf([]byte(name(i - back))))
			require.NotNil(t, e)
			require.EqualValues(t, i-back, e.seq)
		}
		require.False(t, i > 100 && d.knows(name(i-101)))
	}
	require.Equal(t, 100, d.Len())
	require.Equal(t, 100, d.entries.index.used())
}

// restarted is the window of a process that starts with what the store has found: the batches from the
// mark on.
func restarted(windowMS int64, mark queue.IdentityMark, puts ...*queue.Batch) *Window {
	d := NewWindow(windowMS, 100, nil)
	r := queue.Restored{Identities: mark}
	for _, b := range puts {
		p := queue.IdentifiedPut{First: b.At.Sequence, At: b.At.Offset, End: b.End.Offset, Clock: b.Clock}
		b.Identities(func(_ int, x queue.Identity) { p.Identities = append(p.Identities, x) })
		r.Identified = append(r.Identified, p)
	}
	d.Load(&r)
	d.Tick(1_000_000) // another machine's time, and nobody knows how long it was away
	return &d
}

// TestALongerWindowDoesNotReachBackAtOnce: what the shorter one forgot may be published again, in doubt
// until the longer one has passed; a restart between changes nothing.
func TestALongerWindowDoesNotReachBackAtOnce(t *testing.T) {
	d := NewWindow(31_000, 10, nil)
	d.Tick(1000)
	d.LengthMS = 60_000
	require.True(t, d.ReachesBack(1000), "nothing was forgotten")
	d.LengthMS = 40_000
	stamp := d.Stamp(1000)
	d.Add(putAt("a", 0, stamp), 1000)
	d.Tick(50_000)
	require.Zero(t, d.Len())
	mark := d.Mark(500, 50_000)
	require.Equal(t, queue.IdentityMark{From: 500, End: 500, ClockMS: 49_001, Forgotten: stamp}, mark)
	d.LengthMS = 50_000
	require.False(t, d.ReachesBack(50_999))
	require.True(t, d.ReachesBack(51_201), "and two ticks")

	again := restarted(50_000, mark)
	require.False(t, again.ReachesBack(1_000_999))
	require.True(t, again.ReachesBack(1_001_201))
	require.True(t, restarted(40_000, mark).ReachesBack(1_000_000))
	require.True(t, restarted(40_000, queue.IdentityMark{}).ReachesBack(1_000_000), "there never was one")
}

// TestIDsGrowOldOverARestart: the identities that a process finds at its start are as old as the clock of the
// partition says, so that they are forgotten one after the other, and not all of them a window later.
func TestIDsGrowOldOverARestart(t *testing.T) {
	a, b, c := putAt("a", 0, 2), putAt("b", 1, 500), putAt("c", 2, 1000)
	d := restarted(60_000, queue.IdentityMark{From: 0, End: 300, ClockMS: 100_000}, a, b, c)
	require.False(t, d.knows("a"))
	require.True(t, d.knows("b"))
	d.Tick(1_011_000)
	require.False(t, d.knows("b"))
	require.True(t, d.knows("c"))
	require.True(t, d.ReachesBack(1_011_000))
}

// TestABatchBehindTheMark: the next leader's clock was behind. Its messages are as young as it says.
func TestABatchBehindTheMark(t *testing.T) {
	d := restarted(60_000, queue.IdentityMark{From: 300, End: 300, ClockMS: 1_000_000, Forgotten: 5000}, putAt("x", 3, 8000))
	d.Tick(1_059_000)
	require.True(t, d.knows("x"))
}

// TestDamageIsInDoubt: for a whole window, and the identities that were read are known.
func TestDamageIsInDoubt(t *testing.T) {
	d := NewWindow(60_000, 100, nil)
	r := queue.Restored{Identities: queue.IdentityMark{End: 100, ClockMS: 5000}, IdentitiesLost: true}
	d.Load(&r)
	d.Tick(1_000_000)
	require.False(t, d.ReachesBack(1_060_000))
	require.True(t, d.ReachesBack(1_060_201))
}

// TestAFollowerTakesTheLeadersClock: one that copies a log forgets what is old, and does not forget what a
// leader with a slower clock has put.
func TestAFollowerTakesTheLeadersClock(t *testing.T) {
	d := NewWindow(60_000, 100, nil)
	d.Tick(1000)
	d.Add(putAt("a", 0, 2), 1000)
	d.Add(putAt("b", 1, 3), 1000)
	d.Follow(50_000, 2000)
	require.True(t, d.knows("a"))
	d.Follow(60_250, 2000)
	require.False(t, d.knows("a"))
	require.True(t, d.knows("b"))
	d.Tick(100_000)
	require.Zero(t, d.Len())
	d.Add(putAt("c", 2, 604), 100_000) // the leader was restarted
	d.Follow(60_300, 100_000)
	d.Tick(120_000)
	require.True(t, d.knows("c"))
	require.EqualValues(t, 80_300, d.Clock(120_000))
	require.GreaterOrEqual(t, d.Stamp(120_000), queue.Clock(803))
}

// TestALogThatBeginsAfresh: the identities before it are forgotten as they are by the leader.
func TestALogThatBeginsAfresh(t *testing.T) {
	d := NewWindow(60_000, 100, nil)
	d.Tick(1000)
	d.Add(putAt("a", 0, 2), 1000)
	d.Restart(500, 100)
	d.Follow(50_000, 1000)
	require.False(t, d.knows("a"))
	require.False(t, d.ReachesBack(1000))
	require.True(t, d.ReachesBack(21_001))
	require.Equal(t, queue.IdentityMark{From: 700, End: 700, ClockMS: 50_000, Forgotten: 100}, d.Mark(700, 1000))
}

// BenchmarkDedupe measures the work that each put with an id causes a replica, in a window of 100,000.
func BenchmarkDedupe(b *testing.B) {
	d := NewWindow(100_000, DefaultIdentities, nil)
	d.Follow(1, 0)
	n := 0
	put := func() {
		n++
		x := queue.Identity{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), 1}
		if d.entries.find(x) != nil {
			b.Fatal("a new message was known")
		}
		d.push(identified{identity: x, seq: ident.Sequence(n), end: ident.Offset(n), clock: queue.Clock(n / 100)})
		d.forget(int64(n))
	}
	for range 200_000 {
		put()
	}
	b.ReportAllocs()
	for b.Loop() {
		put()
	}
}
