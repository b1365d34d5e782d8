package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// A log goes back when it is restored from a backup, or continues after an unclean recovery: messages that were
// committed are gone, and other messages get their sequences.

// doubtWait is the time between the two reads that a target has to fail.
const doubtWait = time.Second

// verify checks that the target still has the newest copy. If it has lost it, twice in a row, the result is errWentBack.
func (p *copier) verify(ctx context.Context) error {
	if lost, err := p.lost(ctx); err != nil || !lost {
		return err
	}
	if !concurrency.Sleep(ctx, doubtWait) { // the broker may have been deposed
		return ctx.Err()
	}
	if lost, err := p.lost(ctx); err != nil || !lost {
		return err
	}
	return errWentBack
}

// lost reports whether the target has lost the newest copy. A copy that its retention has removed is not lost.
func (p *copier) lost(ctx context.Context) (bool, error) {
	last, from, limit := p.Last, p.End, 0
	if from == 0 {
		return false, nil
	}
	if last != nil {
		from, limit = last.Target, 1
	}
	page, err := p.log.page(ctx, fmt.Sprint(from), limit)
	if err != nil {
		return false, err
	}
	switch {
	case last != nil && last.Target >= page.End:
		return true, nil
	case last != nil && last.Target >= page.Start:
		if len(page.Messages) == 0 {
			return false, fmt.Errorf("partition %d of %s: the leader does not give message %d", p.log.partition, p.log.topic, from)
		}
		o, ok := p.originOf(&page.Messages[0])
		if !ok || page.Messages[0].Sequence != from || o.Sequence != last.Source || o.TimeNS != last.TimeNS {
			return true, nil
		}
		if page.End < p.End { // messages of others are lost: other messages may have their sequences now
			p.scanFrom(last.Target + 1)
		}
	case page.End < p.End:
		p.scanFrom(page.End)
	}
	return false, nil
}

// scanFrom makes the next scan begin at a place.
func (p *copier) scanFrom(place uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.End = place
}

// cut forgets the copies of messages at and above a sequence of the source: it no longer has these messages, and others get
// their sequences.
func (p *copier) cut(sequence uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Segments.cut(sequence)
	p.Next, p.high, p.Mark, p.Last, p.mixed = min(p.Next, sequence), min(p.high, sequence), "", nil, true
}

// dropOtherHistory is called when the target's log was read while a put of the same messages was under way. Copies
// with their sequences come from an earlier attempt, or late from another history of the source, and then do not count.
func (p *copier) dropOtherHistory(ctx context.Context, origins []msgstream.Origin) error {
	if p.comparing || origins[0].Channel != "" {
		return nil
	}
	for _, o := range origins {
		if o.Sequence >= p.Next {
			return nil
		}
		p.mu.Lock()
		at, known := p.Segments.place(o.Sequence)
		p.mu.Unlock()
		if known {
			there, is, err := p.origin(ctx, "", at)
			if err != nil {
				return err
			}
			if is && there.TimeNS == o.TimeNS {
				continue
			}
		}
		p.cut(o.Sequence)
		return nil
	}
	return nil
}

// sourceHas reports whether the source has the messages that are copied, or cannot tell: its retention may have
// removed them. They are not compared one by one: the source's log up to where a saved state ended, by its mark, and
// the original of the newest copy.
func (p *copier) sourceHas(ctx context.Context, s partitionLog) (bool, error) {
	if saved := p.resumed; saved != nil && saved.Mark != "" {
		page, err := s.page(ctx, fmt.Sprint(saved.Next), 0)
		if err != nil || page.End < saved.Next || page.Mark != "" && page.Mark != saved.Mark {
			return false, err
		}
	}
	if last := p.Last; last != nil {
		m, there, err := s.message(ctx, last.Source, "")
		if err != nil || there && m.TimeNS != last.TimeNS {
			return false, err
		}
	}
	p.resumed = nil
	return true, nil
}

// compare begins a comparison of all messages of the source with their copies: a side may have gone back. It reads the whole log
// of the target again, and makes the first message of the source the next one that may be missing, or the first
// one that was ever copied. append leaves out what is there. settle ends the comparison.
func (p *copier) compare(ctx context.Context, s partitionLog) error {
	page, err := s.page(ctx, "earliest", 0)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.copyState, p.high, p.matched = copyState{}, 0, nil
	p.comparing, p.mixed, p.resumed = true, false, nil
	clear(p.copies)
	clear(p.only)
	p.mu.Unlock()
	if err := p.scanUntil(ctx, 0); err != nil {
		return err
	}
	p.mu.Lock()
	next, there := p.Segments.lowest()
	p.mu.Unlock()
	if there && next > page.Start { // earlier messages were left out, or the target's retention has removed them
		m, ok, err := s.message(ctx, next, "")
		if err != nil {
			return err
		}
		p.mu.Lock()
		_, there = p.Segments.match(next, m.TimeNS)
		there = there && ok
		p.mu.Unlock()
	}
	if !there || next < page.Start {
		next = page.Start
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Next = next
	return nil
}
