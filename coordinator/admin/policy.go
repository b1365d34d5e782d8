package admin

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// setPolicy changes a channel's policy, and creates its dead-letter topic. It returns when the policy is in force at
// the leader of every partition; the error names a partition that has not confirmed it.
func (c *Channels) setPolicy(ctx context.Context, op api.SetPolicy) error {
	t, ok := c.catalog.Topic(op.Topic)
	if !ok {
		return outcome.ErrTopicNotFound
	}
	s, err := c.editChannel(ctx, t.ID, op.Channel, func(s *metadata.ChannelState) (err error) {
		if s.Policy, err = newPolicy(s.Policy, op, api.RequesterOf(ctx).User); err != nil {
			return err
		}
		if to := s.Policy.DeadLetterTopic; to != "" {
			if err := c.refuseCycle(op.Topic, op.Channel, to); err != nil {
				return err
			}
			return c.EnsureDeadLetters(ctx, to)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.leaders.onAll(ctx, t, 0, calls.QueueOp{Verb: calls.ChannelPolicy, Channel: op.Channel, Revision: s.Revision}); err != nil {
		return fmt.Errorf("%w: the policy is stored, but some leaders have not confirmed it: %v", outcome.ErrUnavailable, err)
	}
	return c.awaitChannel(ctx, t.ID, op.Channel, s.Revision)
}

// refuseCycle refuses a dead-letter topic whose messages would return to the topic of the channel by the policies of
// other channels: a message that fails everywhere would circulate endlessly.
func (c *Channels) refuseCycle(topic, channel, to string) error {
	cameFrom := map[string]string{to: ""}
	for queue := []string{to}; len(queue) > 0; queue = queue[1:] {
		t, _ := c.catalog.Topic(queue[0])
		for name, s := range c.catalog.Channels(t.ID) {
			next := s.Policy.DeadLetterTopic
			if _, seen := cameFrom[next]; next == "" || seen || s.Deleting {
				continue
			}
			cameFrom[next] = fmt.Sprintf("%s/%s", queue[0], name)
			if next == topic {
				return fmt.Errorf("%w: dead letters of %s/%s would come back to %s: they go to %s, and channel %s has the dead_letter_topic %s; choose a topic that leads to no channel of %s",
					outcome.ErrInvalid, topic, channel, topic, to, cameFrom[next], topic, topic)
			}
			queue = append(queue, next)
		}
	}
	return nil
}

// newPolicy is the policy that a channel has after an operation of a user.
func newPolicy(p option.Policy, op api.SetPolicy, user string) (option.Policy, error) {
	op.Policy.Apply(&p)
	switch {
	case p.DeadLetterTopic != "" && !api.ValidName(p.DeadLetterTopic):
		return p, fmt.Errorf("%w: %q is not the name of a topic", outcome.ErrInvalid, p.DeadLetterTopic)
	case p.MaxAttempts > 0 && p.DeadLetterTopic == "":
		return p, fmt.Errorf("%w: max_attempts needs a dead_letter_topic", outcome.ErrInvalid)
	case p.DeadLetterTopic == op.Topic:
		return p, fmt.Errorf("%w: the dead_letter_topic must be another topic", outcome.ErrInvalid)
	case p.DeadLetterTopic == "":
		p.Owner = ""
	case op.Policy.Has("dead_letter_topic"):
		p.Owner = user
	}
	return p, nil
}

// Policy is the policy in a channel's key (api.Channels).
func (c *Channels) Policy(topic, channel string) (api.ChannelPolicy, error) {
	_, s, ok, err := c.known(topic, channel)
	if err == nil && !ok {
		err = outcome.ErrChannelNotFound
	}
	return s.Policy.View(), err
}
