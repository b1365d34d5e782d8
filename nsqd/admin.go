package nsqd

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// CreateChannel creates a channel, or finds it. It returns when the channel's position is on all in-sync replicas. It
// replaces a channel that has the same name and another id. Errors: ErrNotLeader, ErrNotReplicated, outcome.ErrInvalid.
func (p *Partition) CreateChannel(ctx context.Context, name string, o ChannelOptions) (*Channel, error) {
	if name == "" || len(name) > maxName {
		return nil, fmt.Errorf("%w: channel name %q", outcome.ErrInvalid, name)
	}
	c, err := p.create(name, o)
	if err != nil {
		return nil, err
	}
	if err := c.creation.wait(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// maxName is NSQ's limit for a channel name with its suffix, in bytes.
const maxName = 64

func (p *Partition) create(name string, o ChannelOptions) (*Channel, error) {
	p.emit.Lock()
	defer p.emit.Unlock()
	c, records, err := p.insert(name, o)
	if len(records) > 0 {
		p.post(c.creation, records...)
	}
	return c, err
}

// insert finds the channel, or creates it and returns the change for the replicas.
func (p *Partition) insert(name string, o ChannelOptions) (c *Channel, records []state.Record, err error) {
	now := p.o.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leadership.active {
		return nil, nil, ErrNotLeader
	}
	if c, ok := p.channels[name]; ok && o.ID != 0 && c.id != o.ID {
		end := p.leadership.committed.Sequence
		records = append(records, state.Record{Kind: state.KindDelete, Channel: name, At: end})
		p.deleteLocked(name, end)
	} else if ok {
		if c.ephemeral && o.Ordered && !c.Ordered() {
			c.setOrdered(true) // an ephemeral channel is neither replicated nor in the metadata
		}
		return c, nil, nil
	}
	at := p.originLocked(o)
	c = newChannel(p, name, o.ID, o.Ordered, at)
	c.lead(p.leadership.epoch, p.limitLocked(), now)
	p.setChannelLocked(name, c)
	p.leadership.hadChannels = true
	if c.ephemeral {
		return c, nil, nil
	}
	c.creation = &pendingChange{p: p, done: make(chan struct{})}
	create := state.Record{Kind: state.KindCreate, Channel: name, ID: o.ID, Flags: flagIf(o.Ordered, state.FlagOrdered), At: at}
	return c, append(records, create), nil
}

// originLocked is the position within the log at which a channel with these options begins.
func (p *Partition) originLocked(o ChannelOptions) ident.Sequence {
	at := ident.MaxSequence
	switch o.Origin {
	case FromBacklog:
		at = p.keep
	case FromEarliest:
		at = 0
	case FromSequence:
		at = o.Sequence
	}
	return min(max(at, p.source.Start().Sequence), p.limitLocked())
}

// change makes an administrative change on the leader (applyLocked), and waits until all in-sync replicas have it.
func (p *Partition) change(ctx context.Context, work func() (state.Record, error)) error {
	d, err := p.begin(work)
	if err != nil {
		return err
	}
	return d.wait(ctx)
}

// begin computes the change, applies it and posts it. It returns nil for an ephemeral channel, which is not replicated.
func (p *Partition) begin(work func() (state.Record, error)) (*pendingChange, error) {
	p.emit.Lock()
	defer p.emit.Unlock()
	r, err := p.stage(work)
	if err != nil || r.Channel != "" && IsEphemeral(r.Channel) {
		return nil, err
	}
	d := &pendingChange{p: p, done: make(chan struct{})}
	p.post(d, r)
	return d, nil
}

func (p *Partition) stage(work func() (state.Record, error)) (state.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leadership.active {
		return state.Record{}, ErrNotLeader
	}
	r, err := work()
	if err == nil {
		p.applyLocked(r)
	}
	return r, err
}

// onChannel is change for one channel. An additional error is outcome.ErrChannelNotFound.
func (p *Partition) onChannel(ctx context.Context, name string, work func(c *Channel) state.Record) error {
	return p.change(ctx, func() (state.Record, error) {
		c, ok := p.channels[name]
		if !ok {
			return state.Record{}, outcome.ErrChannelNotFound
		}
		r := work(c)
		r.Channel = name
		c.used()
		return r, nil
	})
}

// DeleteChannel ends a channel and discards its state. Like all operations below, it returns when the change is on all
// in-sync replicas. Errors: outcome.ErrChannelNotFound, ErrNotLeader, ErrNotReplicated.
func (p *Partition) DeleteChannel(ctx context.Context, name string) error {
	return p.onChannel(ctx, name, func(*Channel) state.Record {
		return state.Record{Kind: state.KindDelete, At: p.leadership.committed.Sequence}
	})
}

// EmptyChannel discards every unfinished message of a channel, including those in flight and deferred.
func (p *Partition) EmptyChannel(ctx context.Context, name string) error {
	return p.onChannel(ctx, name, func(*Channel) state.Record {
		return state.Record{Kind: state.KindSeek, At: p.limitLocked()}
	})
}

// SeekChannel moves the channel, forward or back, to where a new channel with these options would begin. It forgets
// messages in flight and deferred messages. The returned effect is exact, even with ErrNotReplicated.
func (p *Partition) SeekChannel(ctx context.Context, name string, o ChannelOptions) (e SeekEffect, err error) {
	err = p.onChannel(ctx, name, func(c *Channel) state.Record {
		c.seekEffect = &e
		return state.Record{Kind: state.KindSeek, At: p.originLocked(o)}
	})
	return e, err
}

// PlanSeek returns the effect that SeekChannel would have. Errors: outcome.ErrChannelNotFound, ErrNotLeader.
func (p *Partition) PlanSeek(name string, o ChannelOptions) (SeekEffect, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.leadership.active {
		return SeekEffect{}, ErrNotLeader
	}
	c, ok := p.channels[name]
	if !ok {
		return SeekEffect{}, outcome.ErrChannelNotFound
	}
	to := p.originLocked(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.effectLocked(to), nil
}

// FinishElsewhere finishes messages of a channel without consumers, because another channel has finished their
// originals. The cursor never moves back, and a deferred message that this channel has delivered before stays deferred.
// Spans are cut at the committed end. A repeat changes nothing. Errors are those of SeekChannel.
func (p *Partition) FinishElsewhere(ctx context.Context, name string, spans []cursor.Span) (e cursor.Elsewhere, err error) {
	err = p.change(ctx, func() (state.Record, error) {
		c, ok := p.channels[name]
		if !ok {
			return state.Record{}, outcome.ErrChannelNotFound
		}
		var made cursor.Progress
		made, e = c.finishElsewhere(spans)
		if e.Finished == 0 {
			return state.Record{}, errNoChange
		}
		return state.Record{Kind: state.KindProgress, Channel: name, Progress: made}, nil
	})
	if errors.Is(err, errNoChange) {
		err = nil
	}
	return e, err
}

// errNoChange means that a change would have no effect: nothing is replicated.
var errNoChange = errors.New("nsqd: no change")

// finishElsewhere finishes the messages at once, before the change is applied, so that no new consumer gets them.
func (c *Channel) finishElsewhere(spans []cursor.Span) (made cursor.Progress, e cursor.Elsewhere) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.subs.all) > 0 {
		return made, cursor.Elsewhere{Stays: true}
	}
	var inFlight []ident.Sequence // to consumers that have left; these messages wait for their timeouts
	for _, f := range c.inFlight.heap {
		inFlight = append(inFlight, f.seq)
	}
	if made, e = c.cursor.FinishElsewhere(spans, c.limit, inFlight); e.Finished > 0 {
		c.changedLocked()
		c.counts.uses++
	}
	return made, e
}

// PauseChannel stops or resumes deliveries. Finishes still count.
func (p *Partition) PauseChannel(ctx context.Context, name string, paused bool) error {
	return p.onChannel(ctx, name, func(*Channel) state.Record {
		return state.Record{Kind: state.KindPause, Flags: flagIf(paused, state.FlagPaused)}
	})
}

// OrderChannel makes the channel ordered, or unordered.
func (p *Partition) OrderChannel(ctx context.Context, name string, ordered bool) error {
	return p.onChannel(ctx, name, func(*Channel) state.Record {
		return state.Record{Kind: state.KindOrder, Flags: flagIf(ordered, state.FlagOrdered)}
	})
}

// PauseTopic withholds messages that are published from now on from all channels, or releases them.
func (p *Partition) PauseTopic(ctx context.Context, paused bool) error {
	return p.change(ctx, func() (state.Record, error) {
		if !paused {
			return state.Record{Kind: state.KindBarrier}, nil
		}
		return state.Record{Kind: state.KindBarrier, Flags: state.FlagPaused, At: p.limitLocked()}, nil
	})
}

// EmptyTopic discards the messages that no channel has received yet: all messages of a topic
// without channels, or the messages since the pause of a paused topic.
func (p *Partition) EmptyTopic(ctx context.Context) error {
	return p.change(ctx, func() (state.Record, error) {
		return state.Record{Kind: state.KindKeep, At: p.leadership.committed.Sequence}, nil
	})
}

// ReleaseEphemeral releases the messages that every channel of an #ephemeral topic has passed, if all channels are
// ephemeral. Such a topic is deleted with its last channel, so no later channel needs them. The followers do not have
// these channels: they keep the log until the leader moves the topic's cursor.
func (p *Partition) ReleaseEphemeral() {
	if at, ok := p.passed(); ok {
		_, _ = p.begin(func() (state.Record, error) { return state.Record{Kind: state.KindKeep, At: at}, nil }) // a later leader repeats it
	}
}

// passed returns the first sequence that the channels of an #ephemeral topic still need; false: no move is due.
func (p *Partition) passed() (low ident.Sequence, ok bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !IsEphemeral(p.topic) || len(p.channels) == 0 {
		return 0, false
	}
	low = ident.MaxSequence
	for _, c := range p.channels {
		if !c.ephemeral {
			return 0, false
		}
		c.mu.Lock()
		low = min(low, c.lowWaterLocked())
		c.mu.Unlock()
	}
	return low, low > p.keep
}

// CancelDeferred finishes deferred messages of a channel and returns their number. Errors are those of DeleteChannel.
func (p *Partition) CancelDeferred(ctx context.Context, channel string, seqs []ident.Sequence) (n int, err error) {
	if c, ok := p.Channel(channel); ok {
		c.prescanEach(seqs)
	}
	err = p.onChannel(ctx, channel, func(c *Channel) state.Record {
		c.mu.Lock()
		defer c.mu.Unlock()
		r := state.Record{Kind: state.KindProgress}
		for _, seq := range seqs {
			// The message is finished here, before applyLocked runs, because it could be delivered in between.
			if e, ok := c.cursor.Deferred.Get(seq); ok && e.Deadline != 0 {
				c.cursor.Finish(seq)
				r.Progress.Finished = append(r.Progress.Finished, seq)
			}
		}
		n = len(r.Progress.Finished)
		return r
	})
	return n, err
}

// dropEphemeral removes an ephemeral channel after its last subscriber has left.
func (p *Partition) dropEphemeral(c *Channel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.mu.Lock()
	inUse := len(c.subs.all) > 0
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
