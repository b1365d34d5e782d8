package nsqd

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// A message for redelivery that cannot be read is postponed with its attempts unchanged.
func TestPostponedMessageKeepsItsAttempts(t *testing.T) {
	r, c, s := delivered(t, Options{}, "ch", ChannelOptions{}, 1, 1)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	r.log.fail = errors.New("no disk")
	require.Empty(t, c.Pull(s, 1, nil))
	r.log.fail = nil
	r.tick(101)
	require.EqualValues(t, 2, c.Pull(s, 1, nil)[0].Message.Attempts)
}

// batchLog counts how often reads move to another batch.
type batchLog struct {
	*memoryLog
	last     ident.Sequence
	switches int
}

const batchMessages = 100

func (l *batchLog) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	if from/batchMessages != l.last {
		l.last = from / batchMessages
		l.switches++
	}
	return l.memoryLog.Read(from, max, dst)
}

// TestRedeliveryReadsInLogOrder: redeliveries are read in the order of the log and delivered in the
// order in which they became ready. Before, each message of a large batch that was requeued with a
// delay of its own caused another read of the batch.
func TestRedeliveryReadsInLogOrder(t *testing.T) {
	r := newRig(Options{})
	l := &batchLog{memoryLog: r.log}
	r.Partition = NewPartition("orders", testID, l, r.rep, r.o)
	r.Lead(1)
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	const n = 20 * batchMessages
	r.publishN(n)
	d := c.Pull(s, n, nil)
	require.Len(t, d, n)
	var want []ident.Sequence
	for i, at := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		require.NoError(t, c.Requeue(s, c.of(d[at].Message.Seq, 0), int64(i+1)))
		want = append(want, d[at].Message.Seq)
	}
	r.tick(n + 1)
	l.switches = 0
	var got []ident.Sequence
	for _, x := range c.Pull(s, n, nil) {
		require.EqualValues(t, 2, x.Message.Attempts)
		got = append(got, x.Message.Seq)
	}
	require.Equal(t, want, got)
	require.LessOrEqual(t, l.switches, (n/redeliveryMessages+1)*(n/batchMessages+1))
}

// A redelivery that cannot be read blocks an ordered channel: the next message, which is in memory,
// must not overtake it.
func TestUnreadableMessageKeepsTheOrder(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(2)
	got := c.Pull(s, 1, nil)
	require.Len(t, got, 1)
	require.NoError(t, c.Requeue(s, c.of(got[0].Message.Seq, 0), 0))
	r.log.fail = errors.New("bad sector")
	require.Empty(t, c.Pull(s, 1, nil))
	require.Empty(t, c.Pull(s, 1, nil))
	r.log.fail = nil
	r.clock.add(stallNS)
	r.Expire(r.clock.now())
	again := c.Pull(s, 1, nil)
	require.Len(t, again, 1)
	require.Equal(t, got[0].Message.Seq, again[0].Message.Seq)
}

// delayedLog advances the clock during a read.
type delayedLog struct {
	*memoryLog
	during func()
}

func (l *delayedLog) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	if l.during != nil {
		l.during()
	}
	return l.memoryLog.Read(from, max, dst)
}

// The fence closes while a Pull waits for the disk: another leader may deliver already.
func TestNothingIsDeliveredAfterTheFenceBySlowReads(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		clk, log := &clock{ns: 1_000_000_000}, &delayedLog{memoryLog: &memoryLog{}}
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

// A message's timeout begins with its delivery, not with the read.
func TestTimeoutBeginsWithTheDelivery(t *testing.T) {
	clk, log := &clock{ns: 1_000_000_000}, &delayedLog{memoryLog: &memoryLog{}}
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

// newDelayed leads a partition with a slow log, one channel and n messages.
func newDelayed(t *testing.T, n int) (*Partition, *delayedLog, *Channel, *Subscriber) {
	log := &delayedLog{memoryLog: &memoryLog{}}
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
func (l *delayedLog) once(do func()) {
	l.during = func() {
		l.during = nil
		do()
	}
}

// A channel is moved back during a read for it: no message in between is lost.
func TestSeekWhileTheLogIsRead(t *testing.T) {
	p, log, c, s := newDelayed(t, 10)
	c.seek(5)
	log.once(func() { c.seek(0) })
	require.Len(t, c.Pull(s, 10, nil), 10)
	requireExact(t, p, c)
}

// A late finish comes while the requeued message is being read again, and the read fails: the
// message is finished.
func TestFinishWhileAMessageIsReadAgain(t *testing.T) {
	p, log, c, s := newDelayed(t, 1)
	require.Empty(t, c.Reclaim(s, []Receipt{{Sequence: 0, Attempts: 1}}))
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	log.once(func() {
		log.fail = errors.New("bad sector")
		require.NoError(t, c.FinishLate(s, c.of(0, 1)))
	})
	require.Empty(t, c.Pull(s, 1, nil))
	log.fail = nil
	p.Expire(p.o.Now() + 1000*nsPerMS)
	require.Empty(t, c.Pull(s, 1, nil))
	require.Equal(t, counts{finished: 1, published: 1}, countsOf(p, c))
}

// A message that was read ahead may be finished before its delivery, by a client that holds it from
// an earlier leader.
func TestFinishOfReadAheadMessage(t *testing.T) {
	_, _, c, s := newDelayed(t, 4)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.FinishLate(s, c.of(2, 1)))
	d := c.Pull(s, 4, nil)
	require.Len(t, d, 2)
	require.Equal(t, []ident.Sequence{1, 3}, []ident.Sequence{d[0].Message.Seq, d[1].Message.Seq})
}
