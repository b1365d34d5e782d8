package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		doubts  []uint32
		attempt uint32 // whose answer it is; the newest is 3
		parked  bool
		outcome outcome.Outcome
		held    bool
		want    verdict
		left    []uint32
	}{
		"committed":                            {attempt: 3, outcome: outcome.Committed, want: committed},
		"an old attempt was committed":         {doubts: []uint32{1}, attempt: 1, outcome: outcome.Committed, want: committed, left: []uint32{1}},
		"duplicate while parked":               {attempt: 3, parked: true, outcome: outcome.Duplicate, want: committed},
		"not leader":                           {attempt: 3, outcome: outcome.NotLeader, want: tryAgain},
		"not enough, early":                    {attempt: 3, outcome: outcome.NotEnoughReplicas, want: tryAgain},
		"not enough, held":                     {attempt: 3, outcome: outcome.NotEnoughReplicas, held: true, want: refuse},
		"not enough, held, with a doubt":       {doubts: []uint32{1}, attempt: 3, outcome: outcome.NotEnoughReplicas, held: true, want: tryAgain, left: []uint32{1}},
		"rolled back":                          {attempt: 3, outcome: outcome.RolledBack, want: refuse},
		"rolled back, with a doubt":            {doubts: []uint32{2}, attempt: 3, outcome: outcome.RolledBack, want: tryAgain, left: []uint32{2}},
		"in doubt":                             {attempt: 3, outcome: outcome.InDoubt, want: tryAgain, left: []uint32{3}},
		"an old doubt was not written":         {doubts: []uint32{1, 2}, attempt: 1, outcome: outcome.NotLeader, want: ignore, left: []uint32{2}},
		"an old doubt was rolled back":         {doubts: []uint32{2}, attempt: 2, outcome: outcome.RolledBack, want: ignore},
		"an old doubt stays in doubt":          {doubts: []uint32{2}, attempt: 2, outcome: outcome.InDoubt, want: ignore, left: []uint32{2}},
		"the newest, given up, was not stored": {doubts: []uint32{3}, attempt: 3, parked: true, outcome: outcome.NotLeader, want: ignore},
	} {
		t.Run(name, func(t *testing.T) {
			h := history{attempt: 3, doubts: c.doubts}
			require.Equal(t, c.want, h.judge(c.attempt, c.parked, outcome.Completion{Outcome: c.outcome, InSync: 1, Minimum: 2}, c.held))
			require.ElementsMatch(t, c.left, h.doubts)
		})
	}
}

// Every outcome of the table does to a put as its effect says, and every effect does something.
func TestEveryOutcomeSettlesAPut(t *testing.T) {
	seen := map[outcome.Effect]bool{}
	for _, row := range outcome.Rows() {
		if row.Outcome == 0 {
			continue
		}
		seen[row.Effect] = true
		h := history{attempt: 1}
		got := h.judge(1, false, outcome.Completion{Outcome: row.Outcome}, true)
		switch row.Effect {
		case outcome.Commits:
			require.Equal(t, committed, got, "outcome %d", row.Outcome)
		case outcome.Again:
			require.Equal(t, tryAgain, got, "outcome %d", row.Outcome)
			require.Empty(t, h.doubts)
		case outcome.AgainWhileHeld, outcome.Refuses:
			require.Equal(t, refuse, got, "outcome %d", row.Outcome)
			require.Error(t, row.Err)
		case outcome.Doubts:
			require.Equal(t, tryAgain, got, "outcome %d", row.Outcome)
			require.Equal(t, []uint32{1}, h.doubts)
		default:
			t.Errorf("outcome %d has effect %d", row.Outcome, row.Effect)
		}
		r := wire.Reply{Attempt: 1, Outcome: row.Outcome}
		require.Equal(t, r, wire.DecodeReply(wire.AppendReply(nil, r)))
		require.NoError(t, new(Gateway).takeReplies(wire.Header{Count: 1}, wire.AppendReply(nil, r)), "outcome %d", row.Outcome)
	}
	require.Len(t, seen, int(outcome.Doubts))
}

func TestFinal(t *testing.T) {
	h := history{}
	require.Equal(t, outcome.ErrNoLeader, h.final(true, outcome.ErrNoLeader))
	require.Equal(t, outcome.ErrExiting, h.final(true, outcome.ErrExiting))
	require.Equal(t, outcome.ErrInDoubt, h.final(false, outcome.ErrNoLeader), "an attempt is under way")
	h.judge(h.attempt, false, outcome.Completion{Outcome: outcome.NotEnoughReplicas, InSync: 1, Minimum: 2}, false)
	err := h.final(true, outcome.ErrNoLeader)
	require.ErrorIs(t, err, outcome.ErrNotEnough)
	require.EqualError(t, err, "not enough in-sync replicas (1 of 2), not stored")
	h.doubts = []uint32{1}
	require.Equal(t, outcome.ErrInDoubt, h.final(true, outcome.ErrNoLeader))
}

func TestPutListKeepsTheOrder(t *testing.T) {
	var l putList
	for i, n := range []uint64{5, 1, 3, 4, 2} {
		p := &put{position: n}
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
		got = append(got, p.position)
	}
	require.Equal(t, []uint64{1, 3, 4}, got)
	require.Equal(t, 3, l.n)
}
