package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestChangeOfAPartitionThatHasGone: its caller is answered, wherever the change was.
func TestChangeOfAPartitionThatHasGone(t *testing.T) {
	for _, ended := range []bool{false, true} {
		a := newAlone(t)
		l := newLoop(a.e.o, nil, nil)
		a.p.loop = l
		a.p.queue = nsqd.NewPartition("orders", a.p.id, a.p, a.p, nsqd.Options{})
		a.p.queue.Lead(1)
		done := make(chan error, 1)
		go func() {
			_, err := a.p.queue.CreateChannel(context.Background(), "ch", nsqd.ChannelOptions{})
			done <- err
		}()
		<-l.events.wake
		if ended {
			l.abandonAll()
		} else {
			for _, w := range l.events.take(nil) {
				l.handle(&w)
			}
		}
		require.ErrorIs(t, <-done, nsqd.ErrNotReplicated)
	}
}

// TestEndOfALoopEndsWhatItWasToHost: its view no longer says that it serves.
func TestEndOfALoopEndsWhatItWasToHost(t *testing.T) {
	a := newAlone(t)
	l := newLoop(a.e.o, nil, nil)
	a.p.loop, a.p.leads = l, 1
	l.events.enqueue(event{kind: eventAdd, id: a.p.id, partition: a.p})
	l.abandonAll()
	require.Equal(t, replica.Stopped, a.p.View().Role)
}

// TestRetiredMachineStands: it gets neither the time nor a sync, or it would send.
func TestRetiredMachineStands(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	r.loop.active = []*Partition{r.host}
	delete(r.loop.hosted, r.host.id)
	r.loop.nowMS += 1000
	r.loop.tick()
	r.loop.synced(r.loop.token, nil)
	require.Empty(t, r.loop.touched)
	r.loop.dropIdle()
	require.Empty(t, r.loop.active)
}

// TestIdlePartitionKeepsNoBuffers: its table of tickets is released with the arrays of its effects, but not before the
// last ticket is answered.
func TestIdlePartitionKeepsNoBuffers(t *testing.T) {
	a := newAlone(t)
	r, _ := gathering()
	a.p.loop, a.p.machine = r.loop, r
	answer := make(single, 1)
	n := a.p.newTicket(ticket{done: answer})
	a.p.out.Send = make([]replica.Envelope, 0, 8)

	a.p.releaseBuffers()
	require.Zero(t, a.p.out)
	require.Len(t, a.p.tickets.open, 1)
	a.p.complete(outcome.Completion{Ticket: n})
	require.Len(t, answer, 1)
	a.p.releaseBuffers()
	require.Nil(t, a.p.tickets.open)
	require.Equal(t, n+1, a.p.newTicket(ticket{}), "numbers continue")
}

// TestPutsOfALoopThatEnds: a later leader may commit the puts that its machines have
// written; those that they have not got, and later ones, are not stored.
func TestPutsOfALoopThatEnds(t *testing.T) {
	a := newAlone(t)
	a.e.o.Metrics = metrics.New(1)
	l := newLoop(a.e.o, nil, nil)
	a.e.loops = []*loop{l}
	l.hosted[a.p.id], a.p.loop = a.p, l
	answers := []single{make(single, 1), make(single, 1), make(single, 1), make(single, 1)}
	a.p.newTicket(ticket{isPut: true, done: answers[0]})
	a.p.puts = []replica.Put{{Ticket: a.p.newTicket(ticket{done: answers[1], isPut: true})}}
	l.puts.Enter()
	l.puts.Enter()
	a.e.Propose(a.p.id, queue.Marker(), answers[2])
	l.abandonAll()
	a.e.Propose(a.p.id, queue.Marker(), answers[3])
	for i, want := range []outcome.Outcome{outcome.InDoubt, outcome.NotLeader, outcome.NotLeader, outcome.NotLeader} {
		require.Len(t, answers[i], 1)
		require.Equal(t, want, (<-answers[i]).Outcome)
	}
}

// TestMutedReplicaSaysNothing: it may be trashed any moment, so it acknowledges nothing.
func TestMutedReplicaSaysNothing(t *testing.T) {
	a, peers := newAlone(t), &line{}
	l := newLoop(&Options{Transport: peers}, nil, nil)
	for _, muted := range []bool{false, true} {
		a.p.muted.Store(muted)
		a.p.out.Send = []replica.Envelope{{To: "n2", Msg: replica.Message{Kind: replica.MsgAppendAck}}}
		l.deliver(a.p)
		require.Equal(t, 1, peers.sent)
	}
}
