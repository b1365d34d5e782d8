package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// What of a log may go. A segment goes when every durable channel has passed it,
// no edge can repeat a put of it, and the topic's retention_time and retention_bytes
// do not keep it for replay.
// Nothing that a channel still needs ever goes by age or size: a topic that must
// not grow has max_bytes, above which puts are refused.
//
// A few delayed or poison messages must not pin a log. When what is unfinished in
// the oldest segment is little against what would be freed, the leader puts it
// into a carry batch at the end of the log, with its sequences, and then tells
// the channels of all replicas where to find it.
//
// The newest file stays, for the next put goes there. While a disk is short of space
// there is none: then the leader of a log that nobody needs any more puts a batch at
// which all replicas begin a new file (queue.NewFile), and the one before it goes.
const (
	// retainEvery is the pause between two looks at all logs.
	retainEvery = 500 * time.Millisecond
	// carryShare: unfinished messages are carried when they are at most one part
	// in so many of what goes.
	carryShare = 20
	// carryBytes bounds one carry batch: reading one of its messages reads it all.
	carryBytes = 256 << 10
	// carryMessages bounds one round of carrying.
	carryMessages = 1 << 16
	carryTimeout  = 5 * time.Second // of that round, and of a new file
	// What could not be carried because it is too much is looked at again when the
	// log is one part in carryGrowth larger, or after carryAgain.
	carryGrowth = 8
	carryAgain  = time.Minute
	// leftBytes: a log of fewer is not worth a new file. But its files may end
	// elsewhere on another replica, so one is begun every leaveEvery all the same.
	leftBytes  = 64 << 10
	leaveEvery = time.Minute
	// repeatMarks is how often within RepeatFor the committed end is noted down.
	repeatMarks = 8
)

var (
	// errCarry: the carry batch was not committed, or cannot be found again.
	errCarry = errors.New("coordinator: messages were not carried")
	// errTooMuch: the messages are not little against what would go.
	errTooMuch = errors.New("coordinator: too much to be carried")
)

// keepRetention trims the logs of all replicas here, each by its own channels'
// state; where this broker leads it finishes what has expired, carries messages
// forward and deletes ephemeral topics that are deserted. What lies in the trash goes after its grace time. Started by
// start, ends with the broker.
func (b *Broker) keepRetention(ctx context.Context) {
	every(ctx, retainEvery, func() {
		for _, h := range b.hosted() {
			h.queue.CatchUp()
			if h.Leading() {
				h.queue.Reap()
				h.queue.Forget()
				b.dropDeserted(ctx, h)
			}
			if err := b.retain(ctx, h); err != nil && ctx.Err() == nil {
				b.log.WithError(err).WithFields(fields(h)).Warn("retention failed, trying again")
			}
		}
		if err := b.store.EmptyTrash(b.o.TrashGrace); err != nil {
			b.log.WithError(err).Warn("cannot empty the trash")
		}
	})
}

// retain looks at one log.
func (b *Broker) retain(ctx context.Context, h *hosted) error {
	t, ok := b.catalog.topic(h.topic)
	if !ok || t.ID != h.id.Topic {
		return nil
	}
	head, ok := h.store.HeadEnd()
	if !ok && t.Options.MaxBytes <= 0 && h.ceiling.Load() == 0 && !b.space.any.Load() {
		return nil // nothing can go and nothing is refused: most partitions, so it must be cheap
	}
	floor := h.offsetOf(h.queue.Floor())
	h.limit(t, floor)
	may := min(floor, h.replayFrom(t), h.repeatsFrom(time.Now(), b.o.RepeatFor), h.Committed().Offset)
	if !ok {
		return b.leaveFile(ctx, h, may)
	}
	if head > may {
		return nil
	}
	if v := h.View(); v.Role == replica.Leader && v.Writable { // else it would wait, and all others with it
		if err := b.carry(ctx, h, head, may); err != nil {
			return err
		}
	}
	below := min(may, h.offsetOf(h.queue.LowWater()))
	if at, ok := h.queue.CarriedFrom(); ok {
		below = min(below, at)
	}
	if head > below {
		return nil
	}
	return h.store.TrimHead(ident.Position{Offset: below})
}

