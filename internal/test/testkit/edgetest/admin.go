package edgetest

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// Do implements api.Admin.
func (c *Cluster) Do(_ context.Context, op api.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ops = append(c.mu.ops, op)
	if err := api.Validate(op); err != nil {
		return err
	}
	name, channel := api.Target(op)
	if _, ok := op.(api.CreateTopic); ok {
		c.topicLocked(name)
		return nil
	}
	t := c.mu.topics[name]
	if t == nil {
		return fmt.Errorf("%T: %w", op, outcome.ErrTopicNotFound)
	}
	if channel == "" {
		return c.topicOpLocked(t, op)
	}
	return c.channelOpLocked(t, channel, op)
}

func (c *Cluster) topicOpLocked(t *topic, op api.Operation) error {
	switch op := op.(type) {
	case api.DeleteTopic:
		delete(c.mu.topics, t.name)
		for _, ch := range t.channels {
			ch.removeLocked(t)
		}
	case api.EmptyTopic:
		t.backlog = nil
	case api.PauseTopic:
		if t.paused = op.Paused; !t.paused {
			t.drainLocked(c)
		}
	default:
		return fmt.Errorf("%w: %T", outcome.ErrInvalid, op)
	}
	return nil
}

func (c *Cluster) channelOpLocked(t *topic, name string, op api.Operation) error {
	if _, ok := op.(api.CreateChannel); ok {
		t.channelLocked(c, name)
		return nil
	}
	ch := t.channels[name]
	if ch == nil {
		return fmt.Errorf("%T: %w", op, outcome.ErrChannelNotFound)
	}
	switch op := op.(type) {
	case api.DeleteChannel:
		ch.removeLocked(t)
	case api.EmptyChannel:
		ch.emptyLocked()
	case api.PauseChannel:
		if ch.paused = op.Paused; !ch.paused {
			ch.wakeLocked()
		}
	case api.OrderChannel: // the fake ignores the order: its tests have one consumer
	default:
		return fmt.Errorf("%w: %T", outcome.ErrInvalid, op)
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
