package transfer

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/ident"
)

func TestSegmentsJoin(t *testing.T) {
	var s segments
	for i := range uint64(10) {
		s.add(100+i, i)
	}
	require.Equal(t, segments{{Source: 100, Target: 0, Count: 10}}, s)
	s.add(110, 12) // 10 and 11 are of others
	s.add(104, 13) // an earlier put that was late
	require.Equal(t, segments{{Source: 100, Target: 0, Count: 10}, {Source: 110, Target: 12, Count: 1}, {Source: 104, Target: 13, Count: 1}}, s)
	_, ok := s.match(109, 0)
	require.True(t, ok)
	_, ok = s.match(111, 0)
	require.False(t, ok)

	at, ok := s.first(104)
	require.True(t, ok)
	require.EqualValues(t, 4, at)
	_, ok = s.first(111)
	require.False(t, ok)
	s.below(10)
	require.Equal(t, segments{{Source: 110, Target: 12, Count: 1}, {Source: 104, Target: 13, Count: 1}}, s)
}

// partitionOf is a partition with some copies.
func partitionOf(s segments, only map[uint64]string) *copier {
	p := newCopier(partitionLog{}, msgstream.Origin{}, copyState{Segments: s}, nil)
	p.only = only
	return p
}

// TestFinishedCopiesOfOneChannel: delayed copies below the position count, what the channel has delivered
// does not. Copies for another channel alone are passed, those for this one are not finished.
func TestFinishedCopiesOfOneChannel(t *testing.T) {
	p := partitionOf(segments{{Source: 100, Target: 0, Count: 10}, {Source: 110, Target: 12, Count: 4}}, map[uint64]string{10: "other", 11: "c", 20: "c"})
	x := api.ChannelPosition{Channel: "c", Confirmed: 5, Deferred: []msgstream.DeferredPosition{{Sequence: 1}, {Sequence: 2, Attempts: 1}, {Sequence: 3}, {Sequence: 9}}}
	for _, want := range []struct {
		done  finished
		spans []api.SequenceSpan
		end   uint64
	}{
		{finished{Below: 100}, nil, 5},
		{finished{Below: 103}, []api.SequenceSpan{{From: 1, To: 2}}, 5},
		{finished{Below: 108}, []api.SequenceSpan{{From: 1, To: 2}, {From: 3, To: 4}, {From: 5, To: 8}}, 8},
		{finished{Below: 112}, []api.SequenceSpan{{From: 1, To: 2}, {From: 3, To: 4}, {From: 5, To: 11}, {From: 12, To: 14}}, 14},
		{finished{Below: 200, Except: []uint64{101, 106, 107, 113}}, []api.SequenceSpan{{From: 3, To: 4}, {From: 5, To: 6}, {From: 8, To: 11}, {From: 12, To: 15}}, 16},
	} {
		spans, end := p.toFinish(x, want.done)
		require.Equal(t, want.spans, spans, "%+v", want.done)
		require.Equal(t, want.end, end)
	}
}

// A channel finishes copies whose source is finished, and stops at the first message of others.
func TestFinishedCopiesOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s segments
		log := map[uint64]uint64{} // target → source; missing: of others
		source, target := uint64(0), uint64(0)
		for range rapid.IntRange(0, 60).Draw(t, "messages") {
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				target++ // of others
				continue
			case 1:
				source += rapid.Uint64Range(0, 3).Draw(t, "gap")
			case 2:
				source -= min(source, rapid.Uint64Range(0, 3).Draw(t, "again"))
			}
			s.add(source, target)
			log[target] = source
			source++
			target++
		}
		from := rapid.Uint64Range(0, target+1).Draw(t, "from")
		done := finished{Below: rapid.Uint64Range(0, source+2).Draw(t, "below")}
		done.Except = rapid.SliceOfDistinct(rapid.Uint64Range(0, source), rapid.ID[uint64]).Draw(t, "except")
		slices.Sort(done.Except)
		want, end := []uint64{}, from
		for {
			x, there := log[end]
			if !there || x >= done.Below {
				break
			}
			if !slices.Contains(done.Except, x) {
				want = append(want, end)
			}
			end++
		}
		spans, stop := partitionOf(s, nil).toFinish(api.ChannelPosition{Confirmed: ident.Sequence(from)}, done)
		got := []uint64{}
		for _, x := range spans {
			for at := x.From; at < x.To; at++ {
				got = append(got, uint64(at))
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, end, stop)
	})
}
