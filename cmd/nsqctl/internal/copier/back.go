package copier

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// A log goes back when it is restored from a backup, or continues after an unclean recovery: messages that were
// committed are gone, and other messages get their sequences.

// doubtWait is the time between the two looks that a target has to fail.
const doubtWait = time.Second

// Verify looks whether the target still has the newest copy. If it has lost it, twice in a row, the result is
// ErrWentBack.
func (p *Partition) Verify(ctx context.Context) error {
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
	return ErrWentBack
}

// lost reports whether the target has lost the newest copy. A copy that its retention has removed is not lost.
func (p *Partition) lost(ctx context.Context) (bool, error) {
	p.mu.Lock()
	last, end := p.last, p.end
	p.mu.Unlock()
	if end == 0 {
		return false, nil
	}
	from, limit := end, 0
	if last != nil {
		from, limit = last.Target, 1
	}
	leader, err := p.leader(ctx)
	if err != nil {
		return false, err
	}
	page, err := p.read(ctx, from, leader, limit)
	if err != nil {
		return false, err
	}
	switch {
	case last != nil && last.Target >= page.End:
		return true, nil
	case last != nil && last.Target >= page.Start:
		if len(page.Messages) == 0 {
			return false, fmt.Errorf("partition %d of %s: the leader does not give message %d", p.source.Partition, p.target.Topic, from)
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
func (p *Partition) lookFrom(place uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = place
}

// reset forgets what is known of the target.
func (p *Partition) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.high, p.end, p.mark, p.last, p.segments, p.matched = 0, 0, 0, "", nil, nil, nil
	clear(p.copies)
	clear(p.only)
}

// cut forgets the copies of messages at and above a sequence of the source: it does not have these messages any
// more, and other ones get their sequences.
func (p *Partition) cut(sequence uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.segments.cut(sequence)
	p.next, p.high, p.mark, p.last, p.mixed = min(p.next, sequence), min(p.high, sequence), "", nil, true
}

// leaveOthers is called when the target's log was read while a put of the same messages was under way. Copies
// with their sequences come from an earlier attempt, or late from another history of the source. The latter do
// not count.
func (p *Partition) leaveOthers(ctx context.Context, origins []msgstream.Origin) error {
	if p.comparing || origins[0].Channel != "" {
		return nil
	}
	for _, o := range origins {
		p.mu.Lock()
		at, known := p.segments.place(o.Sequence)
		isNew := o.Sequence >= p.next
		p.mu.Unlock()
		if isNew {
			return nil
		}
		if known {
			leader, err := p.leader(ctx)
			if err != nil {
				return err
			}
			there, is, err := p.origin(ctx, leader, at)
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

// Source is the log of which a partition has the copies.
type Source struct {
	Client    *brokerapi.Client
	Topic     string
	ID        ident.TopicID
	Partition int
}

// Page reads a page at the leader.
func (s Source) Page(ctx context.Context, from string, limit int) (Page, error) {
	return AtLeader(ctx, s.Client, s.Topic, s.ID, s.Partition, from, limit)
}

// time is when a message was published; false if the log does not have it.
func (s Source) time(ctx context.Context, sequence uint64) (ns int64, ok bool, err error) {
	page, err := s.Page(ctx, fmt.Sprint(sequence), 1)
	if err != nil || len(page.Messages) == 0 || page.Messages[0].Sequence != sequence {
		return 0, false, err
	}
	return page.Messages[0].TimeNS, true, nil
}

// Holds reports whether the source has the messages that are copied, or cannot tell: its retention may have
// removed them. They are not compared one by one: the source's log up to where a saved State ended, by its mark, and
// the original of the newest copy.
func (p *Partition) Holds(ctx context.Context, s Source) (bool, error) {
	p.mu.Lock()
	last, saved := p.last, p.resumed
	p.mu.Unlock()
	if saved != nil && saved.Mark != "" {
		page, err := s.Page(ctx, fmt.Sprint(saved.Next), 0)
		if err != nil || page.End < saved.Next || page.Mark != "" && page.Mark != saved.Mark {
			return false, err
		}
	}
	if last != nil {
		ns, ok, err := s.time(ctx, last.Source)
		if err != nil || ok && ns != last.TimeNS {
			return false, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumed = nil
	return true, nil
}

// Compare begins a comparison of all messages of the source with their copies: a side may have gone back. It reads the whole log
// of the target again, and makes the first message of the source the next one that may be missing, or the first
// one that was ever copied. Append leaves out what is there. Settle ends the comparison.
func (p *Partition) Compare(ctx context.Context, s Source) error {
	page, err := s.Page(ctx, "earliest", 0)
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
	next, there := p.segments.lowest()
	p.mu.Unlock()
	if there && next > page.Start { // earlier messages were left out, or the target's retention has removed them
		ns, ok, err := s.time(ctx, next)
		if err != nil {
			return err
		}
		p.mu.Lock()
		_, there = p.segments.match(next, ns)
		there = there && ok
		p.mu.Unlock()
	}
	if !there || next < page.Start {
		next = page.Start
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = next
	return nil
}

// Comparing reports whether a comparison has begun, and is not settled.
func (p *Partition) Comparing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.comparing
}

// Mixed reports whether the target has received copies of another history of the source since.
func (p *Partition) Mixed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mixed
}
