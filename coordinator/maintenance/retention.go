package maintenance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	retainEvery   = 500 * time.Millisecond
	putTimeout    = 5 * time.Second // for one round of relocation, and for a new file
	deleteTimeout = 5 * time.Second // for the deletion of an ephemeral topic without channels
	// smallLog is the size below which a log is not worth a new file. Another replica may cut its files elsewhere, so
	// such a log still gets a new file every newFileEvery.
	smallLog     = 64 << 10
	newFileEvery = time.Minute
)

// retention trims the logs of all replicas here, each by its own channels' state.
//
// The newest file of a log stays, because it takes the next put. While a disk is short of space, the leader of a log
// that is mostly unneeded (channels need less than half of it) publishes a batch at which all replicas begin a new file
// (queue.NewFile). The previous file is removed when no channel needs it.
type retention struct {
	*Broker
	space *Space
	logs  map[*engine.Partition]*logMemory // owned by the goroutine
}

// logMemory is the state of one log between two rounds.
type logMemory struct {
	newFile   time.Time // when a new file was last begun here for lack of space
	tooMuch   tooMuch
	committed []committedAt // see repeatable
}

func newRetention(b *Broker, s *Space) *retention {
	return &retention{Broker: b, space: s, logs: map[*engine.Partition]*logMemory{}}
}

// run trims the logs of all partitions, except those of topics in the trash. The leader also finishes expired messages,
// relocates those that pin a log, and deletes deserted ephemeral topics.
func (r *retention) run(ctx context.Context) {
	for _, p := range r.Engine.Partitions() {
		q := p.Queue()
		q.ApplyPending()
		if p.Trashed() {
			continue // a topic in the trash keeps all its data
		}
		if p.Leading() {
			q.Reap()
			q.ReleaseEphemeral()
			r.deleteDeserted(ctx, p)
		}
		if err := r.retain(ctx, p); err != nil && ctx.Err() == nil {
			r.Log.WithError(err).WithFields(p.LogFields()).Warn("retention failed, trying again")
		}
	}
	maps.DeleteFunc(r.logs, func(p *engine.Partition, _ *logMemory) bool {
		now, ok := r.Engine.Partition(p.ID())
		return !ok || now != p
	})
	grace := r.TrashGrace
	if r.DeleteEarly && r.space.Low(r.Self) {
		grace = 0
	}
	if err := r.Store.EmptyTrash(grace); err != nil {
		r.Log.WithError(err).Warn("cannot empty the trash")
	}
}

func (r *retention) retain(ctx context.Context, p *engine.Partition) error {
	t, ok := r.Catalog.Topic(p.Topic())
	if !ok || t.ID != p.ID().Topic {
		return nil
	}
	head, ok := p.Store().HeadEnd()
	if !ok && t.Options.MaxBytes <= 0 && !p.Limited() && !r.space.any.Load() {
		return nil // nothing to remove, and no put is refused: the common case, which must be cheap
	}
	floor := p.OffsetOf(p.Queue().Floor())
	p.Limit(t.PartitionMaxBytes(), floor)
	m := r.logs[p]
	if m == nil {
		m = &logMemory{}
		r.logs[p] = m
	}
	may := min(floor, replayFrom(p, t), m.repeatable(p, time.Now(), r.RepeatFor), identifiedFrom(p), p.Committed().Offset)
	if !ok {
		return r.beginFile(ctx, p, m, may)
	}
	if head > may {
		return nil
	}
	if v := p.View(); v.Role == replica.Leader && v.Writable { // otherwise it would wait, and delay all other logs
		if err := r.relocate(ctx, p, m, head, may); err != nil {
			return err
		}
	}
	messages, relocated := p.Queue().Removable()
	below := min(may, p.OffsetOf(messages), relocated)
	if head > below {
		return nil
	}
	err := p.Store().TrimHead(ident.Position{Offset: below})
	if err == nil && r.space.anyOf(p.View().Replicas) {
		p.Post(replica.Tick{}) // a replica below its reserve may restart its log to free space (AC-11)
	}
	return err
}

