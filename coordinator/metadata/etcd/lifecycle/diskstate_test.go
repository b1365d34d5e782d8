package lifecycle

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// after returns a state of disk d with a boot counter, whose starts began as in "2a 5b".
func after(boot int64, starts ...string) DiskState {
	s := DiskState{Disk: "d", Boot: boot}
	for _, start := range starts {
		var r StartRecord
		if _, err := fmt.Sscanf(start, "%d%s", &r.Boot, &r.ID); err != nil {
			panic(err)
		}
		s.Starts = append(s.Starts, r)
	}
	return s
}

func TestLaterAndOtherLives(t *testing.T) {
	another := after(9, "2a")
	another.Disk = "e"
	for name, c := range map[string]struct {
		seen, now    DiskState
		later, other bool
	}{
		"the same":                     {after(4, "2a"), after(4, "2a"), false, false},
		"an older one was seen":        {after(4, "2a"), after(9, "2a", "6b"), false, false},
		"an old copy":                  {after(9, "2a", "6b"), after(4, "2a"), true, false},
		"an old copy, older build":     {after(9), after(4), true, false},
		"it lived on, not as long":     {after(9, "2a", "6b"), after(7, "2a", "5c"), true, true},
		"it lived on, as long":         {after(9, "2a", "6b"), after(9, "2a", "5c"), true, true},
		"it lived on, longer":          {after(9, "2a", "6b"), after(11, "2a", "5c"), true, true},
		"of a broker that ran":         {after(9, "2a"), after(11, "2a", "5c"), true, true},
		"the seen starts are unknown":  {after(9), after(11, "2a", "5c"), false, false},
		"its starts are unknown":       {after(9, "2a", "6b"), after(11), false, false},
		"before the first known start": {after(9, "2a", "6b"), after(20, "12c"), false, false},
		"another disk":                 {after(9, "3b"), another, false, false},
		"nothing was seen":             {DiskState{}, after(4, "2a"), false, false},
	} {
		require.Equal(t, c.later, c.seen.LaterThan(c.now), name)
		require.Equal(t, c.other, c.seen.OtherLife(c.now), name)
		require.Equal(t, c.other, c.now.OtherLife(c.seen), name)
	}
}

func TestBegin(t *testing.T) {
	s := DiskState{Disk: "d"}.Begin("a", DiskState{Disk: "d"})
	require.Equal(t, after(1, "1a"), s)
	require.Equal(t, after(2, "1a"), s.Begin("a", s), "the write of a start was repeated")
	s.Boot = 4
	require.Equal(t, after(5, "1a", "5b"), s.Begin("b", s))
	require.Equal(t, after(5, "1a", "5b"), s.Begin("b", after(3, "1a")), "the data path is ahead of the metadata")
	require.Equal(t, after(10, "10b"), s.Begin("b", after(9, "1a", "7c")), "the metadata has a later life")
	require.Equal(t, after(5, "5b"), s.Begin("b", after(3, "2c")), "or another one")

	before := s
	for i := range 2 * maxStarts {
		s = s.Begin(fmt.Sprint(i), s)
	}
	require.Len(t, s.Starts, maxStarts)
	require.Equal(t, StartRecord{s.Boot, fmt.Sprint(2*maxStarts - 1)}, s.Starts[maxStarts-1])
	require.Equal(t, after(4, "1a"), before, "it is not written into")
}