// leaveFile has the replicas of a log begin a new file if a disk is short of space,
// and all that is in the only one may go.
func (b *Broker) leaveFile(ctx context.Context, h *hosted, may ident.Offset) error {
	v := h.View()
	if v.Role != replica.Leader || !v.Writable || !b.space.short(v.ISR) || may < v.End.Offset {
		return nil
	}
	now := time.Now()
	if h.store.DiskBytes() < leftBytes && now.Sub(h.left) < leaveEvery {
		return nil
	}
	h.left = now
	ctx, cancel := context.WithTimeout(ctx, carryTimeout)
	defer cancel()
	_, err := b.putControl(ctx, h, queue.NewFile())
	return err
}

// offsetOf is where the batch of a message begins; the start of the log if that
// is not known, so that nothing goes.
func (h *hosted) offsetOf(seq ident.Sequence) ident.Offset {
	if end := h.Committed(); seq >= end.Sequence {
		return end.Offset
	}
	if r, ok := h.store.Index().AtSequence(seq); ok {
		return r.Offset
	}
	return h.store.Start().Offset
}

// replayFrom is what the topic keeps although all channels have passed it: what
// is younger than its retention time, but no more than its retention bytes.
func (h *hosted) replayFrom(t meta.TopicState) ident.Offset {
	o, end := t.Options, h.Committed().Offset
	from := end
	if o.RetentionMS > 0 {
		if r, ok := h.store.Index().AtTime(time.Now().UnixMilli() - o.RetentionMS); ok {
			from = min(from, r.Offset)
		}
	}
	if o.RetentionBytes <= 0 {
		return from
	}
	most := max(end-ident.Offset(o.RetentionBytes/int64(t.Partitions)), 0)
	if o.RetentionMS <= 0 {
		return most
	}
	return max(from, most)
}

// endAt is how far a log was committed, and when by this process's own clock.
type endAt struct {
	at  time.Time
	end ident.Offset
}

// repeatsFrom is how far the log was committed here so long ago: what came later may
// still be repeated, and who leads after a restart knows repeats by the log (ADR 2). The
// times in the log are the leader's, which need not be this broker's.
func (h *hosted) repeatsFrom(now time.Time, last time.Duration) ident.Offset {
	if n := len(h.ends); n == 0 || now.Sub(h.ends[n-1].at) >= last/repeatMarks {
		h.ends = append(h.ends, endAt{now, h.Committed().Offset})
	}
	for len(h.ends) > 1 && now.Sub(h.ends[1].at) >= last {
		h.ends = h.ends[1:]
	}
	if now.Sub(h.ends[0].at) < last {
		return 0
	}
	return h.ends[0].end
}

// limitTopic brings a replica's limits to what the topic's options say.
func (b *Broker) limitTopic(h *hosted) {
	if t, ok := b.catalog.topic(h.topic); ok && t.ID == h.id.Topic {
		h.limit(t, h.offsetOf(h.queue.Floor()))
		h.queue.SetTTL(t.Options.TTLMS)
	}
}

// limit works out the end beyond which puts are refused: what the channels have
// before them, and about what they have put aside, is at most the partition's
// part of max_bytes.
func (h *hosted) limit(t meta.TopicState, floor ident.Offset) {
	if t.Options.MaxBytes <= 0 {
		h.ceiling.Store(0)
		return
	}
	start, end := h.store.Start(), h.Committed()
	aside := int64(0)
	if n := int64(end.Sequence - start.Sequence); n > 0 {
		aside = int64(h.queue.AsideCount()) * int64(end.Offset-start.Offset) / n
	}
	h.ceiling.Store(max(1, int64(floor)+min(t.Options.MaxBytes/int64(t.Partitions), math.MaxInt64-int64(floor))-aside))
}

// full reports whether a put of so many bytes would pass the topic's max_bytes.
func (h *hosted) full(bytes int) bool {
	ceiling := h.ceiling.Load()
	return ceiling != 0 && int64(h.view.Load().End.Offset)+int64(bytes) > ceiling
}

// carry copies what is unfinished in the oldest segment, which ends at head, to
// the end of the log, if that is little against what may go then.
func (b *Broker) carry(ctx context.Context, h *hosted, head, may ident.Offset) error {
	tried := tooMuch{start: h.store.Start().Offset, may: may, at: time.Now()}
	r, ok := h.store.Index().AtOffset(head)
	if !ok || h.tooMuch.still(tried) {
		return nil
	}
	seqs, all := h.queue.Aside(r.First, head, carryMessages)
	if !all {
		h.tooMuch = tried
		return nil
	}
	drafts, err := h.gather(seqs, int(min(tried.size()/carryShare, 1<<30)))
	if errors.Is(err, errTooMuch) {
		h.tooMuch = tried
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, carryTimeout)
	defer cancel()
	for _, d := range drafts {
		if err := b.carryBatch(ctx, h, d); err != nil {
			return err
		}
	}
	return nil
}

