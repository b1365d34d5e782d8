package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

// Series sums rounds up. Its String is a row and a table in Markdown.
type Series struct {
	rounds, void, violated int
	pairs                  int
	acknowledged           int
	definite, inDoubt      int
	copies                 int
	moves                  int64
	commands, refused      int
	counters               api.CounterTotals
	whole, drained         time.Duration
	slowest, due           time.Duration
	nemeses                map[string]int
	seeds                  []uint64
	failed                 []string
}

// Add counts a round, and the figures of one that is not void.
func (s *Series) Add(p *Plan, o Outcome) {
	s.rounds++
	s.seeds = append(s.seeds, p.seed)
	if o.Failed {
		s.violated++
		s.failed = append(s.failed, p.String())
	}
	if o.void {
		s.void++
		return
	}
	r := o.report
	s.pairs += len(o.pairs)
	s.acknowledged, s.definite, s.inDoubt = s.acknowledged+r.Acknowledged, s.definite+r.Definite, s.inDoubt+r.InDoubt
	s.copies, s.moves = s.copies+r.Copies, s.moves+o.moves
	s.commands, s.refused = s.commands+o.commands, s.refused+o.refused
	s.counters = plus(s.counters, o.counters)
	s.whole, s.drained = max(s.whole, o.whole), max(s.drained, o.drained)
	s.slowest, s.due = max(s.slowest, o.slowest), max(s.due, o.due)
	if s.nemeses == nil {
		s.nemeses = map[string]int{}
	}
	for _, two := range o.pairs {
		for _, f := range two {
			s.nemeses[f.name]++
		}
	}
}

// String is a Markdown table of the rounds that are not void.
func (s *Series) String() string {
	var b strings.Builder
	if s.rounds == 0 {
		return "no rounds"
	}
	c := s.counters
	fmt.Fprintln(&b, "| seeds | rounds (void) | pairs of faults | acknowledged | definite / in doubt at clients | stored twice | elections | "+
		"rollbacks | in doubt at leaders | truncations | shrinks | swaps | moves | commands (refused) | service due came after | slowest put | "+
		"longest until in sync, drained | violations |")
	fmt.Fprintln(&b, strings.Repeat("|---", 18)+"|")
	fmt.Fprintf(&b, "| %d–%d | %d (%d) | %d | %d | %d / %d | %d | %d | %d | %d | %d | %d | %d | %d | %d (%d) | %s | %s | %s, %s | %d |\n",
		s.seeds[0], s.seeds[len(s.seeds)-1], s.rounds, s.void, s.pairs, s.acknowledged, s.definite, s.inDoubt, s.copies,
		c.Elections, c.Rollbacks, c.InDoubt, c.Truncations, c.Shrinks, c.Swaps, s.moves, s.commands, s.refused,
		tenths(s.due), tenths(s.slowest), tenths(s.whole), tenths(s.drained), s.violated)
	fmt.Fprintln(&b, "\n| nemesis | times |\n|---|---|")
	for _, name := range sortedKeys(s.nemeses) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, s.nemeses[name])
	}
	for _, f := range s.failed {
		fmt.Fprintln(&b, "failed:", f)
	}
	return b.String()
}

func sortedKeys(m map[string]int) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// RequireRough fails a long series that saw too little. The rollback is that of the nemesis "disk
// hangs at the minimum": since RB-2 a leader begins one only while every member answers, and no
// other nemesis lets a member answer without acknowledging for long enough. Where disks cannot
// hang, no rollback is required.
func (s *Series) RequireRough(t *testing.T) {
	require.Less(t, s.void, s.rounds/2+1, "too many rounds are void")
	c := s.counters
	wanted := map[string]uint64{"election": c.Elections, "put in doubt": c.InDoubt, "truncation": c.Truncations, "swap": c.Swaps}
	if s.nemeses[minimumHangs.name] > 0 {
		wanted["rollback"] = c.Rollbacks
	} else {
		require.Error(t, canHang(), "a series without the nemesis %q", minimumHangs.name)
		t.Log("no rollback is required: no disk can hang here")
	}
	for what, n := range wanted {
		require.NotZero(t, n, "a series without a single %s", what)
	}
}
