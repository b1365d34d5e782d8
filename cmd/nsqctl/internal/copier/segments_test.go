package copier

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSegmentsJoin(t *testing.T) {
	var s segments
	for i := range uint64(10) {
		s.add(100+i, i)
	}
	require.Equal(t, segments{{100, 0, 10}}, s)
	s.add(110, 12) // 10 and 11 are of others
	s.add(104, 13) // an earlier put that was late
	require.Equal(t, segments{{100, 0, 10}, {110, 12, 1}, {104, 13, 1}}, s)
	require.True(t, s.has(109))
	require.False(t, s.has(111))

	require.EqualValues(t, 5, s.forward(0, 105), "before the first that is not finished")
	require.EqualValues(t, 10, s.forward(0, 200), "before a message of others")
	require.EqualValues(t, 14, s.forward(12, 111), "over the late one")
	require.EqualValues(t, 12, s.forward(12, 110))
	require.EqualValues(t, 50, s.forward(50, 200), "unknown")

	at, ok := s.first(104)
	require.True(t, ok)
	require.EqualValues(t, 4, at)
	_, ok = s.first(111)
	require.False(t, ok)
	s.below(10)
	require.Equal(t, segments{{110, 12, 1}, {104, 13, 1}}, s)
}

// A position never passes a message whose source is not finished, nor one of others.
func TestForwardPassesFinishedCopiesOnly(t *testing.T) {
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
		from, finished := rapid.Uint64Range(0, target+1).Draw(t, "from"), rapid.Uint64Range(0, source+2).Draw(t, "finished")
		want := from
		for {
			x, there := log[want]
			if !there || x >= finished {
				break
			}
			want++
		}
		require.Equal(t, want, s.forward(from, finished))
	})
}
