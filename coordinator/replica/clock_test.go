package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestRepeatIsRecognisedWhateverTheClocksSay: the wall clock of a leader jumps between a put
// and its repeat. The repeat is answered with the place of the first attempt, by that leader
// and by the next, on every replica.
func TestRepeatIsRecognisedWhateverTheClocksSay(t *testing.T) {
	const ahead = 3600e9
	for name, jump := range map[string]int64{"ahead": ahead, "back": -ahead} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, 2)
			put := func(b *broker, ticket, n uint64, ns int64) {
				c.step(b, Propose{TimeNS: ns, Puts: []Put{{Ticket: ticket, Draft: draft(n, "once")}}})
				c.settle()
			}
			put(c.at(1), 1, 1, ahead+1)
			put(c.at(1), 2, 2, ahead+1+jump)
			put(c.at(1), 3, 1, ahead+1+jump)
			require.Equal(t, []outcome.Outcome{outcome.Committed, outcome.Committed, outcome.Duplicate}, []outcome.Outcome{c.at(1).outcome(1), c.at(1).outcome(2), c.at(1).outcome(3)})
			require.Len(t, c.at(1).bodies(), 2)
			for i := 2; i <= 3; i++ {
				_, known := c.at(i).m.recent.Find(ident.RequestID{Producer: 7, N: 1})
				require.True(t, known, "n%d", i)
			}
		})
	}
}

// batchOf is a batch of producer 7.
func batchOf(n uint64) queue.Batch {
	return queue.Batch{
		Request: ident.RequestID{Producer: 7, N: n}, Count: 1,
		At:  ident.Position{Offset: ident.Offset(n - 1), Sequence: ident.Sequence(n)},
		End: ident.Position{Offset: ident.Offset(n), Sequence: ident.Sequence(n + 1)},
	}
}

// TestRepeatAfterARestart: the store gives the newest puts, however old they say they are.
// They are recognised for a whole window from then on, also by a machine that is opened
// late in the life of its process.
func TestRepeatAfterARestart(t *testing.T) {
	o := options("n1", 1)
	m := New(queue.Restored{Recent: []queue.RecentPut{{Request: batchOf(1).Request, First: 1, Count: 1, End: batchOf(1).End}}}, &memoryIndex{}, &listRegister{}, o)
	var out Effects
	began := int64(1e7)
	m.Step(Tick{NowMS: began}, &out)
	known := func() bool {
		_, ok := m.recent.Find(ident.RequestID{Producer: 7, N: 1})
		return ok
	}
	m.Step(Tick{NowMS: began + m.o.RepeatMS}, &out)
	m.recent.Add(batchOf(2), m.nowMS)
	require.True(t, known())
	m.Step(Tick{NowMS: began + m.o.RepeatMS + 1}, &out)
	m.recent.Add(batchOf(3), m.nowMS)
	require.False(t, known(), "the window has passed")
}