// beginFile has the replicas of a log begin a new file if a disk is short of space, and at least half of the only file
// may be removed. It does not require that all of it can go: while producers publish, the newest messages may always be
// repeated.
func (r *retention) beginFile(ctx context.Context, p *engine.Partition, m *logMemory, may ident.Offset) error {
	v := p.View()
	if v.Role != replica.Leader || !v.Writable || !r.space.anyOf(v.Replicas) {
		return nil
	}
	start, end := p.Start().Offset, v.End.Offset
	if may < end && may-start < end-may {
		return nil
	}
	now := time.Now()
	if (may < end || p.Store().DiskBytes() < smallLog) && now.Sub(m.newFile) < newFileEvery {
		return nil
	}
	m.newFile = now
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	_, err := r.Engine.PutControl(ctx, p.ID(), queue.NewFile())
	return err
}

// deleteDeserted deletes an #ephemeral topic when its last channel is gone. The leader of partition 0 decides for all:
// consumers are on every partition.
func (r *retention) deleteDeserted(ctx context.Context, p *engine.Partition) {
	if p.ID().Number != 0 || !nsqd.IsEphemeral(p.Topic()) || !p.Queue().LastChannelGone() {
		return
	}
	t, ok := r.Catalog.Topic(p.Topic())
	if !ok || t.ID != p.ID().Topic {
		return // deleted already
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if err := r.Admin.DeleteAsRead(ctx, p.Topic(), t); err != nil {
		r.Log.WithError(err).WithFields(p.LogFields()).Warn("ephemeral topic without channels was not deleted, trying again")
	}
}

// repeatMarks is how many times within RepeatFor the committed end is recorded.
const repeatMarks = 8

// replayFrom is the start of the part of the log that the topic retains after all channels have passed it: batches
// younger than its retention time, up to its retention bytes.
func replayFrom(p *engine.Partition, t metadata.TopicState) ident.Offset {
	o, end := t.Options, p.Committed().Offset
	from := end
	if o.RetentionMS > 0 {
		if r, ok := p.Store().Index().AtTime(time.Now().UnixMilli() - o.RetentionMS); ok {
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

// identifiedFrom is the start of the part of the log whose messages have identities in the dedupe window. A replica
// that starts, or is new, derives the window from the log (DW-5).
func identifiedFrom(p *engine.Partition) ident.Offset {
	p.ExpireIdentities()
	if v := p.View(); v.KeepsIdentified {
		return v.IdentifiedFrom
	}
	return math.MaxInt64
}

// committedAt is the committed end of a log at a time of this process's own clock.
type committedAt struct {
	at  time.Time
	end ident.Offset
}

// repeatable is the start of the part of the log whose puts brokers may still repeat: the committed end on this broker
// RepeatFor ago. After a restart a leader recognises repeats by the log (ADR 2). The times in the log are the leader's,
// which may differ from this broker's.
func (m *logMemory) repeatable(p *engine.Partition, now time.Time, last time.Duration) ident.Offset {
	if n := len(m.committed); n == 0 || now.Sub(m.committed[n-1].at) >= last/repeatMarks {
		m.committed = append(m.committed, committedAt{now, p.Committed().Offset})
	}
	for len(m.committed) > 1 && now.Sub(m.committed[1].at) >= last {
		m.committed = m.committed[1:]
	}
	if now.Sub(m.committed[0].at) < last {
		return 0
	}
	return m.committed[0].end
}

// A few delayed or poison messages must not pin a log. If the unfinished messages of the oldest segment take few bytes
// compared with the bytes that would be freed, the leader copies them, with their sequences, into a relocation batch at
// the end of the log. Then it notifies the channels of all replicas of their new position.
const (
	relocateShare      = 20        // the freed bytes must be at least this multiple of the relocated ones
	relocationBytes    = 256 << 10 // of one relocation batch: reading one of its messages reads it all
	relocationMessages = 1 << 16   // in one round
	// Messages that were too large to be relocated are tried again when the log has grown by one part in relocateGrowth, or
	// after relocateAgain.
	relocateGrowth = 8
	relocateAgain  = time.Minute
)

var (
	errRelocate = errors.New("maintenance: the relocation batch is not in the committed log")
	errTooMuch  = errors.New("maintenance: the unfinished messages are too large to be relocated")
)

// relocate copies the unfinished messages of the oldest segment, which ends at head, to the end of the log, if they
// take few bytes compared with the part of the log up to may, which is then freed.
func (r *retention) relocate(ctx context.Context, p *engine.Partition, m *logMemory, head, may ident.Offset) error {
	tried := tooMuch{start: p.Store().Start().Offset, may: may, at: time.Now()}
	segment, ok := p.Store().Index().AtOffset(head)
	if !ok || m.tooMuch.still(tried) {
		return nil
	}
	seqs, all := p.Queue().DeferredBelow(segment.First, head, relocationMessages)
	if !all {
		m.tooMuch = tried
		return nil
	}
	drafts, err := gather(p, seqs, int(min(tried.size()/relocateShare, 1<<30)))
	if errors.Is(err, errTooMuch) {
		m.tooMuch = tried
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	for _, d := range drafts {
		if err := r.putRelocation(ctx, p, d); err != nil {
			return err
		}
	}
	return nil
}

// tooMuch records an attempt that found too many bytes to relocate in the log from start to may.
type tooMuch struct {
	start, may ident.Offset
	at         time.Time
}

func (x tooMuch) size() ident.Offset { return x.may - x.start }

func (x tooMuch) still(next tooMuch) bool {
	return next.start == x.start && next.size() < x.size()+x.size()/relocateGrowth && next.at.Sub(x.at) < relocateAgain
}

// gather reads messages into relocation batches. errTooMuch: they have more than limit bytes.
func gather(p *engine.Partition, seqs []ident.Sequence, limit int) (drafts []queue.Draft, err error) {
	c, total := queue.NewRelocation(), 0
	for _, seq := range seqs {
		m, ok, err := message(p, seq)
		if err != nil {
			return nil, fmt.Errorf("relocate message %d: %w", seq, err)
		}
		if !ok {
			continue // the channel detects it when it reads the message
		}
		if total += m.Size(); total > limit {
			return nil, errTooMuch
		}
		if err := c.Add(m); err != nil {
			return nil, err
		}
		if c.Size() >= relocationBytes {
			drafts, c = append(drafts, c.Draft()), queue.NewRelocation()
		}
	}
	if c.Count() > 0 {
		drafts = append(drafts, c.Draft())
	}
	return drafts, nil
}

func message(p *engine.Partition, seq ident.Sequence) (queue.Message, bool, error) {
	read, err := p.Queue().Read(seq, 1, nil)
	if len(read) == 0 || read[0].Seq != seq {
		return queue.Message{}, false, err
	}
	return read[0], true, nil
}

// putRelocation publishes one relocation batch, and notifies the channels when it is committed. After a failure in between no
// channel uses the batch.
func (r *retention) putRelocation(ctx context.Context, p *engine.Partition, d queue.Draft) error {
	from := p.View().Committed.Offset
	if committed, err := r.Engine.PutControl(ctx, p.ID(), d); err != nil || !committed {
		return err
	}
	at, seqs, err := findRelocation(p, from, d)
	if err != nil {
		return err
	}
	if err := p.Queue().Relocate(ctx, at, seqs, false); err != nil {
		return err
	}
	return p.Queue().Relocate(ctx, at, seqs, true)
}

// findRelocation finds a relocation batch at or after an offset.
func findRelocation(p *engine.Partition, from ident.Offset, d queue.Draft) (ident.Offset, []ident.Sequence, error) {
	for from < p.Committed().Offset {
		batches, err := p.Store().ReadAt(from, engine.ReadBytes)
		if err != nil {
			return 0, nil, err
		}
		if len(batches) == 0 {
			break
		}
		for i := range batches {
			x := &batches[i]
			if from = x.End.Offset; x.Control != queue.ControlRelocation || len(x.Bytes) != len(d.Bytes) ||
				queue.Checksum(x.Bytes[queue.HeaderSize:]) != d.PayloadCRC {
				continue
			}
			var seqs []ident.Sequence
			for _, m := range x.Relocated(nil) {
				seqs = append(seqs, m.Seq)
			}
			return x.At.Offset, seqs, nil
		}
	}
	return 0, nil, errRelocate
}
