package cursor

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/ident"
)

func TestRangeSetAgainstASetOfNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r rangeSet
		want := map[ident.Sequence]bool{}
		low := ident.Sequence(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			from := ident.Sequence(rapid.IntRange(int(low), int(low)+60).Draw(t, "from"))
			s := Span{from, from + ident.Sequence(rapid.IntRange(0, 8).Draw(t, "n"))}
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				low = r.takeFrom(low)
				for seq := range want {
					if seq < low {
						delete(want, seq)
					}
				}
			default:
				added := uint64(0)
				for seq := s.From; seq < s.To; seq++ {
					if !want[seq] {
						added++
					}
					want[seq] = true
				}
				require.Equal(t, added, r.add(s))
			}
			checkRanges(t, &r, want)
			require.Equal(t, uint64(len(want)), r.count)
			for seq := low; seq < low+75; seq++ {
				require.Equal(t, want[seq], r.contains(seq), "sequence %d", seq)
			}
		}
	})
}

// checkRanges: spans are disjoint, ordered and do not touch; no block is empty.
func checkRanges(t require.TestingT, r *rangeSet, want map[ident.Sequence]bool) {
	spans, n := 0, 0
	last := Span{}
	r.each(func(s Span) {
		require.Less(t, s.From, s.To)
		require.True(t, spans == 0 || s.From > last.To, "%v after %v", s, last)
		for seq := s.From; seq < s.To; seq++ {
			require.True(t, want[seq])
			n++
		}
		spans, last = spans+1, s
	})
	require.Equal(t, len(want), n)
	require.Equal(t, spans, r.spans)
	for _, b := range r.blocks {
		require.NotEmpty(t, b)
		require.LessOrEqual(t, len(b), blockSpans)
	}
}

func TestRangeSetSplitsBlocks(t *testing.T) {
	var r rangeSet
	want := map[ident.Sequence]bool{}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(5000) {
		seq := ident.Sequence(2 * i)
		r.add(Span{seq, seq + 1})
		want[seq] = true
	}
	require.Greater(t, len(r.blocks), 10)
	checkRanges(t, &r, want)
	require.EqualValues(t, 10_001, r.takeFrom(10_001))
	require.Zero(t, r.count)
	require.Empty(t, r.blocks)
}

func TestSequences(t *testing.T) {
	require.Nil(t, Sequences([]Span{{4, 4}}))
	require.Equal(t, map[ident.Sequence]struct{}{2: {}, 3: {}, 7: {}}, Sequences([]Span{{2, 4}, {7, 8}}))
}

func BenchmarkRangeSetRandom(b *testing.B) {
	order := rand.New(rand.NewPCG(1, 2)).Perm(1 << 20)
	b.ReportAllocs()
	var r rangeSet
	for i := range b.N {
		if i&(1<<20-1) == 0 {
			r = rangeSet{}
		}
		seq := ident.Sequence(order[i&(1<<20-1)])
		r.add(Span{seq, seq + 1})
	}
}
