package replica

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// withID is a put of one message with an id.
func withID(t *testing.T, id string) queue.Draft {
	d := queue.NewDraft(0)
	require.NoError(t, d.AddMessage(queue.Message{Identity: queue.IdentityOf([]byte(id))}))
	return d.Draft(ident.RequestID{})
}

// sealedID is the batch of such a put, with the clock of the partition.
func sealedID(t *testing.T, id string, at ident.Position, crc uint32, clock queue.Clock) queue.Batch {
	d := withID(t, id)
	d.Clock = clock
	return d.Seal(at, 1, crc, 1)
}

// hasID reports whether the window of a machine has an id.
func hasID(t *testing.T, m *Machine, id string) bool {
	d := withID(t, id)
	return m.dedupe.Recognise(&d).Known == 1
}

// TestTheWindowIsWhatIsSet: also a short one, and one that is changed.
func TestTheWindowIsWhatIsSet(t *testing.T) {
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{DedupeMS: 1000})
	var out Effects
	m.Step(Tick{NowMS: 1000}, &out)
	m.out = &out
	m.appendBatch(sealedID(t, "a", m.log.end, 0, m.dedupe.Stamp(1000)))
	m.Step(Tick{NowMS: 2000}, &out)
	require.True(t, hasID(t, m, "a"))
	m.Step(Dedupe{WindowMS: 3000}, &out)
	m.Step(Tick{NowMS: 4000}, &out)
	require.True(t, hasID(t, m, "a"))
	m.Step(Tick{NowMS: 4201}, &out)
	require.False(t, hasID(t, m, "a"))
	require.True(t, m.dedupe.ReachesBack(4201))
}

// TestOldIDsOfACopiedLog: a replica that copies a long log keeps the ids of the leader's window, whatever
// the wall clocks have written into the log.
func TestOldIDsOfACopiedLog(t *testing.T) {
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{DedupeMS: 60_000})
	m.out = &Effects{}
	at := ident.Position{}
	places := 0
	take := func(clock queue.Clock, leaderMS int64) {
		t.Helper()
		b := sealedID(t, fmt.Sprint(places), at, m.log.lastCRC, clock)
		places++
		m.appendFrom("n1", &Message{Kind: MsgAppend, Epoch: 1, Prev: at, PrevCRC: m.log.lastCRC, Batches: []queue.Batch{b}, ClockMS: leaderMS})
		at = b.End
	}
	knows := func() (known []int) {
		for i := range places {
			if hasID(t, m, fmt.Sprint(i)) {
				known = append(known, i)
			}
		}
		return known
	}
	take(10, 1_001_000)
	require.Empty(t, knows())
	take(9000, 1_001_000)
	take(9600, 1_001_000)
	require.Equal(t, []int{2}, knows())
	take(10_000, 1_001_000)
	require.Equal(t, []int{2, 3}, knows())
	take(10_010, 0)
	require.Equal(t, []int{2, 3, 4}, knows(), "a leader that does not say its clock")
}
