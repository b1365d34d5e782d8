package repeats

import (
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

func (d *Window) knows(id string) bool {
	return d.entries.find(queue.IdentityOf([]byte(id))) != nil
}

// TestTheOldestIDIsNotForgottenSilently: a replica that has to drop an identity within its window does
// not call an unknown one new, until that one's window has passed.
func TestTheOldestIDIsNotForgottenSilently(t *testing.T) {
	d := NewWindow(1000, 2)
	for i, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		d.push(identifiedAt(id, i, int64(i)))
	}
	require.True(t, d.ReachesBack(7), "four times the bound")
	require.True(t, d.knows("a"))
	d.push(identifiedAt("i", 8, 8))
	require.False(t, d.knows("a"))
	require.True(t, d.knows("b"))
	require.False(t, d.ReachesBack(999))
	require.True(t, d.ReachesBack(1000), "a would be forgotten now")
}

func TestDedupeFollowsTheLog(t *testing.T) {
	d := NewWindow(1000, 1000)
	d.push(identifiedAt("a", 0, 0))
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
	before.forget(1006)
	require.False(t, before.knows("b"))
	require.True(t, before.knows("a"))
	before.forget(1010)
	require.Zero(t, before.Len())
	require.Nil(t, before.entries.blocks)
	require.Nil(t, before.entries.index.tables)
	before.push(identifiedAt("c", 3, 1010))
	require.True(t, before.knows("c"))
	d.Truncate(0)
	require.Zero(t, d.Len())
}

// TestManyIDsAreForgotten: the entries move to the front again and again; none is found in the place of
// another.
func TestManyIDsAreForgotten(t *testing.T) {
	d := NewWindow(100, 1000)
	name := func(i int) string { return string([]byte{byte(i), byte(i >> 8)}) }
	for i := range 5000 {
		d.push(identifiedAt(name(i), i, int64(i)))
		d.forget(int64(i))
		for _, back := range []int{0, 50, 100} {
			if i < back {
				continue
			}
			e := d.entries.find(queue.IdentityOf([]byte(name(i - back))))
			require.NotNil(t, e)
			require.EqualValues(t, i-back, e.seq)
		}
		require.False(t, i > 100 && d.knows(name(i-101)))
	}
	require.Equal(t, 101, d.Len())
	require.Equal(t, 101, d.entries.index.used())
}

// TestALongerWindowDoesNotReachBackAtOnce: what the shorter one forgot may be published again.
func TestALongerWindowDoesNotReachBackAtOnce(t *testing.T) {
	d := NewWindow(31_000, 10)
	d.Resize(60_000, 1000)
	require.True(t, d.ReachesBack(1000), "nothing was forgotten")
	d.Resize(40_000, 1000)
	d.push(identifiedAt("a", 0, 1000))
	d.Tick(50_000)
	require.Zero(t, d.Len())
	d.Resize(50_000, 50_000)
	require.False(t, d.ReachesBack(59_999))
	require.True(t, d.ReachesBack(60_000))
}

// TestALeaderSaysWhereItsWindowBegins: to a replica that copies the log, and only if it has all of the window.
func TestALeaderSaysWhereItsWindowBegins(t *testing.T) {
	d := NewWindow(1000, 10)
	from, ok := d.ReachesTo(500, 10)
	require.True(t, ok)
	require.EqualValues(t, 500, from, "an empty window begins at the end")
	d.push(identifiedAt("a", 1, 10))
	d.push(identifiedAt("b", 2, 20))
	from, ok = d.ReachesTo(500, 30)
	require.True(t, ok)
	require.EqualValues(t, 100, from)
	d.lostMS = 40
	_, ok = d.ReachesTo(500, 39)
	require.False(t, ok)
}

// TestWhereIDsMayBegin: at a start the earlier of the log's time and this machine's counts.
func TestWhereIDsMayBegin(t *testing.T) {
	require.EqualValues(t, 1_000_000-180_000, IdentitiesFromMS(1_000_000e6, 4_600_000e6, 60_000))
	require.EqualValues(t, 1_000_000-180_000, IdentitiesFromMS(4_600_000e6, 1_000_000e6, 60_000))
}

// BenchmarkDedupe measures the work that each put with an id causes a replica, in a window of 100,000.
func BenchmarkDedupe(b *testing.B) {
	d := NewWindow(100_000, DefaultIdentities)
	n := 0
	put := func() {
		n++
		x := queue.Identity{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), 1}
		if d.entries.find(x) != nil {
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
