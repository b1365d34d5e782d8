package edgetest

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// Do implements edge.Admin.
func (c *Cluster) Do(_ context.Context, op edge.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ops = append(c.mu.ops, op)
	name, channel := op.Target()
	if _, ok := op.(edge.CreateTopic); ok {
		c.topicLocked(name)
		return nil
	}
	t := c.mu.topics[name]
	if t == nil {
		return fmt.Errorf("%T: %w", op, edge.ErrTopicNotFound)
	}
	if channel == "" {
		return c.topicOpLocked(t, op)
	}
	return c.channelOpLocked(t, channel, op)
}

func (c *Cluster) topicOpLocked(t *topic, op edge.Operation) error {
	switch op := op.(type) {
	case edge.DeleteTopic:
		delete(c.mu.topics, t.name)
		for _, ch := range t.channels {
			ch.removeLocked(t)
		}
	case edge.EmptyTopic:
		t.backlog = nil
	case edge.PauseTopic:
		if t.paused = op.Paused; !t.paused {
			t.drainLocked(c)
		}
	default:
		return fmt.Errorf("%w: %T", edge.ErrInvalid, op)
	}
	return nil
}

func (c *Cluster) channelOpLocked(t *topic, name string, op edge.Operation) error {
	if _, ok := op.(edge.CreateChannel); ok {
		t.channelLocked(c, name)
		return nil
	}
	ch := t.channels[name]
	if ch == nil {
		return fmt.Errorf("%T: %w", op, edge.ErrChannelNotFound)
	}
	switch op := op.(type) {
	case edge.DeleteChannel:
		ch.removeLocked(t)
	case edge.EmptyChannel:
		ch.emptyLocked()
	case edge.PauseChannel:
		if ch.paused = op.Paused; !ch.paused {
			ch.wakeLocked()
		}
	case edge.OrderChannel: // the fake ignores the order: its tests have one consumer
	default:
		return fmt.Errorf("%w: %T", edge.ErrInvalid, op)
	}
	return nil
}

// removeLocked deletes the channel and closes its consumers.
func (ch *channel) removeLocked(t *topic) {
	delete(t.channels, ch.name)
	ch.emptyLocked()
	for _, s := range ch.consumers {
		s.gone = true
		close(s.closed)
	}
	ch.consumers = nil
}
