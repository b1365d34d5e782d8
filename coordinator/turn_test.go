package coordinator

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
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

// line is what the other brokers got, and what waits for a flush.
type line struct{ sent, queued, flushed int }

func (s *line) Send(ident.Node, rpc.Frame) error  { s.sent++; return nil }
func (s *line) Queue(ident.Node, rpc.Frame) error { s.queued++; return nil }
func (s *line) Flush(ident.Node)                  { s.flushed++ }

// resting is a broker whose loop's goroutine does nothing: what happens is done by
// who brings something.
func resting() (*Broker, *recorder, *line) {
	r, _ := gathering()
	r.host.machine = &speaking{*r}
	s := &r.host.machine.(*speaking).recorder
	said := &line{}
	s.loop.peers, s.loop.journal = said, s
	b := &Broker{loops: []*loop{s.loop}}
	b.members = &membership{broker: b}
	return b, s, said
}

func frameFor(p ident.Partition) rpc.Received {
	h := &messageHeader{id: p, msg: &replica.Message{Kind: replica.MsgAppendAck, Epoch: 1}}
	header, _ := h.AppendBinary(nil)
	return rpc.Received{Class: rpc.ClassReplica, Header: header}
}

// Who brings a lone put, or the last frame that has come, carries it through; what is
// one of many is left to the loop, which gathers it.
func TestLonePutNeedsNoGoroutine(t *testing.T) {
	b, r, _ := resting()
	draft := queue.Draft{Bytes: make([]byte, 100), Count: 1}
	b.Propose(r.host.id, draft, make(outcome, 1))
	require.Equal(t, []int{1}, r.groups)
	require.Empty(t, r.loop.mail.wake)

	b.Propose(r.host.id, draft, make(outcome, 1))
	require.Equal(t, []int{1}, r.groups, "another put is under way")
	require.NotEmpty(t, r.loop.mail.wake)
}

func TestLargePutIsLeftToTheLoop(t *testing.T) {
	b, r, _ := resting()
	b.Propose(r.host.id, queue.Draft{Bytes: make([]byte, borrowBytes+1), Count: 1}, make(outcome, 1))
	require.Empty(t, r.groups)
	require.NotEmpty(t, r.loop.mail.wake)
}

func TestLastFrameNeedsNoGoroutine(t *testing.T) {
	b, r, said := resting()
	f := frameFor(r.host.id)
	b.members.Frame("n2", 1, f)
	require.Equal(t, line{queued: 1, flushed: 1}, *said)
	f.More = true
	b.members.Frame("n2", 1, f)
	b.members.Frame("n2", 1, f)
	require.Equal(t, line{queued: 1, flushed: 1}, *said)
	require.NotEmpty(t, r.loop.mail.wake)
	r.loop.pass(false, false) // as its goroutine does
	require.Equal(t, line{queued: 1, flushed: 1, sent: 2}, *said)
}

// A put that was answered is not under way any more.
func TestAnsweredPutLeavesTheNextOneAlone(t *testing.T) {
	b, r, _ := resting()
	draft := queue.Draft{Bytes: make([]byte, 100), Count: 1}
	for n := range 3 {
		b.Propose(r.host.id, draft, make(outcome, 1))
		require.Len(t, r.groups, n+1)
		r.host.complete(replica.Completion{Ticket: r.host.lastTicket})
		r.loop.Synced(r.loop.token, nil)
	}
	require.Zero(t, r.loop.puts.N())
}

// Who does not get the turn leaves the mail to who has it and looks again, the loop
// or who borrowed it.
func TestWhoHasTheTurnLooksAgain(t *testing.T) {
	for _, borrowed := range []bool{false, true} {
		r, _ := gathering()
		l := r.loop
		w := work{kind: workBarrier, ack: make(chan struct{})}
		brought := false
		r.host.machine = &busy{recorder: r, again: func() {
			if !brought {
				brought = true
				var other sync.WaitGroup
				other.Go(func() { l.bring(w) }) // comes back, though nobody has taken it
				other.Wait()
			}
		}}
		go l.run()
		first := l.mail.post
		if borrowed {
			first = l.bring
		}
		first(work{kind: workEvent, id: r.host.id})
		select {
		case <-w.ack:
		case <-time.After(10 * time.Second):
			t.Fatal("mail was left")
		}
		l.stop()
	}
}

// No mail is left, whoever brings it.
func TestMailIsNotLeft(t *testing.T) {
	r, _ := gathering()
	l := r.loop
	go l.run()
	defer l.stop()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 2000 {
				w := work{kind: workBarrier, ack: make(chan struct{})}
				if (n+i)%3 == 0 {
					l.mail.post(w)
				} else {
					l.bring(w)
				}
				select {
				case <-w.ack:
				case <-time.After(10 * time.Second):
					t.Error("mail was left")
					return
				}
			}
		})
	}
	all.Wait()
}

// A pass that sets off more than its caller can be asked to do leaves it to the loop.
func TestBorrowedTurnEnds(t *testing.T) {
	r, _ := gathering()
	l, passes := r.loop, 0
	r.host.machine = &busy{recorder: r, again: func() {
		passes++
		l.mail.add(work{kind: workEvent, id: r.host.id})
	}}
	l.bring(work{kind: workEvent, id: r.host.id})
	require.Equal(t, borrowMost, passes)
	require.NotEmpty(t, l.mail.wake)
}

// busy is a machine of which each step brings another.
type busy struct {
	*recorder
	again func()
}

func (b *busy) Step(ev replica.Event, _ *replica.Effects) {
	if _, tick := ev.(replica.Tick); !tick {
		b.again()
	}
}

// With a linger passes begin that long after one another, whoever brings what; so they
// share more, and nothing waits longer.
func TestPassesLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := gathering()
		l := r.loop
		l.linger = time.Millisecond
		var passes []time.Time
		r.host.machine = &busy{recorder: r, again: func() {
			if len(passes) == 0 || !passes[len(passes)-1].Equal(l.now) {
				passes = append(passes, l.now)
			}
		}}
		go l.run()
		for range 50 {
			l.hand(work{kind: workEvent, id: r.host.id}, true, 0)
			time.Sleep(100 * time.Microsecond)
		}
		w := work{kind: workBarrier, ack: make(chan struct{})}
		began := time.Now()
		l.hand(w, true, 0)
		<-w.ack
		require.LessOrEqual(t, time.Since(began), l.linger)
		l.stop()
		require.InDelta(t, 5, len(passes), 1, "50 in 5 ms")
		for i := range passes[1:] {
			require.GreaterOrEqual(t, passes[i+1].Sub(passes[i]), l.linger)
		}
	})
}
