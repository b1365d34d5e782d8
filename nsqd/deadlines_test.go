package nsqd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// A channel nobody consumes: what was deferred becomes depth when it is due.
func TestReapedDeferredMessagesComeDue(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	r.postpone(1000*nsPerMS, "later")
	r.Reap() // the broker does so every 500 ms
	require.LessOrEqual(t, r.Due(), r.clock.now()+1000*nsPerMS, "Expire must be due with the message")
	if now := r.clock.add(2000 * nsPerMS); r.Due() <= now { // as the broker's timer does
		r.Expire(now)
	}
	require.Equal(t, counts{depth: 1, published: 1}, countsOf(r.Partition, c))
}

// A hungry consumer of a channel that was paused for a moment.
func TestReapedDeferredMessagesAreDeliveredAfterPause(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	require.Empty(t, c.Pull(s, 1, nil))
	<-s.Wake
	require.NoError(t, r.PauseChannel(t.Context(), "c"))
	r.postpone(1000*nsPerMS, "later")
	r.Reap()
	require.NoError(t, r.UnpauseChannel(t.Context(), "c"))
	woken := false
	for range 100 { // ten seconds
		if now := r.clock.add(100 * nsPerMS); r.Due() <= now {
			r.Expire(now)
		}
		select {
		case <-s.Wake:
			woken = true
		default:
		}
	}
	require.True(t, woken, "nobody is told of a message that is due for nine seconds")
	require.Equal(t, []string{"later"}, bodies(c.Pull(s, 1, nil)))
}

// A topic without channels keeps its backlog when it is paused; depth says so.
func TestDepthOfAPausedTopicWithoutChannels(t *testing.T) {
	r := newRig(Options{})
	r.publishN(10)
	require.EqualValues(t, 10, r.Stats("", false).Depth)
	require.NoError(t, r.PauseTopic(t.Context()))
	require.EqualValues(t, 10, r.Stats("", false).Depth)
	r.publishN(2)
	require.EqualValues(t, 12, r.Stats("", false).Depth)
}

// A finish for a message that is settled already, delivered by an earlier leader,
// arrives while the last finish of an ordered channel is on its way.
func TestALateFinishDoesNotOpenAnOrderedChannel(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Ordered: true})
	late := subscribe(t, c)
	r.publish("a", "b", "c")
	require.Equal(t, []string{"a"}, bodies(c.Pull(late, 1, nil)))
	require.NoError(t, r.SeekChannel(t.Context(), "c", 1)) // an operator skips a; the connection of its holder is cut
	n := r.failover()
	c, _ = n.Channel("c")
	holder, s := subscribe(t, c), subscribe(t, c)
	require.Equal(t, []string{"b"}, bodies(c.Pull(s, 1, nil)))
	n.rep.mu.Lock()
	n.rep.hold = true
	n.rep.mu.Unlock()
	require.NoError(t, c.Finish(s, 1, 2))
	require.Empty(t, c.Pull(s, 1, nil), "b's finish is not on the replicas")
	require.NoError(t, c.Finish(holder, 0, 1)) // said while there was no leader, heard now
	require.Empty(t, c.Pull(s, 1, nil), "b's finish is not on the replicas")
}

// dozyLog takes its time.
type dozyLog struct {
	*memoryLog
	during func()
}

func (l *dozyLog) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	if l.during != nil {
		l.during()
	}
	return l.memoryLog.Read(from, max, dst)
}

// The fence closes while a Pull waits for the disk: a successor may be at work.
func TestNothingIsDeliveredAfterTheFenceBySlowReads(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		clk, log := &clock{ns: 1_000_000_000}, &dozyLog{memoryLog: &memoryLog{}}
		p := NewPartition("orders", testID, log, &replicas{}, Options{Now: clk.now})
		p.Lead(1)
		c, err := p.CreateChannel(t.Context(), "c", ChannelOptions{Ordered: ordered})
		require.NoError(t, err)
		s := subscribe(t, c)
		log.publish(queue.Message{Body: []byte("a")})
		p.Extend(clk.now() + 500*nsPerMS)
		p.Advance(log.Committed())
		log.during = func() { clk.add(3000 * nsPerMS) }
		require.Empty(t, c.Pull(s, 1, nil), "the fence closed 2.5 s ago")
	}
}

