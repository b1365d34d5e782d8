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

// doubtWait is the time between the two looks that a target has to fail.
const doubtWait = time.Second

// verify looks whether the target still has the newest copy. If it has lost it, twice in a row, the result is
// errWentBack.
func (p *copier) verify(ctx context.Context) error {
	for try := 0; ; try++ {
		lost, err := p.lost(ctx)
		if err != nil || !lost {
			return err
		}
		if try > 0 {
			break
		}
		if !concurrency.Sleep(ctx, doubtWait) { // the broker may have been deposed
			return ctx.Err()
		}
	}
	return errWentBack
}

// lost reports whether the target has lost the newest copy. A copy that its retention has removed is not lost.
func (p *copier) lost(ctx context.Context) (bool, error) {
	p.mu.Lock()
	last, end := p.Last, p.End
	p.mu.Unlock()
	if end == 0 {
		return false, nil
	}
	from, limit := end, 0
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
		if page.End < end { // messages of others are lost: theirs may have these sequences now
			p.lookFrom(last.Target + 1)
		}
	case page.End < end:
		p.lookFrom(page.End)
	}
	return false, nil
}

// lookFrom makes the next scan begin at a place.
func (p *copier) lookFrom(place uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.End = place
}

// reset forgets what is known of the target.
func (p *copier) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Next, p.high, p.End, p.Mark, p.Last, p.Segments, p.matched = 0, 0, 0, "", nil, nil, nil
	clear(p.copies)
	clear(p.only)
}

// cut forgets the copies of messages at and above a sequence of the source: it does not have these messages any
// more, and other ones get their sequences.
func (p *copier) cut(sequence uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Segments.cut(sequence)
	p.Next, p.high, p.Mark, p.Last, p.mixed = min(p.Next, sequence), min(p.high, sequence), "", nil, true
}

// leaveOthers is called when the target's log was read while a put of the same messages was under way. Copies
// with their sequences come from an earlier attempt, or late from another history of the source. The latter do
// not count.
func (p *copier) leaveOthers(ctx context.Context, origins []msgstream.Origin) error {
	if p.comparing || origins[0].Channel != "" {
		return nil
	}
	for _, o := range origins {
		p.mu.Lock()
		at, known := p.Segments.place(o.Sequence)
		isNew := o.Sequence >= p.Next
		p.mu.Unlock()
		if isNew {
			return nil
		}
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
	p.mu.Lock()
	last, saved := p.Last, p.resumed
	p.mu.Unlock()
	if saved != nil && saved.Mark != "" {
		page, err := s.page(ctx, fmt.Sprint(saved.Next), 0)
		if err != nil || page.End < saved.Next || page.Mark != "" && page.Mark != saved.Mark {
			return false, err
		}
	}
	if last != nil {
		m, there, err := s.message(ctx, last.Source, "")
		if err != nil || there && m.TimeNS != last.TimeNS {
			return false, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumed = nil
	return true, nil
}

// compare begins a comparison of all messages of the source with their copies: a side may have gone back. It reads the whole log
// of the target again, and makes the first message of the source the next one that may be missing, or the first
// one that was ever copied. Append leaves out what is there. Settle ends the comparison.
func (p *copier) compare(ctx context.Context, s partitionLog) error {
	page, err := s.page(ctx, "earliest", 0)
	if err != nil {
		return err
	}
	p.reset()
	p.mu.Lock()
	p.comparing, p.mixed, p.resumed = true, false, nil
	p.mu.Unlock()
	if err := p.look(ctx, 0); err != nil {
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
