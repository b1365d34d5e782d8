package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/stretchr/testify/require"
)

// unsynced is a journal that writes in Flush, as with --durability=replicated, on a disk
// that may hang.
type unsynced struct {
	disk    chan struct{} // nil: it does not hang
	hangs   chan struct{} // capacity 1: a Flush does
	sink    store.Sink
	tokens  []uint64
	flushes int
	wakes   int
}

func (u *unsynced) Queue(_ []store.Submission, sink store.Sink, token uint64) bool {
	u.sink, u.tokens = sink, append(u.tokens, token)
	return true
}

func (u *unsynced) Flush() {
	u.flushes++
	if u.disk != nil {
		u.hangs <- struct{}{}
		<-u.disk
	}
	tokens := u.tokens
	u.tokens = nil
	for _, token := range tokens {
		u.sink.Synced(token, nil)
	}
}

func (u *unsynced) Wake() { u.wakes++ }

// gatheringOn is an engine with one loop, whose machine records, on a journal.
func gatheringOn(u *unsynced) (*Engine, *recorder) {
	e, r, _ := resting()
	r.loop.o.Journal, r.loop.flusher.journal = u, u
	e.o.Journal = u
	return e, r
}

// TestFlushFollowsThePass: an inline pass writes nothing; Flush writes, and runs the pass
// that follows in the same goroutine.
func TestFlushFollowsThePass(t *testing.T) {
	u := &unsynced{}
	e, r := gatheringOn(u)
	e.Propose(r.host.id, queue.Draft{Bytes: make([]byte, 100), Count: 1}, make(single, 1))
	require.Equal(t, []int{1}, r.groups)
	require.Zero(t, u.flushes)
	require.NotEmpty(t, r.loop.unsynced)
	e.Flush()
	require.Equal(t, 1, u.flushes)
	require.Empty(t, r.loop.unsynced, "the machine knows that it is durable")
	require.Empty(t, r.loop.events.wake, "no goroutine is woken")
	e.Flush()
	require.Equal(t, 1, u.flushes, "nothing is queued")
}

// TestForgottenFlushIsMadeUpFor: a pass ran in a goroutine that does not flush afterwards.
func TestForgottenFlushIsMadeUpFor(t *testing.T) {
	u := &unsynced{}
	e, r := gatheringOn(u)
	e.Propose(r.host.id, queue.Draft{Bytes: make([]byte, 100), Count: 1}, make(single, 1))
	e.relieve()
	require.Equal(t, 1, u.wakes)
	e.relieve()
	require.Equal(t, 1, u.wakes)
}

// TestHungFlushStopsNoPass: the loop's goroutine hangs in the disk; events are processed all
// the same, so that its machines step down.
func TestHungFlushStopsNoPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unsynced{disk: make(chan struct{}), hangs: make(chan struct{}, 1)}
		e, r := gatheringOn(u)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(r.loop.work)
		running.Go(func() { e.RunClock(ctx) })
		put := putOf(100)
		put.id, put.done = r.host.id, make(single, 1)
		require.True(t, r.loop.events.enqueue(put))
		<-u.hangs
		ack := make(chan struct{})
		require.True(t, r.loop.events.enqueue(event{kind: eventBarrier, ack: ack}))
		select {
		case <-ack:
		case <-time.After(time.Second):
			t.Error("the loop stands still")
		}
		require.Zero(t, e.Busy()[0], "no pass is under way")
		close(u.disk)
		cancel()
		synctest.Wait()
		r.loop.stop()
		running.Wait()
	})
}

// TestLoopThatHangsDoesNotServe: its machines cannot step down, and a successor may be at
// work. Another loop's partitions are served.
func TestLoopThatHangsDoesNotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAlone(t)
		c, err := a.p.queue.CreateChannel(t.Context(), "c", nsqd.ChannelOptions{Ordered: true})
		require.NoError(t, err)
		s := &nsqd.Subscriber{Direct: true, MsgTimeoutMS: 60_000}
		require.NoError(t, c.Attach(s))
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { a.e.RunClock(ctx) })
		defer done.Wait()
		defer cancel()
		delivered := func() bool {
			got := c.Pull(s, 1, nil)
			for _, d := range got {
				require.NoError(t, c.Requeue(s, nsqd.ReceiptOf(&d), 0))
			}
			return len(got) > 0
		}
		a.say("m0")
		time.Sleep(time.Second)
		require.True(t, delivered())
		hung := a.e.loops[0]
		hung.passes.Begin()
		time.Sleep(2*silence - stall)
		require.False(t, delivered(), "a pass has hung for 1.7 s")
		require.GreaterOrEqual(t, a.e.Busy()[0], silence)
		hung.passes.End()
		time.Sleep(silence)
		require.True(t, delivered())
	})
}