// A message's timeout begins when it is sent, not when the disk was asked for it.
func TestTimeoutBeginsWithTheDelivery(t *testing.T) {
	clk, log := &clock{ns: 1_000_000_000}, &dozyLog{memoryLog: &memoryLog{}}
	p := NewPartition("orders", testID, log, &replicas{}, Options{Now: clk.now})
	p.Lead(1)
	c, err := p.CreateChannel(t.Context(), "c", ChannelOptions{})
	require.NoError(t, err)
	s := &Subscriber{Direct: true, MsgTimeoutMS: 1000}
	require.NoError(t, c.Attach(s))
	log.publish(queue.Message{Body: []byte("a")})
	p.Advance(log.Committed())
	log.during = func() { clk.add(900 * nsPerMS) }
	require.Len(t, c.Pull(s, 1, nil), 1)
	p.Expire(clk.add(500 * nsPerMS))
	require.Equal(t, 1, c.InFlight(s), "the client has had it for half a second")
}

// What was put aside under the leader before is due under this one, though nobody
// consumes.
func TestInheritedDeadlinesAreKept(t *testing.T) {
	r := newRig(Options{})
	r.channel(t, "c", ChannelOptions{})
	r.postpone(1000*nsPerMS, "later")
	r.Reap()
	n := r.failover()
	require.Equal(t, r.clock.now()+1000*nsPerMS, n.Due())
}

// newDozy leads a partition whose log is slow, with one channel and n messages.
func newDozy(t *testing.T, n int) (*Partition, *dozyLog, *Channel, *Subscriber) {
	log := &dozyLog{memoryLog: &memoryLog{}}
	p := NewPartition("orders", testID, log, &replicas{}, Options{Now: (&clock{ns: 1_000_000_000}).now})
	p.Lead(2)
	c, err := p.CreateChannel(t.Context(), "c", ChannelOptions{})
	require.NoError(t, err)
	for range n {
		log.publish(queue.Message{Body: []byte("a")})
	}
	p.Advance(log.Committed())
	return p, log, c, subscribe(t, c)
}

// once calls do during the next read.
func (l *dozyLog) once(do func()) {
	l.during = func() {
		l.during = nil
		do()
	}
}

// A channel is moved back while somebody reads for it: what lies between is not lost.
func TestSeekWhileTheLogIsRead(t *testing.T) {
	p, log, c, s := newDozy(t, 10)
	c.seek(5)
	log.once(func() { c.seek(0) })
	require.Len(t, c.Pull(s, 10, nil), 10)
	requireExact(t, p, c)
}

// A late finish comes while the message, which was given back, is read again, and that
// fails: it is finished.
func TestFinishWhileAMessageIsReadAgain(t *testing.T) {
	p, log, c, s := newDozy(t, 1)
	require.Empty(t, c.Reclaim(s, []Held{{Sequence: 0, Attempts: 1}}))
	require.NoError(t, c.Requeue(s, 0, 0))
	log.once(func() {
		log.fail = errors.New("bad sector")
		require.NoError(t, c.Finish(s, 0, 1))
	})
	require.Empty(t, c.Pull(s, 1, nil))
	log.fail = nil
	p.Expire(p.o.Now() + 1000*nsPerMS)
	require.Empty(t, c.Pull(s, 1, nil))
	require.Equal(t, counts{finished: 1, published: 1}, countsOf(p, c))
}

// What was read ahead may be finished before its turn comes, by who holds it from an
// earlier leader.
func TestFinishOfWhatWasReadAhead(t *testing.T) {
	_, _, c, s := newDozy(t, 4)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Finish(s, 2, 1))
	d := c.Pull(s, 4, nil)
	require.Len(t, d, 2)
	require.Equal(t, []ident.Sequence{1, 3}, []ident.Sequence{d[0].Message.Seq, d[1].Message.Seq})
}
