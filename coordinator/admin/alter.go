package admin

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// pause replicates a pause, or its end, at every leader. The key has it for later partitions.
func (c *Channels) pause(ctx context.Context, op api.PauseChannel) error {
	_, err := c.alter(ctx, op.Topic, op.Channel, func(s *metadata.ChannelState) { s.Paused = op.Paused }, func(s metadata.ChannelState) calls.QueueOp {
		verb := calls.ChannelUnpause
		if s.Paused {
			verb = calls.ChannelPause
		}
		return calls.QueueOp{Verb: verb, Channel: op.Channel, ID: s.ID}
	})
	return err
}

// order makes a channel ordered or unordered. All channels of an ordered topic stay ordered.
func (c *Channels) order(ctx context.Context, topic, channel string, ordered bool) error {
	t, _ := c.catalog.Topic(topic)
	if t.Ordered && !ordered {
		return fmt.Errorf("%w: topic %s is ordered", api.ErrInvalid, topic)
	}
	s, err := c.alter(ctx, topic, channel, func(s *metadata.ChannelState) { s.Ordered = ordered }, func(s metadata.ChannelState) calls.QueueOp {
		return calls.QueueOp{Verb: calls.ChannelOrder, Channel: channel, ID: s.ID, Ordered: s.Ordered}
	})
	if err != nil {
		return err
	}
	return c.awaitChannel(ctx, t.ID, channel, s.Revision)
}

// alter changes a channel's key, then the channel at every leader. The key decides: the operator that wrote last may
// have reached the leaders first, so the key is read again afterwards, until the leaders have its value.
func (c *Channels) alter(ctx context.Context, topic, channel string, edit func(*metadata.ChannelState), op func(metadata.ChannelState) calls.QueueOp) (s metadata.ChannelState, err error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return s, api.ErrTopicNotFound
	}
	if nsqd.IsEphemeral(channel) { // it has no key
		edit(&s)
		return s, c.leaders.onAll(ctx, t, 0, op(s))
	}
	s, err = c.editChannel(ctx, t.ID, channel, func(s *metadata.ChannelState) error { edit(s); return nil })
	if err == nil { // if the topic grows, either it reads the new key of the channel, or its own key has the new partitions
		err = c.awaitChannel(ctx, t.ID, channel, s.Revision)
		if now, ok := c.catalog.Topic(topic); ok && now.ID == t.ID {
			t = now
		}
	}
	for err == nil {
		sent, there := op(s), false
		if err = c.leaders.onAll(ctx, t, 0, sent); err != nil {
			break
		}
		if _, s, there, err = c.channel(ctx, t.ID, channel); !there || op(s) == sent {
			break
		}
	}
	return s, err
}

// pauseTopic writes the pause to the topic's key, then to every leader, and returns when this broker has it. The key
// decides, as with channels.
func (c *Channels) pauseTopic(ctx context.Context, op api.PauseTopic) error {
	t, err := c.rewriteTopic(ctx, op.Topic, func(t metadata.TopicState) (metadata.TopicState, error) { t.Paused = op.Paused; return t, nil })
	for sent := !t.Paused; err == nil && sent != t.Paused; {
		verb := calls.TopicUnpause
		if sent = t.Paused; sent {
			verb = calls.TopicPause
		}
		if err = c.leaders.onAll(ctx, t, 0, calls.QueueOp{Verb: verb}); err == nil {
			t, err = c.topic(ctx, op.Topic)
		}
	}
	if err != nil {
		return err
	}
	return c.awaitTopic(ctx, op.Topic, t.Revision)
}

func (c *Channels) empty(ctx context.Context, topic string, op calls.QueueOp) error {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return api.ErrTopicNotFound
	}
	op.ID = c.catalog.Channels(t.ID)[op.Channel].ID
	return c.leaders.onAll(ctx, t, 0, op)
}

// Reposition creates a channel unless it exists, and moves it where it has no consumers: in one partition, or in all
// (−1). A sequence is a position in the one partition; in the others a new channel begins by the rules.
func (c *Channels) Reposition(ctx context.Context, topic, channel, from string, partition int, ordered bool) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	place, err := nsqd.CheckStart(from)
	if err != nil {
		return err
	}
	begin := from
	if partition >= 0 && place.Kind == api.PlaceSequence {
		begin = ""
		if err := c.checkPlace(ctx, topic, channel, from, place, uint16(partition)); err != nil {
			return err
		}
	}
	if err := c.Create(ctx, topic, channel, begin, ordered); err != nil {
		return err
	}
	_, err = c.seek(ctx, api.SeekChannel{Topic: topic, Channel: channel, To: from, Partition: partition, Idle: true})
	return err
}
