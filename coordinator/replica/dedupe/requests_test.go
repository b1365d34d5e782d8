package dedupe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// repeatMS is the window of the tests.
const repeatMS = 30_000

func putNumber(producer, n uint64, end ident.Offset) queue.RecentPut {
	return queue.RecentPut{
		Request: ident.RequestID{Producer: producer, N: n}, First: ident.Sequence(end), Count: 1,
		End: ident.Position{Offset: end, Sequence: ident.Sequence(end) + 1},
	}
}

// TestRepeatIsRecognisedBehindOthers: an answer is lost, and the put comes again two
// seconds later. In the meantime other edges have put a hundred thousand messages.
func TestRepeatIsRecognisedBehindOthers(t *testing.T) {
	r := NewRequests(repeatMS)
	r.push(putNumber(1, 1, 1), 0)
	for n := range uint64(100_000) {
		r.push(putNumber(2, n, ident.Offset(n)+2), int64(n)/50)
	}
	seen, ok := r.Find(ident.RequestID{Producer: 1, N: 1})
	require.True(t, ok)
	require.Equal(t, ident.Offset(1), seen.End.Offset)
	_, ok = r.Find(ident.RequestID{Producer: 2, N: 100_000 - queue.RecentPuts})
	require.True(t, ok)
	_, ok = r.Find(ident.RequestID{Producer: 2, N: 100_000 - queue.RecentPuts - 1})
	require.False(t, ok, "no more of each")
}

func TestRecentIsBoundedByTime(t *testing.T) {
	r := NewRequests(repeatMS)
	r.push(putNumber(1, 1, 1), 0)
	r.push(putNumber(2, 1, 2), 1)
	r.push(putNumber(2, 2, 3), repeatMS+2)
	_, ok := r.Find(ident.RequestID{Producer: 2, N: 1})
	require.False(t, ok, "older than a minute")
	r.push(putNumber(3, 1, 4), repeatMS+3)
	require.NotContains(t, r.producers, uint64(1), "ended a minute ago")
}

func TestRecentFollowsTheLog(t *testing.T) {
	r := NewRequests(repeatMS)
	r.push(putNumber(1, 1, 1), 0)
	r.push(putNumber(1, 2, 2), 0)
	r.push(putNumber(1, 1, 3), 0) // stored again: two batches carry the number
	r.push(putNumber(2, 1, 4), 0)
	before := r.Clone()
	r.Truncate(2)
	_, ok := r.Find(ident.RequestID{Producer: 1, N: 1})
	require.True(t, ok, "the log still has the first that carried it")
	r.push(putNumber(1, 3, 3), 0)
	_, ok = r.Find(ident.RequestID{Producer: 1, N: 3})
	require.True(t, ok)
	_, ok = r.Find(ident.RequestID{Producer: 1, N: 2})
	require.True(t, ok)
	require.NotContains(t, r.producers, uint64(2))
	_, ok = before.Find(ident.RequestID{Producer: 2, N: 1})
	require.True(t, ok, "a clone keeps its own")
	_, ok = r.Find(ident.RequestID{})
	require.False(t, ok)
}

// TestRestoredPutsAreYoung: the window of the puts that the store has found begins with the first Tick, and only with that one.
func TestRestoredPutsAreYoung(t *testing.T) {
	r := NewRequests(repeatMS)
	r.Load([]queue.RecentPut{putNumber(1, 1, 1)})
	const start = 1 << 40
	r.Tick(start)
	r.Tick(start + 10)
	r.push(putNumber(2, 1, 2), start+repeatMS) // forgets old producers
	_, ok := r.Find(ident.RequestID{Producer: 1, N: 1})
	require.True(t, ok)
	r.push(putNumber(3, 1, 3), start+repeatMS+1)
	_, ok = r.Find(ident.RequestID{Producer: 1, N: 1})
	require.False(t, ok)

	empty := NewRequests(repeatMS)
	empty.Load(nil)
	empty.push(putNumber(1, 1, 1), start)
	empty.Tick(start + repeatMS)
	empty.push(putNumber(2, 1, 2), start+repeatMS+1)
	_, ok = empty.Find(ident.RequestID{Producer: 1, N: 1})
	require.False(t, ok, "not restored: a tick does not renew it")
}

// BenchmarkRecent measures the work that each put causes a replica, in a full table.
func BenchmarkRecent(b *testing.B) {
	r := NewRequests(repeatMS)
	n := uint64(0)
	put := func() {
		n++
		if _, ok := r.Find(ident.RequestID{Producer: 1, N: n}); ok {
			b.Fatal("a new put was known")
		}
		r.push(putNumber(1, n, ident.Offset(n)), int64(n))
	}
	for range queue.RecentPuts {
		put()
	}
	b.ReportAllocs()
	for b.Loop() {
		put()
	}
}
