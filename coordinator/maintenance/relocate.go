package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// A few delayed or poison messages must not pin a log. If the unfinished messages of the oldest segment are few bytes compared
// with those that would be freed, the leader copies them, with their sequences, into a relocation batch at the end of the log.
// Then it notifies the channels of all replicas of their new place.
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

// relocate copies the unfinished messages of the oldest segment, which ends at head, to the end of the log, if they are few
// bytes compared with those up to may that are then freed.
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

// tooMuch is an attempt with too many bytes to relocate, for a log from start to may.
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
