package admin

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Pause replicates a pause, or its end, at every leader; the key keeps it for partitions
// that come later.
func (c *Channels) Pause(ctx context.Context, op api.PauseChannel) error {
	_, err := c.alter(ctx, op.Topic, op.Channel, func(s *metadata.ChannelState) { s.Paused = op.Paused }, func(s metadata.ChannelState) calls.QueueOp {
		if s.Paused {
			return calls.QueueOp{Verb: calls.ChannelPause, Channel: op.Channel, ID: s.ID}
		}
		return calls.QueueOp{Verb: calls.ChannelUnpause, Channel: op.Channel, ID: s.ID}
	})
	return err
}

// order makes a channel ordered or unordered in the same way. All
// channels of an ordered topic stay ordered.
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

// alter changes a channel's key, then the channel at every leader. The key decides: of
// two operators the one that wrote last may have reached the leaders first, so after the
// leaders have the change the key is read again, until they have its value.
func (c *Channels) alter(ctx context.Context, topic, channel string, edit func(*metadata.ChannelState), op func(metadata.ChannelState) calls.QueueOp) (s metadata.ChannelState, err error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return s, api.ErrTopicNotFound
	}
	if nsqd.IsEphemeral(channel) { // it has no key
		edit(&s)
		return s, c.leaders.onAll(ctx, t, op(s))
	}
	s, err = c.editChannel(ctx, t.ID, channel, func(s *metadata.ChannelState) error { edit(s); return nil })
	if err == nil { // a topic that grows reads the channel's key before or has its new partitions in its own
		err = c.awaitChannel(ctx, t.ID, channel, s.Revision)
		if now, ok := c.catalog.Topic(topic); ok && now.ID == t.ID {
			t = now
		}
	}
	for err == nil {
		sent, there := op(s), false
		if err = c.leaders.onAll(ctx, t, sent); err != nil {
			break
		}
		if _, s, there, err = c.channel(ctx, t.ID, channel); !there || op(s) == sent {
			break
		}
	}
	return s, err
}

// PauseTopic notes the pause in the topic's key, then at every leader, and returns when
// this broker has it. The key decides, as with channels.
func (c *Channels) PauseTopic(ctx context.Context, op api.PauseTopic) error {
	t, err := c.rewriteTopic(ctx, op.Topic, func(t metadata.TopicState) (metadata.TopicState, error) { t.Paused = op.Paused; return t, nil })
	for sent := !t.Paused; err == nil && sent != t.Paused; {
		verb := calls.TopicUnpause
		if sent = t.Paused; sent {
			verb = calls.TopicPause
		}
		if err = c.leaders.onAll(ctx, t, calls.QueueOp{Verb: verb}); err == nil {
			t, err = c.topic(ctx, op.Topic)
		}
	}
	if err != nil {
		return err
	}
	return c.awaitTopic(ctx, op.Topic, t.Revision)
}

// empty finishes all messages of a channel, or of a topic.
func (c *Channels) empty(ctx context.Context, topic string, op calls.QueueOp) error {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return api.ErrTopicNotFound
	}
	op.ID = c.catalog.Channels(t.ID)[op.Channel].ID
	return c.leaders.onAll(ctx, t, op)
}

// RepositionChannel makes a channel exist, and moves it where it has no consumers: in one partition, or in all
// (−1). A sequence is a place of the one partition; in the others a new channel begins by the rules.
func (c *Channels) RepositionChannel(ctx context.Context, topic, channel, from string, partition int, ordered bool) error {
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
	if err := c.CreateChannel(ctx, topic, channel, begin, ordered); err != nil {
		return err
	}
	_, err = c.Seek(ctx, api.SeekChannel{Topic: topic, Channel: channel, To: from, Partition: partition, Idle: true})
	return err
}
