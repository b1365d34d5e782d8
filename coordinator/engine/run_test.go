package engine

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// speaking is a machine that answers what it receives at once.
type speaking struct{ recorder }

func (s *speaking) Step(ev replica.Event, out *replica.Effects) {
	if _, ok := ev.(replica.Received); ok {
		out.Send = append(out.Send, replica.Envelope{To: "n2", Msg: replica.Message{Kind: replica.MsgAppendAck}})
	}
	s.recorder.Step(ev, out)
}

// line counts the frames that the other brokers got, and those that wait for a flush.
type line struct{ sent, queued, flushed int }

func (s *line) Send(ident.Node, rpc.Frame) error  { s.sent++; return nil }
func (s *line) Queue(ident.Node, rpc.Frame) error { s.queued++; return nil }
func (s *line) Flush(ident.Node)                  { s.flushed++ }

// resting is an engine whose loop's goroutine does nothing: all passes run inline.
func resting() (*Engine, *recorder, *line) {
	r, _ := gathering()
	r.host.machine = &speaking{*r}
	s := &r.host.machine.(*speaking).recorder
	said := &line{}
	s.loop.o.Transport, s.loop.o.Journal = said, s
	return newEngine(s.loop), s, said
}

func frameFor(p ident.Partition) rpc.Received {
	h := &messageHeader{id: p, msg: &replica.Message{Kind: replica.MsgAppendAck, Epoch: 1}}
	header, _ := h.AppendBinary(nil)
	return rpc.Received{Class: rpc.ClassReplica, Header: header}
}

// An uncontended put, or the last frame that was read, is processed inline. One of many is
// left to the loop, which gathers it.
func TestUncontendedPutNeedsNoGoroutine(t *testing.T) {
	e, r, _ := resting()
	draft := queue.Draft{Bytes: make([]byte, 100), Count: 1}
	e.Propose(r.host.id, draft, make(single, 1))
	require.Equal(t, []int{1}, r.groups)
	require.Empty(t, r.loop.events.wake)

	e.Propose(r.host.id, draft, make(single, 1))
	require.Equal(t, []int{1}, r.groups, "another put is in flight")
	require.NotEmpty(t, r.loop.events.wake)
}

func TestLargePutIsLeftToTheLoop(t *testing.T) {
	e, r, _ := resting()
	e.Propose(r.host.id, queue.Draft{Bytes: make([]byte, inlineBytes+1), Count: 1}, make(single, 1))
	require.Empty(t, r.groups)
	require.NotEmpty(t, r.loop.events.wake)
}

func TestLastFrameNeedsNoGoroutine(t *testing.T) {
	e, r, said := resting()
	f := frameFor(r.host.id)
	e.Receive("n2", 1, f)
	require.Equal(t, line{queued: 1, flushed: 1}, *said)
	f.More = true
	e.Receive("n2", 1, f)
	e.Receive("n2", 1, f)
	require.Equal(t, line{queued: 1, flushed: 1}, *said)
	require.NotEmpty(t, r.loop.events.wake)
	r.loop.pass(false, false) // as its goroutine does
	require.Equal(t, line{queued: 1, flushed: 1, sent: 2}, *said)
}

// A put that was answered is not in flight any more.
func TestAnsweredPutLeavesTheNextUncontended(t *testing.T) {
	e, r, _ := resting()
	draft := queue.Draft{Bytes: make([]byte, 100), Count: 1}
	for n := range 3 {
		e.Propose(r.host.id, draft, make(single, 1))
		require.Len(t, r.groups, n+1)
		r.host.complete(outcome.Completion{Ticket: r.host.tickets.last})
		r.loop.Synced(r.loop.token, nil)
	}
	require.Zero(t, r.loop.puts.N())
}

// A caller that does not get the run lock leaves its event to the holder, the loop's
// goroutine or another caller, which looks again.
func TestHolderOfTheRunLockLooksAgain(t *testing.T) {
	for _, inline := range []bool{false, true} {
		r, _ := gathering()
		l := r.loop
		w := event{kind: eventBarrier, ack: make(chan struct{})}
		submitted := false
		r.host.machine = &busy{recorder: r, again: func() {
			if !submitted {
				submitted = true
				var other sync.WaitGroup
				other.Go(func() { l.submitInline(w) }) // returns before the event is taken
				other.Wait()
			}
		}}
		go l.work()
		first := l.events.enqueue
		if inline {
			first = l.submitInline
		}
		first(event{kind: eventStep, id: r.host.id})
		wait.For(t, w.ack, "the event is not left")
		l.stop()
	}
}

// No event is left, however it was submitted.
func TestEventsAreNotLeft(t *testing.T) {
	r, _ := gathering()
	l := r.loop
	go l.work()
	defer l.stop()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 2000 {
				w := event{kind: eventBarrier, ack: make(chan struct{})}
				if (n+i)%3 == 0 {
					l.events.enqueue(w)
				} else {
					l.submitInline(w)
				}
				<-w.ack
			}
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	wait.For(t, done, "no event is left")
}

// Passes that enqueue ever more events are left to the loop after a few.
func TestInlinePassesEnd(t *testing.T) {
	r, _ := gathering()
	l, passes := r.loop, 0
	r.host.machine = &busy{recorder: r, again: func() {
		passes++
		l.events.add(event{kind: eventStep, id: r.host.id})
	}}
	l.submitInline(event{kind: eventStep, id: r.host.id})
	require.Equal(t, inlineMost, passes)
	require.NotEmpty(t, l.events.wake)
}

// busy is a machine of which each step enqueues another.
type busy struct {
	*recorder
	again func()
}

func (b *busy) Step(ev replica.Event, _ *replica.Effects) {
	if _, tick := ev.(replica.Tick); !tick {
		b.again()
	}
}

// With a linger passes begin that long after one another, so that they share more; no
// event waits longer.
func TestPassesLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := gathering()
		l := r.loop
		l.o.Linger = time.Millisecond
		var passes []time.Time
		r.host.machine = &busy{recorder: r, again: func() {
			if len(passes) == 0 || !passes[len(passes)-1].Equal(l.now) {
				passes = append(passes, l.now)
			}
		}}
		go l.work()
		for range 50 {
			l.submit(event{kind: eventStep, id: r.host.id}, true, 0)
			time.Sleep(100 * time.Microsecond)
		}
		w := event{kind: eventBarrier, ack: make(chan struct{})}
		began := time.Now()
		l.submit(w, true, 0)
		<-w.ack
		require.LessOrEqual(t, time.Since(began), l.o.Linger)
		l.stop()
		require.InDelta(t, 5, len(passes), 1, "50 in 5 ms")
		for i := range passes[1:] {
			require.GreaterOrEqual(t, passes[i+1].Sub(passes[i]), l.o.Linger)
		}
	})
}

// restless is a machine that counts its ticks and always has something to wait for.
type restless struct {
	*recorder
	ticks int
}

func (r *restless) Step(ev replica.Event, _ *replica.Effects) {
	if _, tick := ev.(replica.Tick); tick {
		r.ticks++
	}
}

func (r *restless) Idle() bool { return false }

// TestTimeOfAMachine: the timeouts of elections, of the in-sync set and of puts are as precise
// as the steps in which a machine is given the time.
func TestTimeOfAMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := gathering()
		m := &restless{recorder: r}
		r.host.machine = m
		go r.loop.work()
		r.loop.post(r.host.id, replica.Received{})
		time.Sleep(time.Second)
		r.loop.stop()
		require.InDelta(t, 100, m.ticks, 2)
	})
}
