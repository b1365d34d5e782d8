package copier

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/msgstream"
	"github.com/lockstepmq/lockstep/internal/sleep"
)

// A log goes back when it is restored from a backup, or continues after an unclean recovery: messages that were
// committed are gone, and other messages get their sequences.

// doubtWait is the time between the two looks that a target has to fail.
const doubtWait = time.Second

// Verify looks whether the target still has the newest copy. If it has lost it, twice in a row, the partition
// reads the whole log of the target again, and the result is ErrWentBack.
func (p *Partition) Verify(ctx context.Context) error {
	for try := 0; ; try++ {
		lost, err := p.lost(ctx)
		if err != nil || !lost {
			return err
		}
		if try > 0 {
			break
		}
		if !sleep.For(ctx, doubtWait) { // the broker may have been deposed
			return ctx.Err()
		}
	}
	p.reset()
	if err := p.scan(ctx, 0); err != nil {
		return err
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
	p.next, p.high, p.end, p.mark, p.last, p.segments = 0, 0, 0, "", nil, nil
	clear(p.copies)
	clear(p.only)
}

// storedAgain notes a put that the target stored where it had other messages: it went back.
func (p *Partition) storedAgain(ctx context.Context, first uint64, origins []msgstream.Origin) error {
	p.reset()
	if first > 0 {
		if err := p.look(ctx, first); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next, last := p.next, p.last
	for i, o := range origins {
		p.noteLocked(o, first+uint64(i))
	}
	p.next, p.last = next, last // what lies between is missing
	p.end = max(p.end, first+uint64(len(origins)))
	return ErrWentBack
}

// cut forgets the copies of messages at and above a sequence of the source: it does not have these messages any
// more, and other ones get their sequences.
func (p *Partition) cut(sequence uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.segments.cut(sequence)
	p.next, p.high, p.mark, p.last = min(p.next, sequence), min(p.high, sequence), "", nil
}

// leaveOthers is called when the target's log was read while a put of these messages was under way. Copies
// with their sequences are of an earlier attempt, or late ones of another history of the source: those do not
// count.
func (p *Partition) leaveOthers(ctx context.Context, origins []msgstream.Origin) error {
	if p.target.Times || origins[0].Channel != "" {
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
	Client    *api.Client
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

// Holds reports whether the source has the original of the newest copy, or cannot tell: its retention may have
// removed it.
func (p *Partition) Holds(ctx context.Context, s Source) (bool, error) {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if last == nil {
		return true, nil
	}
	ns, ok, err := s.time(ctx, last.Source)
	return !ok || ns == last.TimeNS, err
}

// Rewind is called when the source may have gone back. It finds the first message of the source that the target
// does not have, by the times of the originals in the target's log, and makes it the next one. It returns the
// number of copies whose originals the source has lost.
func (p *Partition) Rewind(ctx context.Context, s Source) (lost uint64, err error) {
	p.mu.Lock()
	before := p.next
	p.mu.Unlock()
	page, err := s.Page(ctx, "earliest", 0)
	if err != nil {
		return 0, err
	}
	p.reset()
	if err := p.look(ctx, 0); err != nil {
		return 0, err
	}
	leader, err := p.leader(ctx)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	common := p.segments.between(page.Start, page.End)
	p.mu.Unlock()
	total := uint64(0)
	for _, x := range common {
		total += x.Count
	}
	// The logs are equal up to one place, and different from there on.
	same := sort.Search(int(total), func(i int) bool {
		if err != nil {
			return true
		}
		x := common.nth(uint64(i))
		var ns int64
		var ok bool
		if ns, ok, err = s.time(ctx, x.Source); err != nil || !ok {
			return true
		}
		var o msgstream.Origin
		o, ok, err = p.origin(ctx, leader, x.Target)
		return err != nil || !ok || o.TimeNS != ns
	})
	if err != nil {
		return 0, err
	}
	next := page.Start
	var last *Copy
	if same > 0 {
		x := common.nth(uint64(same - 1))
		o, _, err := p.origin(ctx, leader, x.Target)
		if err != nil {
			return 0, err
		}
		next, last = x.Source+1, &Copy{Source: x.Source, Target: x.Target, TimeNS: o.TimeNS}
	}
	p.cut(next)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.last = next, last
	return before - min(next, before), nil
}
