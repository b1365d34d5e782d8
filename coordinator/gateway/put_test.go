package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
)

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		doubts  []uint32
		attempt uint32 // whose answer it is; the newest is 3
		parked  bool
		outcome replica.Outcome
		held    bool
		want    verdict
		left    []uint32
	}{
		"committed":                            {attempt: 3, outcome: replica.Committed, want: committed},
		"an old attempt was committed":         {doubts: []uint32{1}, attempt: 1, outcome: replica.Committed, want: committed, left: []uint32{1}},
		"duplicate while parked":               {attempt: 3, parked: true, outcome: replica.Duplicate, want: committed},
		"not leader":                           {attempt: 3, outcome: replica.NotLeader, want: tryAgain},
		"not enough, early":                    {attempt: 3, outcome: replica.NotEnoughReplicas, want: tryAgain},
		"not enough, held":                     {attempt: 3, outcome: replica.NotEnoughReplicas, held: true, want: notEnough},
		"not enough, held, with a doubt":       {doubts: []uint32{1}, attempt: 3, outcome: replica.NotEnoughReplicas, held: true, want: tryAgain, left: []uint32{1}},
		"rolled back":                          {attempt: 3, outcome: replica.RolledBack, want: takenBack},
		"rolled back, with a doubt":            {doubts: []uint32{2}, attempt: 3, outcome: replica.RolledBack, want: tryAgain, left: []uint32{2}},
		"in doubt":                             {attempt: 3, outcome: replica.InDoubt, want: tryAgain, left: []uint32{3}},
		"an old doubt was not written":         {doubts: []uint32{1, 2}, attempt: 1, outcome: replica.NotLeader, want: ignore, left: []uint32{2}},
		"an old doubt was rolled back":         {doubts: []uint32{2}, attempt: 2, outcome: replica.RolledBack, want: ignore},
		"an old doubt stays in doubt":          {doubts: []uint32{2}, attempt: 2, outcome: replica.InDoubt, want: ignore, left: []uint32{2}},
		"the newest, given up, was not stored": {doubts: []uint32{3}, attempt: 3, parked: true, outcome: replica.NotLeader, want: ignore},
	} {
		t.Run(name, func(t *testing.T) {
			h := history{attempt: 3, doubts: c.doubts}
			require.Equal(t, c.want, h.judge(c.attempt, c.parked, c.outcome, c.held))
			require.ElementsMatch(t, c.left, h.doubts)
		})
	}
}

func TestFinal(t *testing.T) {
	h := history{}
	require.Equal(t, edge.ErrNoLeader, h.final(true, edge.ErrNoLeader))
	require.Equal(t, edge.ErrExiting, h.final(true, edge.ErrExiting))
	require.Equal(t, edge.ErrInDoubt, h.final(false, edge.ErrNoLeader), "an attempt is under way")
	h.refused = true
	require.Equal(t, edge.ErrNotEnough, h.final(true, edge.ErrNoLeader))
	h.doubts = []uint32{1}
	require.Equal(t, edge.ErrInDoubt, h.final(true, edge.ErrNoLeader))
}

func TestPutListKeepsTheOrder(t *testing.T) {
	var l putList
	for i, n := range []uint64{5, 1, 3, 4, 2} {
		p := &put{place: n}
		if i%2 == 0 {
			l.insertOld(p)
		} else {
			l.insertNew(p)
		}
	}
	l.remove(l.head.next) // 2
	l.remove(l.tail)      // 5
	var got []uint64
	for p := l.head; p != nil; p = p.next {
		got = append(got, p.place)
	}
	require.Equal(t, []uint64{1, 3, 4}, got)
	require.Equal(t, 3, l.n)
}
