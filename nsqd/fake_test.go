package nsqd

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// memoryLog is a Log in memory.
type memoryLog struct {
	mu        sync.Mutex
	start     ident.Sequence
	messages  []queue.Message
	fail      error
	reads     int
	relocated map[ident.Offset][]ident.Sequence
}

func (l *memoryLog) publish(m ...queue.Message) ident.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range m {
		x.Seq = ident.Sequence(len(l.messages))
		l.messages = append(l.messages, x)
	}
	return l.endLocked()
}

func (l *memoryLog) endLocked() ident.Position {
	n := len(l.messages)
	return ident.Position{Offset: ident.Offset(100 * n), Sequence: ident.Sequence(n)}
}

func (l *memoryLog) Committed() ident.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endLocked()
}

func (l *memoryLog) Start() ident.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ident.Position{Sequence: l.start}
}

func (l *memoryLog) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.fail != nil {
		return dst, l.fail
	}
	if from < l.start {
		from = l.start
	}
	for i := int(from); i < len(l.messages) && max > 0; i, max = i+1, max-1 {
		dst = append(dst, l.messages[i])
	}
	return dst, nil
}

func (l *memoryLog) ReadRelocated(at ident.Offset, seq ident.Sequence) (queue.Message, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil || !slices.Contains(l.relocated[at], seq) {
		return queue.Message{}, false, l.fail
	}
	return l.messages[seq], true, nil
}

// replicas receives changes and completes them at once, unless hold is set.
type replicas struct {
	mu     sync.Mutex
	deltas [][]byte
	held   []outcome.Completer
	hold   bool
}

func (r *replicas) Submit(c Change) {
	r.mu.Lock()
	r.deltas = append(r.deltas, c.Delta)
	if r.hold && c.Done != nil {
		r.held = append(r.held, c.Done)
		c.Done = nil
	}
	r.mu.Unlock()
	if c.Done != nil {
		c.Done.Complete(outcome.Completion{Outcome: outcome.Committed})
	}
}

// answer completes the changes that were held.
func (r *replicas) answer(ok bool) {
	r.mu.Lock()
	held := r.held
	r.held = nil
	r.mu.Unlock()
	o := outcome.InDoubt
	if ok {
		o = outcome.Committed
	}
	for _, c := range held {
		c.Complete(outcome.Completion{Outcome: o})
	}
}

// clock is a clock that tests move.
type clock struct {
	mu sync.Mutex
	ns int64
}

func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ns
}

func (c *clock) add(ns int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ns += ns
	return c.ns
}

var testID = ident.Partition{Topic: 0xabcdef0123456789, Number: 3}

// rig is a leading partition with fake dependencies.
type rig struct {
	*Partition
	log   *memoryLog
	rep   *replicas
	clock *clock
}

func newRig(o Options) *rig {
	r := &rig{log: &memoryLog{}, rep: &replicas{}, clock: &clock{ns: 1_000_000_000}}
	o.Now = r.clock.now
	r.Partition = NewPartition("orders", testID, r.log, r.rep, o)
	r.Lead(1)
	return r
}

func (r *rig) publish(bodies ...string) {
	for _, b := range bodies {
		r.log.publish(queue.Message{Time: r.clock.now(), Body: []byte(b)})
	}
	r.Advance(r.log.Committed())
}

func (r *rig) publishN(n int) {
	for range n {
		r.log.publish(queue.Message{Time: r.clock.now(), Body: []byte("body")})
	}
	r.Advance(r.log.Committed())
}

func (r *rig) postpone(ns int64, body string) {
	r.log.publish(queue.Message{Time: r.clock.now(), DeliverAt: r.clock.now() + ns, Body: []byte(body)})
	r.Advance(r.log.Committed())
}

func (r *rig) tick(ms int64) { r.Expire(r.clock.add(ms * nsPerMS)) }

func (r *rig) channel(t testing.TB, name string, o ChannelOptions) *Channel {
	t.Helper()
	c, err := r.CreateChannel(t.Context(), name, o)
	require.NoError(t, err)
	return c
}

// delivered makes a rig with a channel of which one subscriber has taken some of the published messages.
func delivered(t *testing.T, o Options, channel string, co ChannelOptions, published, taken int) (*rig, *Channel, *Subscriber) {
	t.Helper()
	r := newRig(o)
	c := r.channel(t, channel, co)
	s := subscribe(t, c)
	r.publishN(published)
	require.Len(t, c.Pull(s, taken, nil), taken)
	return r, c, s
}

// failover returns another partition with the replicated state, which leads the next epoch.
func (r *rig) failover() *rig {
	n := &rig{log: r.log, rep: &replicas{}, clock: r.clock}
	n.Partition = NewPartition("orders", testID, r.log, n.rep, r.o)
	n.Replace(r.Snapshot())
	r.Unlead()
	n.Lead(r.leadership.epoch + 1)
	return n
}

func subscribe(t testing.TB, c *Channel) *Subscriber {
	t.Helper()
	s := &Subscriber{Direct: true}
	require.NoError(t, c.Attach(s))
	return s
}

// of is the receipt of the delivery of a message that is in flight now, if its epoch is `epoch` or that is 0;
// otherwise of one that was made in this epoch.
func (c *Channel) of(seq ident.Sequence, epoch ident.Epoch) Receipt {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.inFlight.bySeq[seq]
	switch {
	case f == nil && epoch == 0:
		return Receipt{Sequence: seq, Epoch: c.serving.epoch}
	case f == nil, epoch != 0 && f.epoch != epoch:
		return Receipt{Sequence: seq, Epoch: epoch}
	case f.sub == &c.dead.hold:
		return Receipt{Sequence: seq, Epoch: f.epoch, Number: f.number}
	}
	return Receipt{Sequence: seq, Epoch: f.epoch, Number: f.number, Attempts: f.attempts}
}

func bodies(d []api.Delivery) []string {
	out := []string{}
	for _, x := range d {
		out = append(out, string(x.Message.Body))
	}
	return out
}

// seekChannel makes a seek. Its effect is what PlanSeek says before it.
func (r *rig) seekChannel(t require.TestingT, name string, o ChannelOptions) SeekEffect {
	planned, err := r.PlanSeek(name, o)
	require.NoError(t, err)
	e, err := r.SeekChannel(context.Background(), name, o)
	require.NoError(t, err)
	require.Equal(t, planned, e)
	return e
}

// seekTo are the options of a seek to a sequence.
func seekTo(seq ident.Sequence) ChannelOptions {
	return ChannelOptions{Origin: FromSequence, Sequence: seq}
}

// Finished is the number of finished messages, including those that sampling, emptying or the
// bound of an ephemeral channel discarded.
func (c *Channel) Finished() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursor.SettledCount() - uint64(c.cursor.Deferred.Len())
}

// counts are the numbers of one channel in /stats.
type counts struct{ depth, inFlight, deferred, finished, published int }

func countsOf(p *Partition, c *Channel) counts {
	s := p.Stats(c.name, false).Channels[0]
	return counts{int(s.Depth), s.InFlightCount, s.DeferredCount, int(c.Finished()), int(s.MessageCount)}
}

func requireExact(t require.TestingT, p *Partition, c *Channel) {
	n := countsOf(p, c)
	require.Equal(t, n.published, n.depth+n.inFlight+n.deferred+n.finished, "%+v", n)
}

func (p *Partition) lowWater() ident.Sequence {
	below, _ := p.Removable()
	return below
}

func (p *Partition) relocatedFrom() (ident.Offset, bool) {
	_, from := p.Removable()
	return from, from != math.MaxInt64
}
