package journal

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// TestBusyWhileTheDiskHangs: for every call that may not return, and both waiters: the journal's
// goroutine and the caller of Flush.
func TestBusyWhileTheDiskHangs(t *testing.T) {
	for _, c := range []struct {
		name   string
		noSync bool
		call   vfstest.Call
		file   string
		after  time.Duration // duration before the call
	}{
		{"sync of a group", false, vfstest.CallSync, fileSuffix, 0},
		{"write of a group", false, vfstest.CallWrite, fileSuffix, 0},
		{"sync of the acknowledgement", false, vfstest.CallSync, ackName, ackPause},
		{"write of the acknowledgement", false, vfstest.CallWrite, ackName, 0},
		{"write of a group by the caller", true, vfstest.CallWrite, fileSuffix, 0},
		{"write of the acknowledgement by the timer", true, vfstest.CallWrite, ackName, ackPause},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var armed atomic.Bool
				hang := make(chan struct{})
				j, o := syncedFill(t, vfstest.NewMemory(), func(op vfstest.Op) error {
					if armed.Load() && op.Call == c.call && strings.HasSuffix(op.Name, c.file) {
						<-hang
					}
					return nil
				}, c.noSync, 3)
				time.Sleep(2 * ackPause)
				require.Zero(t, j.Busy())
				armed.Store(true)
				var caller sync.WaitGroup
				var number uint64
				caller.Go(func() {
					number = j.Submit(text("x"))
					j.Flush()
				})
				time.Sleep(c.after)
				synctest.Wait()
				require.Positive(t, j.Busy())
				time.Sleep(time.Minute)
				require.GreaterOrEqual(t, j.Busy(), time.Minute)
				close(hang)
				caller.Wait()
				require.NoError(t, o.wait(number))
				time.Sleep(2 * ackPause)
				require.Zero(t, j.Busy())
				require.NoError(t, j.Close())
			})
		})
	}
}

// TestBusyTakesNoLock: the watch must not wait for the disk that it watches.
func TestBusyTakesNoLock(t *testing.T) {
	j, _, _ := fill(t, vfstest.NewMemory(), 3)
	j.writing.Lock()
	j.mu.Lock()
	j.acked.mu.Lock()
	_ = j.Busy()
	j.acked.mu.Unlock()
	j.mu.Unlock()
	j.writing.Unlock()
	require.NoError(t, j.Close())
}
