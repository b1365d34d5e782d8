package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// channelTimeout bounds the wait for all leaders of a topic.
const channelTimeout = 5 * time.Second

// CreateChannel makes a channel exist, and which is a topic's first, by one
// transaction; it returns when every partition's leader has replicated the
// position, so that nothing published later is missed. Idempotent.
func (b *Broker) CreateChannel(ctx context.Context, topic, channel, from string, ordered bool) error {
	ctx, cancel := context.WithTimeout(ctx, channelTimeout)
	defer cancel()
	if err := checkOrigin(from); err != nil {
		return err
	}
	if _, err := b.EnsureTopic(ctx, topic); err != nil {
		return err
	}
	if t, ok := b.catalog.topic(topic); ok && t.Ordered {
		ordered = true
	}
	op := queueOp{Verb: verbChannelCreate, Channel: channel, From: from, Ordered: ordered}
	if nsqd.IsEphemeral(channel) {
		t, ok := b.catalog.topic(topic)
		if !ok {
			return edge.ErrTopicNotFound
		}
		return b.onLeaders(ctx, t, op)
	}
	for {
		err := b.placeChannel(ctx, topic, op)
		if !errors.Is(err, edge.ErrChannelNotFound) {
			return err
		}
	}
}

// placeChannel makes the channel's key, and the channel at every leader.
// ErrChannelNotFound: it was deleted meanwhile.
func (b *Broker) placeChannel(ctx context.Context, topic string, op queueOp) error {
	t, c, err := b.ensureChannel(ctx, topic, op.Channel, meta.ChannelState{From: op.From, Ordered: op.Ordered})
	if err != nil {
		return err
	}
	if op.Ordered && !c.Ordered { // it was there and becomes ordered
		if err := b.orderChannel(ctx, topic, op.Channel, true); err != nil {
			return err
		}
		c.Ordered = true
	}
	if b.placed.has(t.ID, op.Channel, c.ID) {
		return nil
	}
	op.ID, op.From, op.First, op.Ordered, op.Paused = c.ID, c.From, c.First, c.Ordered, c.Paused
	if err := b.onLeaders(ctx, t, op); err != nil {
		return err
	}
	b.placed.add(t.ID, op.Channel, c.ID)
	return nil
}

// ensureChannel finds or writes the channel's key. One that is being deleted is
// deleted first, whoever began that.
func (b *Broker) ensureChannel(ctx context.Context, topic, channel string, c meta.ChannelState) (meta.TopicState, meta.ChannelState, error) {
	for {
		t, ok := b.catalog.topic(topic)
		if !ok {
			return t, c, edge.ErrTopicNotFound
		}
		known, ok := b.catalog.channels(t.ID)[channel]
		if ok && !known.Deleting {
			return t, known, nil
		}
		if ok {
			if err := b.finishDelete(ctx, topic, channel, t, known.ID); err != nil {
				return t, c, err
			}
			continue
		}
		err := b.tryChannel(ctx, topic, channel, t, c)
		if err != nil {
			return t, c, fmt.Errorf("%w: create channel %s: %w", edge.ErrUnavailable, channel, err)
		}
		if err := b.await(ctx, func() bool {
			now, ok := b.catalog.topic(topic)
			_, there := b.catalog.channels(t.ID)[channel]
			return there || !ok || now.Revision != t.Revision
		}); err != nil {
			return t, c, fmt.Errorf("%w: %w", edge.ErrUnavailable, err)
		}
	}
}

// tryChannel writes the channel's key if topic and channel are as known. The
// topic's key moves with each channel that comes or goes: who counts them at a
// revision of it has seen all.
func (b *Broker) tryChannel(ctx context.Context, topic, channel string, t meta.TopicState, c meta.ChannelState) error {
	c.V, c.ID, c.First = meta.Version, rand.Uint64()|1, t.FirstChannel == ""
	key := b.keys.Channel(t.ID, channel)
	if t.V = meta.Version; c.First {
		t.FirstChannel = channel
	}
	puts := []meta.Put{{Key: key, Value: meta.Encode(c)}, {Key: b.keys.Topic(topic), Value: meta.Encode(t)}}
	cmp := []meta.Compare{{Key: key}, {Key: b.keys.Topic(topic), Create: -1, Mod: t.Revision}}
	_, _, err := b.meta.Txn(ctx, cmp, puts)
	if errors.Is(err, meta.ErrUnknown) {
		return nil // the watch tells whether it landed; if not, the caller's time runs out
	}
	return err
}

// pauseChannel replicates a pause at every leader; the key remembers it for
// partitions that come later.
func (b *Broker) pauseChannel(ctx context.Context, topic, channel string, paused bool) error {
	_, err := b.alterChannel(ctx, topic, channel, func(c *meta.ChannelState) { c.Paused = paused }, func(c meta.ChannelState) queueOp {
		if c.Paused {
			return queueOp{Verb: verbChannelPause, Channel: channel}
		}
		return queueOp{Verb: verbChannelUnpause, Channel: channel}
	})
	return err
}

