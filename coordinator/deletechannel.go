package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// A channel is deleted in three steps: its key says so, every leader deletes it,
// the key goes. As long as it is not gone everywhere the key is there, so a delete
// that ends on the way can be repeated; and nobody makes the channel anew in
// between, which would leave it at a leader without a key.

// deleteChannel deletes a channel everywhere.
func (b *Broker) deleteChannel(ctx context.Context, topic, channel string) error {
	t, ok := b.catalog.topic(topic)
	if !ok {
		return edge.ErrTopicNotFound
	}
	if nsqd.IsEphemeral(channel) {
		return b.onLeaders(ctx, t, queueOp{Verb: verbChannelDelete, Channel: channel})
	}
	c, err := b.editChannel(ctx, t.ID, channel, func(c *meta.ChannelState) error { c.Deleting = true; return nil })
	if errors.Is(err, edge.ErrChannelNotFound) && b.catalog.hadChannel(t.ID, channel, deleteRepeat) {
		return nil // the same delete, repeated on another broker
	}
	if err != nil {
		return err
	}
	return b.finishDelete(ctx, topic, channel, t, c.ID)
}

// finishDelete does the rest for the channel whose key has this id and says that
// it is being deleted. Several brokers may do it at the same time.
func (b *Broker) finishDelete(ctx context.Context, topic, channel string, t meta.TopicState, id uint64) error {
	if err := b.onLeaders(ctx, t, queueOp{Verb: verbChannelDelete, Channel: channel, ID: id}); err != nil {
		return err
	}
	if err := b.dropChannelKey(ctx, topic, channel, t.ID, id); err != nil {
		return err
	}
	return b.await(ctx, func() bool { c, ok := b.catalog.channels(t.ID)[channel]; return !ok || c.ID != id })
}

// dropChannelKey removes the key. A topic that loses its last channel has no first
// one: the next begins at what the topic kept.
func (b *Broker) dropChannelKey(ctx context.Context, topic, channel string, of ident.TopicID, id uint64) error {
	leave, err := b.channelKeys(ctx, topic)
	if err != nil {
		return err
	}
	defer leave()
	for {
		changed := b.Changed()
		t, ok := b.catalog.topic(topic)
		if !ok || t.ID != of {
			return edge.ErrTopicNotFound
		}
		e, c, there, err := b.channelKey(ctx, of, channel)
		if err != nil || !there || c.ID != id || !c.Deleting {
			return err
		}
		next := t // always written, see tryChannels
		if next.V = meta.Version; len(b.catalog.channels(of)) == 1 {
			next.FirstChannel = ""
		}
		puts := []meta.Put{{Key: e.Key, Delete: true}, {Key: b.keys.Topic(topic), Value: meta.Encode(next)}}
		cmp := []meta.Compare{{Key: e.Key, Create: -1, Mod: e.Mod}, {Key: b.keys.Topic(topic), Create: -1, Mod: t.Revision}}
		ok, _, err = b.tryTxn(ctx, cmp, puts)
		if ok && err == nil {
			return nil
		}
		if !waitFor(ctx, changed, createRetry) {
			return fmt.Errorf("%w: delete channel %s: %w", edge.ErrUnavailable, channel, errors.Join(err, ctx.Err()))
		}
	}
}

// channelKey reads a channel's key as it is now; false if it is not there.
func (b *Broker) channelKey(ctx context.Context, t ident.TopicID, channel string) (meta.Entry, meta.ChannelState, bool, error) {
	e, err := b.meta.Get(ctx, b.keys.Channel(t, channel))
	if errors.Is(err, meta.ErrNotFound) {
		return e, meta.ChannelState{}, false, nil
	}
	if err != nil {
		return e, meta.ChannelState{}, false, fmt.Errorf("%w: look for channel %s: %w", edge.ErrUnavailable, channel, err)
	}
	c, err := meta.DecodeChannel(e)
	return e, c, true, err
}

// serveDelete deletes a channel of a partition led here, unless somebody else has
// come further: by then it may have been made anew. Its consumers lose it when
// this broker knows why, so that they do not bring it back.
func (b *Broker) serveDelete(ctx context.Context, h *hosted, op queueOp) error {
	if op.ID == 0 {
		return h.queue.DeleteChannel(ctx, op.Channel)
	}
	leave, err := b.oneByOne(ctx, h, op.Channel)
	if err != nil {
		return err
	}
	defer leave()
	t := ident.TopicID(op.Topic)
	_, c, there, err := b.channelKey(ctx, t, op.Channel)
	if err != nil || !there || c.ID != op.ID || !c.Deleting {
		return err
	}
	err = b.await(ctx, func() bool { c, ok := b.catalog.channels(t)[op.Channel]; return !ok || c.ID != op.ID || c.Deleting })
	if err != nil {
		return err
	}
	if err = h.queue.DeleteChannel(ctx, op.Channel); errors.Is(err, edge.ErrChannelNotFound) {
		return nil // an earlier attempt came as far as here
	}
	return err
}

// serveCreate makes a channel of a partition led here. ErrChannelNotFound: it is
// being deleted, or was, since it was asked for.
func (b *Broker) serveCreate(ctx context.Context, h *hosted, op queueOp) error {
	if op.ID != 0 {
		leave, err := b.oneByOne(ctx, h, op.Channel)
		if err != nil {
			return err
		}
		defer leave()
		c, there := b.catalog.channels(h.id.Topic)[op.Channel]
		if !there || c.ID != op.ID { // gone, or not known here yet
			if _, c, there, err = b.channelKey(ctx, h.id.Topic, op.Channel); err != nil {
				return err
			}
		}
		if !there || c.ID != op.ID || c.Deleting {
			return edge.ErrChannelNotFound
		}
	}
	o, err := channelOptions(h, op)
	if err != nil {
		return err
	}
	if _, err = h.queue.CreateChannel(ctx, op.Channel, o); err != nil || !op.Paused {
		return err
	}
	// Who asks may be behind: an unpause changes the key before it comes here.
	_, c, there, err := b.channelKey(ctx, h.id.Topic, op.Channel)
	if err != nil || !there || c.ID != op.ID || !c.Paused {
		return err
	}
	return h.queue.PauseChannel(ctx, op.Channel)
}

// oneByOne keeps what makes and what deletes a channel of a partition apart.
func (b *Broker) oneByOne(ctx context.Context, h *hosted, channel string) (leave func(), err error) {
	return b.enter(ctx, fmt.Sprintf("%v/%s", h.id, channel))
}

// channelKeys keeps those apart who make and delete the keys of a topic's channels:
// each moves the topic's key.
func (b *Broker) channelKeys(ctx context.Context, topic string) (leave func(), err error) {
	return b.enter(ctx, "channels of "+topic)
}

// enter waits until nobody else on this broker is at work on what is named.
func (b *Broker) enter(ctx context.Context, name string) (leave func(), err error) {
	leave, err = b.creating.enter(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", edge.ErrUnavailable, err)
	}
	return leave, nil
}
