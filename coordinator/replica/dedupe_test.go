package replica

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func identifiedAt(id string, place int, atMS int64) identified {
	return identified{
		identity: queue.IdentityOf([]byte(id)), seq: ident.Sequence(place), at: ident.Offset(100 * place), end: ident.Offset(100*place + 100),
		atMS: atMS,
	}
}

func (d *dedupe) knows(id string) bool {
	_, ok := d.find(queue.IdentityOf([]byte(id)))
	return ok
}

// TestTheOldestIDIsNotForgottenSilently: a replica that has to drop an identity within its window does
// not call an unknown one new, until that one's window has passed.
func TestTheOldestIDIsNotForgottenSilently(t *testing.T) {
	d := dedupe{windowMS: 1000, bound: 2}
	for i, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		d.push(identifiedAt(id, i, int64(i)))
	}
	require.True(t, d.reachesBack(7), "four times the bound")
	require.True(t, d.knows("a"))
	d.push(identifiedAt("i", 8, 8))
	require.False(t, d.knows("a"))
	require.True(t, d.knows("b"))
	require.False(t, d.reachesBack(999))
	require.True(t, d.reachesBack(1000), "a would be forgotten now")
}

func TestDedupeFollowsTheLog(t *testing.T) {
	d := dedupe{windowMS: 1000, bound: 1000}
	d.push(identifiedAt("a", 0, 0))
	d.push(identifiedAt("b", 1, 5))
	d.push(identifiedAt("a", 2, 9)) // a replica that forgot it earlier has stored it again
	d.push(identified{})            // a message without an identity
	require.Equal(t, 3, d.len())
	newest, _ := d.find(queue.IdentityOf([]byte("a")))
	require.EqualValues(t, 2, newest.seq)
	before := d.clone()
	d.truncate(200)
	require.True(t, before.knows("a"), "a clone has its own")
	require.False(t, d.knows("a"))
	require.True(t, d.knows("b"))
	before.forget(1006)
	require.False(t, before.knows("b"))
	require.True(t, before.knows("a"))
	before.forget(1010)
	require.Zero(t, before.len())
	require.Nil(t, before.places)
	before.push(identifiedAt("c", 3, 1010))
	require.True(t, before.knows("c"))
	d.truncate(0)
	require.Zero(t, d.len())
}

// TestManyIDsAreForgotten: the entries move to the front again and again; none is found in the place of
// another.
func TestManyIDsAreForgotten(t *testing.T) {
	d := dedupe{windowMS: 100, bound: 1000}
	name := func(i int) string { return string([]byte{byte(i), byte(i >> 8)}) }
	for i := range 5000 {
		d.push(identifiedAt(name(i), i, int64(i)))
		d.forget(int64(i))
		for _, back := range []int{0, 50, 100} {
			if i < back {
				continue
			}
			e, ok := d.find(queue.IdentityOf([]byte(name(i - back))))
			require.True(t, ok)
			require.EqualValues(t, i-back, e.seq)
		}
		require.False(t, i > 100 && d.knows(name(i-101)))
	}
	require.Equal(t, 101, d.len())
	require.Len(t, d.places, 101)
}

// TestALongerWindowDoesNotReachBackAtOnce: what the shorter one forgot may be published again.
func TestALongerWindowDoesNotReachBackAtOnce(t *testing.T) {
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{DedupeMS: 31_000})
	var out Effects
	m.Step(Tick{NowMS: 1000}, &out)
	m.Step(Dedupe{WindowMS: 60_000}, &out)
	require.True(t, m.dedupe.reachesBack(1000), "nothing was forgotten")
	m.Step(Dedupe{WindowMS: 40_000}, &out)
	m.dedupe.push(identifiedAt("a", 0, 1000))
	m.Step(Tick{NowMS: 50_000}, &out)
	require.Zero(t, m.dedupe.len())
	m.Step(Dedupe{WindowMS: 50_000}, &out)
	require.False(t, m.dedupe.reachesBack(59_999))
	require.True(t, m.dedupe.reachesBack(60_000))
	m.Step(Dedupe{WindowMS: 1000}, &out)
	require.EqualValues(t, DefaultRepeatMS, m.dedupe.windowMS, "edges repeat puts for as long")
}

// TestOldIDsOfACopiedLog: a replica that copies a long log keeps the ids of the leader's window, whatever
// the wall clocks have written into the log.
func TestOldIDsOfACopiedLog(t *testing.T) {
	const second, hour = int64(1e9), int64(3600e9)
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{DedupeMS: 60_000})
	m.out = &Effects{}
	at := ident.Position{}
	var places []ident.Offset
	take := func(window ident.Offset, timeNS int64) {
		t.Helper()
		d := queue.NewDraft(0)
		require.NoError(t, d.AddMessage(queue.Message{Identity: queue.IdentityOf([]byte(fmt.Sprint(len(places))))}))
		draft := d.Draft(ident.RequestID{})
		b := draft.Seal(at, 1, m.log.lastCRC, timeNS)
		places = append(places, at.Offset)
		m.appendFrom("n1", &Message{Kind: MsgAppend, Epoch: 1, Prev: at, PrevCRC: m.log.lastCRC, Batches: []queue.Batch{b}, Window: window})
		at = b.End
	}
	knows := func() (known []int) {
		for i := range places {
			if m.dedupe.knows(fmt.Sprint(i)) {
				known = append(known, i)
			}
		}
		return known
	}
	take(1, second)
	take(1, 300*second)
	take(1, hour) // an hour in which nothing came, or a clock that was ahead
	require.Equal(t, []int{0, 1, 2}, knows())
	take(places[1]+1, hour+second)
	require.Equal(t, []int{1, 2, 3}, knows())
	take(0, hour+second)
	require.Equal(t, []int{1, 2, 3, 4}, knows(), "a leader that does not say where its window begins")
	take(at.Offset+1, hour+second)
	require.Equal(t, []int{5}, knows())
}

// TestALeaderSaysWhereItsWindowBegins: to a replica that copies the log, and only if it has all of the window.
func TestALeaderSaysWhereItsWindowBegins(t *testing.T) {
	d := dedupe{windowMS: 1000, bound: 10}
	from, ok := d.reachesTo(500, 10)
	require.True(t, ok)
	require.EqualValues(t, 500, from, "an empty window begins at the end")
	d.push(identifiedAt("a", 1, 10))
	d.push(identifiedAt("b", 2, 20))
	from, ok = d.reachesTo(500, 30)
	require.True(t, ok)
	require.EqualValues(t, 100, from)
	d.lostMS = 40
	_, ok = d.reachesTo(500, 39)
	require.False(t, ok)
}

// TestWhereIDsMayBegin: at a start the earlier of the log's time and this machine's counts.
func TestWhereIDsMayBegin(t *testing.T) {
	require.EqualValues(t, 1_000_000-180_000, IdentitiesFromMS(1_000_000e6, 4_600_000e6, 60_000))
	require.EqualValues(t, 1_000_000-180_000, IdentitiesFromMS(4_600_000e6, 1_000_000e6, 60_000))
}

// BenchmarkDedupe measures the work that each put with an id causes a replica, in a window of 100,000.
func BenchmarkDedupe(b *testing.B) {
	d := dedupe{windowMS: 100_000, bound: DefaultIdentities}
	n := 0
	put := func() {
		n++
		x := queue.Identity{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), 1}
		if _, ok := d.find(x); ok {
			b.Fatal("a new message was known")
		}
		d.push(identified{identity: x, seq: ident.Sequence(n), end: ident.Offset(n), atMS: int64(n)})
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
