package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

var errKilled = errors.New("the process was killed")

// answer receives the completion of one submission.
type answer chan error

func (a answer) Synced(_ uint64, err error) { a <- err }

// goOn appends to every partition of a store that was just opened, and returns the acknowledged
// ends.
func goOn(t *testing.T, s *Store) []border {
	t.Helper()
	var ends []border
	var subs []Submission
	for _, p := range s.Partitions() {
		r := p.Restored()
		d := queue.NewDraft(0)
		_ = d.AddMessage(queue.Message{Body: []byte("after the kill")})
		draft := d.Draft(ident.RequestID{Producer: 8, N: 1})
		b := draft.Seal(r.End, r.Epoch, r.LastCRC, r.LastTimeNS)
		p.Index().Append(b.Record())
		subs = append(subs, Submission{p, []queue.Write{{Kind: queue.WriteAppend, Epoch: r.Epoch, Batches: []queue.Batch{b}}}})
		ends = append(ends, border{b.End, b.CRC, b.Time})
	}
	a := make(answer, 1)
	s.Submit(subs, a, 1)
	require.NoError(t, <-a)
	return ends
}

// TestKillThenPower kills the process before each disk call, restarts it on the content of the page
// cache, lets it acknowledge, and then cuts the power: data that a start finds in the cache may not
// be on the disk.
func TestKillThenPower(t *testing.T) {
	const seed, steps = 9, 14
	for n := int64(1); ; n++ {
		mem := vfstest.NewMemory()
		var calls atomic.Int64
		w, err := newWorld(t, seed, vfstest.Wrap(mem, func(vfstest.Op) error {
			if calls.Add(1) >= n {
				return errKilled
			}
			return nil
		}))
		if err == nil {
			_ = w.run(steps)
			_ = w.store.Close()
		}
		if calls.Load() < n {
			t.Logf("%d calls", n-1)
			return
		}
		t.Run(fmt.Sprint("call-", n), func(t *testing.T) { powerAfterRestart(t, mem, n) })
	}
}

func powerAfterRestart(t *testing.T, mem *vfstest.Memory, n int64) {
	s, err := Open(testOptions(mem))
	require.NoError(t, err)
	var ends []border
	for _, p := range s.Partitions() {
		r := p.Restored()
		ends = append(ends, border{r.End, r.LastCRC, r.LastTimeNS})
	}
	cutPower(t, s, mem, n, ends)
	cutPower(t, s, mem, n, goOn(t, s))
	require.NoError(t, s.Close())
}

// cutPower opens what power cuts leave of a store whose acknowledged logs have these ends.
func cutPower(t *testing.T, s *Store, mem *vfstest.Memory, n int64, ends []border) {
	t.Helper()
	for k := range uint64(4) {
		left := mem.CrashClone(rand.New(rand.NewPCG(uint64(n), k)))
		again, err := Open(testOptions(left))
		require.NoError(t, err)
		list := again.Partitions()
		require.Len(t, list, len(ends))
		for i, p := range list {
			require.Equal(t, s.Partitions()[i].StoreID(), p.StoreID(), "a power cut is not corruption")
			require.GreaterOrEqual(t, p.Restored().End.Offset, ends[i].at.Offset)
			checkLog(t, p, expected{end: ends[i], start: p.Start()})
		}
		require.NoError(t, again.Close())
	}
}