// orderChannel makes a channel ordered or unordered in the same way. All
// channels of an ordered topic stay ordered.
func (b *Broker) orderChannel(ctx context.Context, topic, channel string, ordered bool) error {
	t, _ := b.catalog.topic(topic)
	if t.Ordered && !ordered {
		return fmt.Errorf("%w: topic %s is ordered", edge.ErrInvalid, topic)
	}
	c, err := b.alterChannel(ctx, topic, channel, func(c *meta.ChannelState) { c.Ordered = ordered }, func(c meta.ChannelState) queueOp {
		return queueOp{Verb: verbChannelOrder, Channel: channel, Ordered: c.Ordered}
	})
	if err != nil {
		return err
	}
	return b.awaitChannel(ctx, t.ID, channel, c.Revision)
}

// alterChannel changes a channel's key, then the channel at every leader. The key
// decides: of two operators the one who wrote last may have told the leaders first, so
// whoever told them looks whether it still says the same.
func (b *Broker) alterChannel(ctx context.Context, topic, channel string, edit func(*meta.ChannelState), op func(meta.ChannelState) queueOp) (c meta.ChannelState, err error) {
	t, ok := b.catalog.topic(topic)
	if !ok {
		return c, edge.ErrTopicNotFound
	}
	if nsqd.IsEphemeral(channel) { // it has no key
		edit(&c)
		return c, b.onLeaders(ctx, t, op(c))
	}
	c, err = b.editChannel(ctx, t.ID, channel, func(c *meta.ChannelState) error { edit(c); return nil })
	for err == nil {
		told, there := op(c), false
		if err = b.onLeaders(ctx, t, told); err != nil {
			break
		}
		if _, c, there, err = b.channelKey(ctx, t.ID, channel); !there || op(c) == told {
			break
		}
	}
	return c, err
}

// editChannel changes a channel's key as it is now and returns what it says then.
func (b *Broker) editChannel(ctx context.Context, t ident.TopicID, channel string, edit func(*meta.ChannelState) error) (meta.ChannelState, error) {
	for {
		e, before, there, err := b.channelKey(ctx, t, channel)
		if err != nil {
			return before, err
		}
		if !there {
			return before, edge.ErrChannelNotFound
		}
		c := before
		if err := edit(&c); err != nil || c == before {
			return c, err
		}
		c.V = meta.Version
		ok, rev, err := b.meta.Txn(ctx, []meta.Compare{{Key: e.Key, Create: -1, Mod: e.Mod}}, []meta.Put{{Key: e.Key, Value: meta.Encode(c)}})
		if err != nil {
			return c, fmt.Errorf("%w: %w", edge.ErrUnavailable, err)
		}
		if ok {
			c.Revision = rev
			return c, nil
		}
	}
}

// awaitChannel waits until a channel's key is known here as it was at a revision, or
// later, or that it is gone.
func (b *Broker) awaitChannel(ctx context.Context, t ident.TopicID, channel string, revision int64) error {
	return b.await(ctx, func() bool { c, ok := b.catalog.channels(t)[channel]; return !ok || c.Revision >= revision })
}

// pauseTopic notes the pause in the topic's key, then at every leader, and returns when
// this broker knows it. The key decides, as with channels.
func (b *Broker) pauseTopic(ctx context.Context, topic string, paused bool) error {
	t, err := b.rewriteTopic(ctx, topic, func(t meta.TopicState) (meta.TopicState, error) { t.Paused = paused; return t, nil })
	for told := !t.Paused; err == nil && told != t.Paused; {
		verb := verbTopicUnpause
		if told = t.Paused; told {
			verb = verbTopicPause
		}
		if err = b.onLeaders(ctx, t, queueOp{Verb: verb}); err == nil {
			t, err = b.topicKey(ctx, topic)
		}
	}
	if err != nil {
		return err
	}
	return b.awaitTopic(ctx, topic, t.Revision)
}

// onLeaders carries out an operation at the leader of every partition.
func (b *Broker) onLeaders(ctx context.Context, t meta.TopicState, op queueOp) error {
	results := make(chan error, t.Partitions)
	for n := range t.Partitions {
		op := op
		op.Topic, op.Number = uint64(t.ID), uint16(n)
		go func() { results <- b.atLeader(ctx, op) }()
	}
	var all []error
	for range t.Partitions {
		all = append(all, <-results)
	}
	return errors.Join(all...)
}

// atLeader carries an operation out at the leader of its partition.
func (b *Broker) atLeader(ctx context.Context, op queueOp) error {
	return b.askLeader(ctx, ident.Partition{Topic: ident.TopicID(op.Topic), Number: op.Number}, methodQueue, op, &none{})
}

// askers is how many calls at once may wait for leaders of partitions: fewer than a
// connection between brokers serves, so that a topic without its minimum does not
// keep other calls from it.
const askers = 32

// askLeader finds the leader of a partition, and the next one if it moved, until
// the call is answered or ctx ends.
func (b *Broker) askLeader(ctx context.Context, p ident.Partition, method string, req, resp any) error {
	err := edge.ErrNoLeader
	for {
		changed := b.Changed()
		if l, ok := b.Leader(p); ok {
			select {
			case b.asking <- struct{}{}:
			case <-ctx.Done():
				return fmt.Errorf("%w: partition %s: %w", edge.ErrUnavailable, p, ctx.Err())
			}
			err = b.call(ctx, l.Node, method, req, resp)
			<-b.asking
			if err == nil || !retryable(err) {
				return err
			}
		}
		if !waitFor(ctx, changed, createRetry) {
			return fmt.Errorf("%w: partition %s: %w", edge.ErrUnavailable, p, err)
		}
	}
}

func waitFor(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
		return false
	}
	return true
}
