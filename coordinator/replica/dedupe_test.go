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

// sealedID is the batch of such a put.
func sealedID(t *testing.T, id string, at ident.Position, crc uint32, timeNS int64) queue.Batch {
	d := withID(t, id)
	return d.Seal(at, 1, crc, timeNS)
}

// hasID reports whether the window of a machine has an id.
func hasID(t *testing.T, m *Machine, id string) bool {
	d := withID(t, id)
	return m.dedupe.Recognise(&d).Known == 1
}

// TestALongerWindowDoesNotReachBackAtOnce: what the shorter one forgot may be published again.
func TestALongerWindowDoesNotReachBackAtOnce(t *testing.T) {
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{DedupeMS: 31_000})
	var out Effects
	m.Step(Tick{NowMS: 1000}, &out)
	m.Step(Dedupe{WindowMS: 60_000}, &out)
	require.True(t, m.dedupe.ReachesBack(1000), "nothing was forgotten")
	m.Step(Dedupe{WindowMS: 40_000}, &out)
	identified := sealedID(t, "a", ident.Position{}, 0, 1)
	m.dedupe.Add(&identified, 1000)
	m.Step(Tick{NowMS: 50_000}, &out)
	require.Zero(t, m.dedupe.Len())
	m.Step(Dedupe{WindowMS: 50_000}, &out)
	require.False(t, m.dedupe.ReachesBack(59_999))
	require.True(t, m.dedupe.ReachesBack(60_000))
	m.Step(Dedupe{WindowMS: 1000}, &out)
	m.dedupe.Add(&identified, 50_000)
	m.Step(Tick{NowMS: 50_000 + DefaultRepeatMS}, &out)
	require.Equal(t, 1, m.dedupe.Len(), "edges repeat puts for as long")
	m.Step(Tick{NowMS: 50_001 + DefaultRepeatMS}, &out)
	require.Zero(t, m.dedupe.Len())
}

// TestOldIDsOfACopiedLog: a replica that copies a long log keeps the ids of the leader's window, whatever
// the wall clocks have written into the log.
func TestOldIDsOfACopiedLog(t *testing.T) {
	const second, hour = int64(1e9), int64(3600e9)
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{DedupeMS: 60_000})
	m.out = &Effects{}
	at := ident.Position{}
	var places []ident.Offset
	take := func(window ident.Offset, timeNS int64) {
		t.Helper()
		b := sealedID(t, fmt.Sprint(len(places)), at, m.log.lastCRC, timeNS)
		places = append(places, at.Offset)
		m.appendFrom("n1", &Message{Kind: MsgAppend, Epoch: 1, Prev: at, PrevCRC: m.log.lastCRC, Batches: []queue.Batch{b}, Window: window})
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
	take(1, second)
	take(1, 300*second)
	take(1, hour) // an hour in which nothing came, or a clock that was ahead
	require.Equal(t, []int{0, 1, 2}, knows())
	take(places[1]+1, hour+second)
	require.Equal(t, []int{1, 2, 3}, knows())
	take(0, hour+second)
	require.Equal(t, []int{1, 2, 3, 4}, knows(), "a leader that does not say where its window begins")
	take(at.Offset+1, hour+second)
	require.Equal(t, []int{5}, knows())
}
