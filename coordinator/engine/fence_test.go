package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// A peer counts as up until it was silent for a while; that while is part of the
// second for which a leader may serve unheard.
func TestSilenceOfPeersCounts(t *testing.T) {
	for silent, want := range map[time.Duration]time.Duration{
		0:                      silence - defaultSilent,
		300 * time.Millisecond: silence - 300*time.Millisecond,
		5 * time.Second:        2 * tickEvery, // asked for: a stop of a moment
	} {
		e := newEngine(nil)
		e.o.Silent = silent
		require.Equal(t, want, e.unheard())
	}
}

// stalling is a Replicator that holds up the caller of each change.
type stalling struct {
	nsqd.Replicator
	by atomic.Int64 // ns
}

func (s *stalling) Submit(c nsqd.Change) {
	time.Sleep(time.Duration(s.by.Load()))
	s.Replicator.Submit(c)
}

// TestFenceAfterAStall: a process that was stopped for seconds still counts its peers as up,
// while a successor may lead. An ordered channel does not deliver on the first tick after
// the stall, but when the transport has had the time to find the peers silent.
func TestFenceAfterAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAlone(t)
		stalls := &stalling{Replicator: a}
		a.p.queue = nsqd.NewPartition("orders", a.p.id, a.p, stalls, nsqd.Options{
			Fence: &a.e.fence, Wake: func(atNS int64) { a.e.deadlines.put(a.p, atNS) },
		})
		a.p.queue.Lead(1)
		c, err := a.p.queue.CreateChannel(t.Context(), "c", nsqd.ChannelOptions{Ordered: true})
		require.NoError(t, err)
		s := &nsqd.Subscriber{Direct: true, MsgTimeoutMS: 60_000}
		require.NoError(t, c.Attach(s))
		a.say("m0")

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
		time.Sleep(time.Second)
		require.True(t, delivered(), "all brokers answer")

		const stalled = 5 * time.Second
		stalls.by.Store(int64(stalled)) // the requeue, at the next tick, holds up RunClock
		require.True(t, delivered())
		time.Sleep(stalled)
		require.False(t, delivered(), "the fence was not extended")
		stalls.by.Store(0)
		waited := time.Duration(0)
		for !delivered() {
			time.Sleep(time.Millisecond)
			waited += time.Millisecond
			require.Less(t, waited, time.Minute)
		}
		require.GreaterOrEqual(t, waited, stall)
	})
}

// TestFenceThatOpensWakes: a consumer that waited for a message that came while the leader
// was silent is woken when all brokers answer again.
func TestFenceThatOpensWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAlone(t)
		c, err := a.p.queue.CreateChannel(t.Context(), "ch", nsqd.ChannelOptions{})
		require.NoError(t, err)
		s := &nsqd.Subscriber{Direct: true}
		require.NoError(t, c.Attach(s))
		<-s.Wake
		a.e.fence.Store(time.Now().Add(-time.Second).UnixNano())
		require.Empty(t, c.Pull(s, 1, nil))
		a.say("m0")
		require.Empty(t, s.Wake)
		a.e.extendAll(time.Now(), true)
		require.NotEmpty(t, s.Wake)
		require.Greater(t, a.e.fence.Load(), time.Now().UnixNano())
	})
}

// TestAnswerOfTheMetadataLetsServe: a process that is stopped again and again never comes to
// trust its belief in its replicas. A fresh answer of the metadata is enough for a channel
// that is not ordered.
func TestAnswerOfTheMetadataLetsServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAlone(t)
		c, err := a.p.queue.CreateChannel(t.Context(), "c", nsqd.ChannelOptions{Origin: nsqd.FromEarliest})
		require.NoError(t, err)
		s := &nsqd.Subscriber{Direct: true, MsgTimeoutMS: 60_000}
		require.NoError(t, c.Attach(s))
		d := queue.NewDraft(8)
		_ = d.AddMessage(queue.Message{Body: []byte("due")})
		a.write(d.Draft(ident.RequestID{}))
		a.p.view.Store(&replica.View{Role: replica.Leader, Committed: a.end, End: a.end, MinInSync: 0})
		now := time.Now()
		others := a.e.o.Reachability.(*cluster)
		others.named = now.Add(-time.Minute)
		a.e.extend(a.p, now, false)
		require.Empty(t, c.Pull(s, 1, nil))
		others.named = now
		a.e.extend(a.p, now, false)
		require.Len(t, c.Pull(s, 1, nil), 1)
	})
}
