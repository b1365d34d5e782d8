package journal

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"path"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

func TestGoldenAcknowledgement(t *testing.T) {
	var b [ackBytes]byte
	f, err := vfstest.NewMemory().Create("acknowledged")
	require.NoError(t, err)
	require.NoError(t, (&acknowledgements{file: f}).write(&b, 0x0102030405060708))
	require.Equal(t, "4c4b41312e0973e808070605040302010000000000000000", hex.EncodeToString(b[:]))
}

// isAck reports whether a call concerns the acknowledgement record.
func isAck(op vfstest.Op, call vfstest.Call) bool {
	return op.Call == call && path.Base(op.Name) == ackName
}

// syncedFill writes n groups on a file system with a hook, in a bubble, and leaves the journal
// running.
func syncedFill(t *testing.T, mem *vfstest.Memory, hook vfstest.Hook, noSync bool, n int) (*Journal, *owner) {
	t.Helper()
	j, _, err := Open(Options{FS: vfstest.Wrap(mem, hook), Dir: "j", FileBytes: 16 << 10, NoSync: noSync}, Mark{}, func([]byte) error { return nil })
	require.NoError(t, err)
	require.NoError(t, mem.SyncDir("."))
	o := newOwner()
	require.NoError(t, j.Start(o.durable))
	for i := range n {
		number := j.Submit(text(fmt.Sprint(i)))
		j.Flush()
		require.NoError(t, o.wait(number))
	}
	return j, o
}

// TestAcknowledgementSurvivesAPowerCut: at the latest one pause after the last group.
func TestAcknowledgementSurvivesAPowerCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfstest.NewMemory()
		j, _ := syncedFill(t, mem, func(vfstest.Op) error { return nil }, false, 20)
		time.Sleep(2 * ackPause)
		for k := range uint64(8) {
			group, err := Acknowledged(mem.CrashClone(rand.New(rand.NewPCG(k, k))), "j")
			require.NoError(t, err)
			require.Equal(t, j.Mark().Group, group)
		}
		require.NoError(t, j.Close())
	})
}

// TestAcknowledgementSurvivesAKill: at once if groups are synced, else one pause later.
func TestAcknowledgementSurvivesAKill(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			mem := vfstest.NewMemory()
			j, _ := syncedFill(t, mem, func(vfstest.Op) error { return nil }, noSync, 20)
			synctest.Wait() // the record is written after the answer
			if noSync {
				time.Sleep(2 * ackPause)
			}
			group, err := Acknowledged(mem, "j")
			require.NoError(t, err)
			require.Equal(t, j.Mark().Group, group)
			require.NoError(t, j.Close())
		})
	}
}

// TestAcknowledgementTakesLittleOfTheDisk: on a slow disk the record is synced less often, and not
// at all while the journal is idle.
func TestAcknowledgementTakesLittleOfTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 50 * time.Millisecond
		var syncs atomic.Int64
		mem := vfstest.NewMemory()
		j, o := syncedFill(t, mem, func(op vfstest.Op) error {
			if isAck(op, vfstest.CallSync) && syncs.Add(1) > 1 { // the first is that of Start
				time.Sleep(slow)
			}
			return nil
		}, false, 1)
		began := time.Now()
		for time.Since(began) < time.Minute {
			require.NoError(t, o.wait(j.Submit(text("x"))))
			time.Sleep(time.Millisecond)
		}
		require.InDelta(t, time.Minute/(ackShare*slow), syncs.Load()-1, 2)
		time.Sleep(time.Minute)
		after := syncs.Load()
		time.Sleep(time.Hour)
		require.Equal(t, after, syncs.Load(), "an idle journal")
		require.NoError(t, j.Close())
	})
}

// TestAcknowledgementDuringItsSync: the last group comes during the sync of the record, which may
// not include it.
func TestAcknowledgementDuringItsSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 50 * time.Millisecond
		mem := vfstest.NewMemory()
		var syncs atomic.Int64
		var before *vfstest.Memory
		j, o := syncedFill(t, mem, func(op vfstest.Op) error {
			if isAck(op, vfstest.CallSync) && syncs.Add(1) == 2 {
				time.Sleep(slow)
				mem.DropWriteback(op.Name) // writes during the sync are not part of it
				before = mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
			}
			return nil
		}, false, 1)
		time.Sleep(ackPause + slow/2)
		require.False(t, j.acked.mu.TryLock(), "Close waits for the sync")
		require.NoError(t, o.wait(j.Submit(text("the last"))))
		time.Sleep(slow)
		synctest.Wait()
		group, err := Acknowledged(before, "j")
		require.NoError(t, err)
		require.Less(t, group, j.Mark().Group, "it came after the sync began")
		time.Sleep(time.Hour)
		require.EqualValues(t, 3, syncs.Load())
		require.NoError(t, j.Close())
	})
}

// TestFailedAcknowledgementIsFinal: it may be the first sign of a broken disk.
func TestFailedAcknowledgementIsFinal(t *testing.T) {
	for _, call := range []vfstest.Call{vfstest.CallSync, vfstest.CallWrite} {
		synctest.Test(t, func(t *testing.T) {
			var armed atomic.Bool
			var calls atomic.Int64
			j, o := syncedFill(t, vfstest.NewMemory(), func(op vfstest.Op) error {
				if armed.Load() && isAck(op, call) {
					calls.Add(1)
					return syscall.EIO
				}
				return nil
			}, false, 1)
			time.Sleep(2 * ackPause)
			armed.Store(true)
			j.Submit(text("the last")) // answered before the error
			time.Sleep(2 * ackPause)
			require.ErrorIs(t, o.wait(j.Submit(text("more"))), syscall.EIO)
			time.Sleep(time.Minute)
			require.EqualValues(t, 1, calls.Load(), "it was tried again")
			require.ErrorIs(t, j.Close(), syscall.EIO)
		})
	}
}

// TestDamagedAcknowledgementProvesNothing: neither a loss nor its absence.
func TestDamagedAcknowledgementProvesNothing(t *testing.T) {
	fs := vfstest.NewMemory()
	j, _, want := fill(t, fs, 3)
	require.NoError(t, j.Close())
	name := path.Join("j", ackName)
	for bit := range int64(8 * ackBytes) {
		require.NoError(t, fs.Flip(name, bit/8, uint8(bit%8)))
		group, err := Acknowledged(fs, "j")
		require.NoError(t, err)
		require.Zero(t, group)
		require.NoError(t, fs.Flip(name, bit/8, uint8(bit%8)))
	}
	require.NoError(t, fs.Flip(name, 9, 0))
	_, got, r := open(t, fs, begin)
	require.Equal(t, want, got)
	require.NoError(t, r.Corrupt)
}