// tooMuch is when what was to be carried was too much for a log from start to may.
type tooMuch struct {
	start, may ident.Offset
	at         time.Time
}

func (x tooMuch) size() ident.Offset { return x.may - x.start }

// still reports whether another try would most likely be in vain, too.
func (x tooMuch) still(next tooMuch) bool {
	return next.start == x.start && next.size() < x.size()+x.size()/carryGrowth && next.at.Sub(x.at) < carryAgain
}

// gather reads messages into carry batches. errTooMuch: they have more than limit
// bytes.
func (h *hosted) gather(seqs []ident.Sequence, limit int) (drafts []queue.Draft, err error) {
	c, total := queue.NewCarry(), 0
	for _, seq := range seqs {
		m, ok, err := h.message(seq)
		if err != nil {
			return nil, fmt.Errorf("carry message %d: %w", seq, err)
		}
		if !ok {
			continue // the channel finds out when it comes to it
		}
		if total += m.Size(); total > limit {
			return nil, errTooMuch
		}
		if err := c.Add(m); err != nil {
			return nil, err
		}
		if c.Size() >= carryBytes {
			drafts, c = append(drafts, c.Draft()), queue.NewCarry()
		}
	}
	if c.Count() > 0 {
		drafts = append(drafts, c.Draft())
	}
	return drafts, nil
}

// message reads one committed message, carried or not.
func (h *hosted) message(seq ident.Sequence) (queue.Message, bool, error) {
	read, err := h.queue.Read(seq, 1, nil)
	if len(read) == 0 || read[0].Seq != seq {
		return queue.Message{}, false, err
	}
	return read[0], true, nil
}

// outcome is a Completer for one who waits.
type outcome chan replica.Completion

// Complete implements Completer; capacity 1, called once.
func (o outcome) Complete(c replica.Completion) { o <- c }

// carryBatch puts one carry batch and tells the channels when it is committed.
// If that fails in between, the batch is just of no use.
func (b *Broker) carryBatch(ctx context.Context, h *hosted, d queue.Draft) error {
	from := h.View().Committed.Offset
	if committed, err := b.putControl(ctx, h, d); err != nil || !committed {
		return err
	}
	at, seqs, err := h.findCarried(from, d)
	if err != nil {
		return err
	}
	if err := h.queue.Carry(ctx, at, seqs); err != nil {
		return err
	}
	return h.queue.Settle(ctx, at, seqs)
}

// putControl puts a control batch; false: this is not the leader any more, or there
// are not enough replicas.
func (b *Broker) putControl(ctx context.Context, h *hosted, d queue.Draft) (committed bool, err error) {
	done := make(outcome, 1)
	b.Propose(h.id, d, done)
	select {
	case c := <-done:
		return c.Outcome == replica.Committed, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// findCarried looks for a carry batch that was put at or after an offset.
func (h *hosted) findCarried(from ident.Offset, d queue.Draft) (ident.Offset, []ident.Sequence, error) {
	for from < h.Committed().Offset {
		batches, err := h.store.ReadAt(from, readBytes)
		if err != nil {
			return 0, nil, err
		}
		if len(batches) == 0 {
			break
		}
		for i := range batches {
			x := &batches[i]
			if from = x.End.Offset; x.Control != queue.ControlCarry || len(x.Bytes) != len(d.Bytes) ||
				queue.Checksum(x.Bytes[queue.HeaderSize:]) != d.PayloadCRC {
				continue
			}
			var seqs []ident.Sequence
			for _, m := range x.Carried(nil) {
				seqs = append(seqs, m.Seq)
			}
			return x.At.Offset, seqs, nil
		}
	}
	return 0, nil, errCarry
}

// ReadCarried finds a message in a carry batch (nsqd.Log).
func (h *hosted) ReadCarried(at ident.Offset, seq ident.Sequence) (queue.Message, bool, error) {
	batches, err := h.store.ReadAt(at, 1)
	if errors.Is(err, store.ErrTrimmed) {
		return queue.Message{}, false, nil
	}
	if len(batches) == 0 || batches[0].At.Offset != at || batches[0].End.Offset > h.Committed().Offset {
		return queue.Message{}, false, err
	}
	for _, m := range batches[0].Carried(nil) {
		if m.Seq == seq {
			one := []queue.Message{m}
			detach(one, &batches[0])
			return one[0], true, nil
		}
	}
	return queue.Message{}, false, nil
}
