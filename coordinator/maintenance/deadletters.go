package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// errNoPolicy means that the metadata here is older or newer than the channel, so its dead-letter topic is unknown.
var errNoPolicy = errors.New("maintenance: the metadata here does not have the channel yet, or no longer")

// deadLettersEvery is how often messages that failed too often are moved.
const deadLettersEvery = 50 * time.Millisecond

// deadLetters moves messages that failed too often from the channels led here to their dead-letter topics: first the
// replicated put, then the finish.
type deadLetters struct {
	*Broker
	mu struct {
		sync.Mutex
		noted  map[*engine.Partition]struct{} // have dead letters
		moving map[*engine.Partition]struct{}
	}
}

func newDeadLetters(b *Broker) *deadLetters {
	d := &deadLetters{Broker: b}
	d.mu.noted, d.mu.moving = map[*engine.Partition]struct{}{}, map[*engine.Partition]struct{}{}
	return d
}

// Note reports that a partition has dead letters. It does not block.
func (d *deadLetters) Note(p *engine.Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.noted[p] = struct{}{}
}

func (d *deadLetters) run(context.Context) {
	for _, p := range d.take() {
		d.Group.Go(func(ctx context.Context) {
			defer d.moved(p)
			for _, name := range p.Queue().Channels() {
				c, ok := p.Queue().Channel(name)
				for more := ok; more; {
					dead := c.DeadLetters()
					more = len(dead) > 0 && d.move(ctx, p, c, dead)
				}
			}
		})
	}
}

// take returns the noted partitions that are led here. A partition stays noted if its messages are being moved, or if
// its topic is in the trash.
func (d *deadLetters) take() (list []*engine.Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.mu.noted {
		if _, moving := d.mu.moving[p]; (moving || p.Trashed()) && p.Leading() {
			continue
		}
		delete(d.mu.noted, p)
		if p.Leading() {
			d.mu.moving[p] = struct{}{}
			list = append(list, p)
		}
	}
	return list
}

func (d *deadLetters) moved(p *engine.Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.moving, p)
}

// move moves some dead messages together; false if not all could be moved.
func (d *deadLetters) move(ctx context.Context, p *engine.Partition, c *nsqd.Channel, dead []api.Delivery) (all bool) {
	var failed, late []error
	for i, err := range d.publish(ctx, p, c, dead) {
		receipt := nsqd.DeadReceipt(&dead[i])
		if err != nil {
			failed = append(failed, err)
			c.ReleaseDead(receipt)
		} else if err := c.DeadMoved(receipt); err != nil {
			late = append(late, err)
		}
	}
	log := d.Log.WithFields(p.LogFields()).WithField("channel", c.Name())
	if len(failed) > 0 {
		log.WithError(failed[0]).WithField("count", len(failed)).Warn("cannot move dead messages yet")
	}
	if len(late) > 0 {
		log.WithError(late[0]).WithField("count", len(late)).
			Info("dead messages were moved, and will be moved again: the channel has another leader")
	}
	return len(failed) == 0
}

// may reports whether the owner of a policy may publish to its dead-letter topic now. A policy without an owner acts
// with the broker's rights.
func (d *deadLetters) may(p option.Policy) bool {
	return p.DeadLetterTopic == "" || p.Owner == "" || d.MayPublish == nil || d.MayPublish(p.Owner, p.DeadLetterTopic)
}

// Held lists the policies whose owners have lost the right, of the topics whose first partition is led here.
func (d *deadLetters) Held(partitions []*engine.Partition) (list []api.HeldPolicy) {
	for _, p := range partitions {
		if p.ID().Number != 0 || !p.Leading() {
			continue
		}
		for name, c := range d.Catalog.Channels(p.ID().Topic) {
			if !d.may(c.Policy) {
				list = append(list, api.HeldPolicy{Topic: p.Topic(), Channel: name, DeadLetterTopic: c.Policy.DeadLetterTopic, Owner: c.Policy.Owner})
			}
		}
	}
	slices.SortFunc(list, func(x, y api.HeldPolicy) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Channel, y.Channel))
	})
	return list
}

func (d *deadLetters) publish(ctx context.Context, p *engine.Partition, c *nsqd.Channel, dead []api.Delivery) []error {
	channel := c.Name()
	s := d.Catalog.Channels(p.ID().Topic)[channel]
	if s.ID != c.ID() { // deleted, and perhaps recreated
		return slices.Repeat([]error{errNoPolicy}, len(dead))
	}
	to := s.Policy.DeadLetterTopic
	if !d.may(s.Policy) {
		return slices.Repeat([]error{fmt.Errorf("%w: user %s set the policy and may no longer publish to %s; grant it the right, or set the policy as another user", outcome.ErrUnavailable, s.Policy.Owner, to)}, len(dead))
	}
	messages := make([]queue.Message, len(dead))
	for i, x := range dead {
		messages[i] = queue.Message{
			Body: x.Message.Body, Header: nsqd.EncodeDeadLetter(p.Topic(), channel, x), Trace: x.Message.Trace,
			Identity: queue.IdentityOfCopy(queue.CopyDeadLetter, queue.Source{Topic: p.ID().Topic, Partition: p.ID().Number, Sequence: x.Message.Seq, Channel: channel, ChannelID: c.ID(), TimeNS: x.Message.Time}),
		}
	}
	if err := d.Admin.EnsureDeadLetters(ctx, to); err != nil {
		return slices.Repeat([]error{err}, len(dead))
	}
	return d.Publisher.PublishAll(ctx, to, nil, messages)
}
