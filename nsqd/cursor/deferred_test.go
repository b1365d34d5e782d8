package cursor

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Deferred messages become ready in the order of their deadlines, and of the log for equal
// deadlines.
func TestDeferredDeadlinesInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var a deferredSet
		left := map[ident.Sequence]int64{}
		for _, n := range rng.Perm(60) {
			seq := ident.Sequence(n)
			left[seq] = rng.Int64N(10)
			a.Schedule(NewEntry(seq, left[seq], 1))
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
		require.Equal(t, len(want), a.Expire(10, 100))
		var got []ident.Sequence
		for seq, ok := a.Peek(); ok; seq, ok = a.Peek() {
			got = append(got, seq)
			a.Deliver(seq)
		}
		require.Equal(t, want, got)
	}
}

// A large set that was emptied still has the order of an ordered channel.
func TestEmptiedSetKeepsItsOrder(t *testing.T) {
	a := deferredSet{BySeq: true}
	for seq := range ident.Sequence(5000) {
		a.Schedule(NewEntry(seq, 1, 0))
	}
	for seq := range ident.Sequence(5000) {
		a.drop(seq)
	}
	a.makeReady(9, 1)
	a.makeReady(3, 1)
	seq, _ := a.Peek()
	require.Equal(t, ident.Sequence(3), seq)
}

// Front lists ready messages in their order: the first one always, further ones only below the limit.
func TestFront(t *testing.T) {
	var a deferredSet
	for _, seq := range []ident.Sequence{9, 4, 7, 12, 5} {
		a.makeReady(seq, 1)
	}
	a.drop(7)
	for most, want := range map[int][]ident.Sequence{1: {9}, 2: {9, 4}, 3: {9, 4, 5}, 4: {9, 4, 5}} {
		require.Equal(t, want, a.Front(most, 9))
	}
}

func BenchmarkRequeueDueBesideMillion(b *testing.B) {
	const n = 1 << 20
	var a deferredSet
	for i := range n {
		a.Schedule(NewEntry(ident.Sequence(i), int64(rand.N(1<<40)), 0))
	}
	b.ResetTimer()
	for i := range b.N {
		seq := ident.Sequence(n + i)
		a.Schedule(NewEntry(seq, int64(i), 1))
		a.Expire(int64(i), 1)
		a.drop(seq)
	}
}
