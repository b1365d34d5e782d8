package nsqd

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// CreateChannel makes a channel, or finds it, and returns when its position is on
// all in-sync replicas. ErrNotLeader, ErrNotReplicated, edge.ErrInvalid.
func (p *Partition) CreateChannel(ctx context.Context, name string, o ChannelOptions) (*Channel, error) {
	if name == "" || len(name) > maxName {
		return nil, fmt.Errorf("%w: channel name %q", edge.ErrInvalid, name)
	}
	c, err := p.create(name, o)
	if err != nil {
		return nil, err
	}
	if err := c.born.wait(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// maxName is NSQ's bound, suffix included.
const maxName = 64

func (p *Partition) create(name string, o ChannelOptions) (*Channel, error) {
	p.emit.Lock()
	defer p.emit.Unlock()
	c, at, err := p.insert(name, o)
	if err == nil && !at.found && c.born != nil {
		p.post(c.born, record{kind: kindCreate, channel: name, flags: flagIf(o.Ordered, flagOrdered), at: at.sequence})
	}
	return c, err
}

// inserted says where a channel begins, unless it was there already.
type inserted struct {
	sequence ident.Sequence
	found    bool
}

func (p *Partition) insert(name string, o ChannelOptions) (*Channel, inserted, error) {
	now := p.o.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leading {
		return nil, inserted{}, ErrNotLeader
	}
	if c, ok := p.channels[name]; ok {
		if c.ephemeral && o.Ordered && !c.Ordered() {
			c.order(true) // nothing is replicated, nor is there a key that says so
		}
		return c, inserted{found: true}, nil
	}
	at := p.originLocked(o)
	c := newChannel(p, name, o.Ordered, at)
	if !c.ephemeral {
		c.born = &change{done: make(chan struct{})}
	}
	c.lead(p.epoch, p.limitLocked(), now)
	p.channels[name], p.peopled = c, true
	return c, inserted{sequence: at}, nil
}

// originLocked turns an origin into a position that the log has.
func (p *Partition) originLocked(o ChannelOptions) ident.Sequence {
	first, end := p.source.Start().Sequence, p.limitLocked()
	switch o.Origin {
	case FromBacklog:
		return min(max(p.keep, first), end)
	case FromEarliest:
		return min(first, end)
	case FromSequence:
		return min(max(o.Sequence, first), end)
	default:
		return end
	}
}

// change carries out one administrative change of the state on the leader, as
// apply does on the others, and waits for them.
func (p *Partition) change(ctx context.Context, work func() (record, error)) error {
	d, err := p.begin(work)
	if err != nil {
		return err
	}
	return d.wait(ctx)
}

// begin works the change out, applies it and posts it. nil: nobody needs to wait.
func (p *Partition) begin(work func() (record, error)) (*change, error) {
	p.emit.Lock()
	defer p.emit.Unlock()
	r, err := p.stage(work)
	if err != nil || r.channel != "" && IsEphemeral(r.channel) {
		return nil, err
	}
	d := &change{done: make(chan struct{})}
	p.post(d, r)
	return d, nil
}

func (p *Partition) stage(work func() (record, error)) (record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leading {
		return record{}, ErrNotLeader
	}
	r, err := work()
	if err == nil {
		p.applyLocked(r)
	}
	return r, err
}

// onChannel is change for one channel.
func (p *Partition) onChannel(ctx context.Context, name string, work func(c *Channel) record) error {
	return p.change(ctx, func() (record, error) {
		c, ok := p.channels[name]
		if !ok {
			return record{}, edge.ErrChannelNotFound
		}
		r := work(c)
		r.channel = name
		return r, nil
	})
}

// DeleteChannel ends a channel and discards what it had. Like all below it
// returns when the change is on all in-sync replicas; edge.ErrChannelNotFound,
// ErrNotLeader, ErrNotReplicated.
func (p *Partition) DeleteChannel(ctx context.Context, name string) error {
	return p.onChannel(ctx, name, func(*Channel) record {
		return record{kind: kindDelete, at: p.committed.Sequence}
	})
}

// EmptyChannel discards everything that the channel has not finished, also what
// is in flight or deferred.
func (p *Partition) EmptyChannel(ctx context.Context, name string) error {
	return p.onChannel(ctx, name, func(*Channel) record {
		return record{kind: kindSeek, at: p.limitLocked()}
	})
}

// SeekChannel moves the channel to a sequence, also back, within what the log
// has. What is in flight or deferred is forgotten.
func (p *Partition) SeekChannel(ctx context.Context, name string, to ident.Sequence) error {
	return p.onChannel(ctx, name, func(*Channel) record {
		at := p.originLocked(ChannelOptions{Origin: FromSequence, Sequence: to})
		return record{kind: kindSeek, at: at}
	})
}

// MoveChannel is SeekChannel to where a new channel with this origin would begin.
func (p *Partition) MoveChannel(ctx context.Context, name string, o ChannelOptions) error {
	return p.onChannel(ctx, name, func(*Channel) record {
		return record{kind: kindSeek, at: p.originLocked(o)}
	})
}

// PauseChannel stops deliveries; finishes still count.
func (p *Partition) PauseChannel(ctx context.Context, name string) error {
	return p.onChannel(ctx, name, func(*Channel) record {
		return record{kind: kindPause, flags: flagPaused}
	})
}

// UnpauseChannel resumes deliveries.
func (p *Partition) UnpauseChannel(ctx context.Context, name string) error {
	return p.onChannel(ctx, name, func(*Channel) record { return record{kind: kindPause} })
}

// OrderChannel makes the channel ordered, or unordered.
func (p *Partition) OrderChannel(ctx context.Context, name string, ordered bool) error {
	return p.onChannel(ctx, name, func(*Channel) record {
		return record{kind: kindOrder, flags: flagIf(ordered, flagOrdered)}
	})
}

// PauseTopic keeps what is published from now on from all channels.
func (p *Partition) PauseTopic(ctx context.Context) error {
	return p.change(ctx, func() (record, error) {
		return record{kind: kindBarrier, flags: flagPaused, at: p.limitLocked()}, nil
	})
}

// UnpauseTopic hands over what came meanwhile.
func (p *Partition) UnpauseTopic(ctx context.Context) error {
	return p.change(ctx, func() (record, error) { return record{kind: kindBarrier}, nil })
}

// EmptyTopic discards what no channel has been given: everything of a topic
// without channels, what came since the pause of a paused one.
func (p *Partition) EmptyTopic(ctx context.Context) error {
	return p.change(ctx, func() (record, error) {
		return record{kind: kindKeep, at: p.committed.Sequence}, nil
	})
}

// Forget gives up what the channels of an #ephemeral topic have had, where all are
// ephemeral: the topic goes with the last of them, so that nobody will ask for it.
// The replicas, which do not know these channels, keep the log for the topic.
func (p *Partition) Forget() {
	if at, ok := p.passed(); ok {
		_, _ = p.begin(func() (record, error) { return record{kind: kindKeep, at: at}, nil }) // or who leads next does
	}
}

// passed is where the log begins that an #ephemeral topic's channels still need;
// false if others decide, or nothing is new.
func (p *Partition) passed() (low ident.Sequence, ok bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !IsEphemeral(p.topic) || len(p.channels) == 0 {
		return 0, false
	}
	low = MaxSequence
	for _, c := range p.channels {
		if !c.ephemeral {
			return 0, false
		}
		low = min(low, c.lowWater())
	}
	return low, low > p.keep
}

// CancelDeferred finishes deferred messages of a channel and returns how many;
// sequences that are not deferred are passed over.
func (p *Partition) CancelDeferred(ctx context.Context, channel string, seqs []ident.Sequence) (n int, err error) {
	if c, ok := p.Channel(channel); ok {
		c.scoutFor(seqs)
	}
	err = p.onChannel(ctx, channel, func(c *Channel) record {
		c.mu.Lock()
		defer c.mu.Unlock()
		r := record{kind: kindProgress}
		for _, seq := range seqs {
			// Finished here already: it might be delivered before apply gets there.
			if e, ok := c.cursor.aside.get(seq); ok && e.deadline != 0 {
				c.cursor.finish(seq)
				r.progress.finished = append(r.progress.finished, seq)
			}
		}
		n = len(r.progress.finished)
		return r
	})
	return n, err
}

// dropEphemeral removes a channel whose last client has left.
func (p *Partition) dropEphemeral(c *Channel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.mu.Lock()
	inUse := len(c.subs) > 0
	c.mu.Unlock()
	if inUse || p.channels[c.name] != c {
		return
	}
	delete(p.channels, c.name)
	c.unlead(ErrDeleted)
}

func flagIf(on bool, f byte) byte {
	if on {
		return f
	}
	return 0
}
