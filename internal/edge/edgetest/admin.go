package edgetest

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// Do implements edge.Admin.
func (c *Cluster) Do(_ context.Context, op edge.AdminOp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ops = append(c.mu.ops, op)
	if op.Verb == "topic.create" {
		c.topicLocked(op.Topic)
		return nil
	}
	t := c.mu.topics[op.Topic]
	if t == nil {
		return fmt.Errorf("%s: %w", op.Verb, edge.ErrTopicNotFound)
	}
	if op.Channel == "" {
		return c.topicOpLocked(t, op.Verb)
	}
	return c.channelOpLocked(t, op)
}

func (c *Cluster) topicOpLocked(t *topic, verb string) error {
	switch verb {
	case "topic.delete":
		delete(c.mu.topics, t.name)
		for _, ch := range t.channels {
			ch.removeLocked(t)
		}
	case "topic.empty":
		t.backlog = nil
	case "topic.pause":
		t.paused = true
	case "topic.unpause":
		t.paused = false
		t.drainLocked(c)
	default:
		return fmt.Errorf("%w: verb %q", edge.ErrInvalid, verb)
	}
	return nil
}

func (c *Cluster) channelOpLocked(t *topic, op edge.AdminOp) error {
	if op.Verb == "channel.create" {
		t.channelLocked(c, op.Channel)
		return nil
	}
	ch := t.channels[op.Channel]
	if ch == nil {
		return fmt.Errorf("%s: %w", op.Verb, edge.ErrChannelNotFound)
	}
	switch op.Verb {
	case "channel.delete":
		ch.removeLocked(t)
	case "channel.empty":
		ch.emptyLocked()
	case "channel.pause":
		ch.paused = true
	case "channel.order": // one consumer at a time is enough for its users
	case "channel.unpause":
		ch.paused = false
		ch.wakeLocked()
	default:
		return fmt.Errorf("%w: verb %q", edge.ErrInvalid, op.Verb)
	}
	return nil
}

// removeLocked deletes the channel: its consumers must go.
func (ch *channel) removeLocked(t *topic) {
	delete(t.channels, ch.name)
	ch.emptyLocked()
	for _, s := range ch.consumers {
		s.gone = true
		close(s.closed)
	}
	ch.consumers = nil
}
