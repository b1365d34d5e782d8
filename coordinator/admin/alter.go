package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// pause replicates a pause or an unpause at every leader. The channel's key records it for partitions that are added
// later.
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
		return fmt.Errorf("%w: topic %s is ordered", outcome.ErrInvalid, topic)
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
		return s, outcome.ErrTopicNotFound
	}
	if nsqd.IsEphemeral(channel) { // it has no key
		edit(&s)
		return s, c.leaders.onAll(ctx, t, 0, op(s))
	}
	s, err = c.editChannel(ctx, t.ID, channel, func(s *metadata.ChannelState) error { edit(s); return nil })
	if err == nil {
		// If the topic grows concurrently, either the growth reads the channel's new key, or the topic in the catalog has
		// the new partitions after this wait.
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

// pauseTopic writes the pause to the topic's key, then to every leader, and returns when this broker has it. The key is
// authoritative, as with channels.
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
		return outcome.ErrTopicNotFound
	}
	op.ID = c.catalog.Channels(t.ID)[op.Channel].ID
	return c.leaders.onAll(ctx, t, 0, op)
}

// RepositionChannel makes a channel exist, and moves it in the partitions where it has no consumers: in one partition,
// or in all (−1). A sequence is a position in that one partition; in the other partitions a new channel begins at the
// default position.
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
	_, err = c.seek(ctx, api.SeekChannel{Topic: topic, Channel: channel, To: from, Partition: partition, Idle: true})
	return err
}

func (c *Channels) delete(ctx context.Context, topic, channel string) error {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return outcome.ErrTopicNotFound
	}
	if nsqd.IsEphemeral(channel) {
		return c.leaders.onAll(ctx, t, 0, calls.QueueOp{Verb: calls.ChannelDelete, Channel: channel})
	}
	s, err := c.editChannel(ctx, t.ID, channel, func(s *metadata.ChannelState) error { s.Deleting = true; return nil })
	if errors.Is(err, outcome.ErrChannelNotFound) && c.catalog.HadChannel(t.ID, channel, deleteRepeat) {
		return nil // the same delete, repeated on another broker
	}
	if err != nil {
		return err
	}
	return c.finishDelete(ctx, topic, channel, t, s.ID)
}

// idleChannel is the client named in the audit when an unused channel is deleted.
var idleChannel = api.Requester{Identity: idle.Identity, Action: "channel_idle_after"}

// DeleteIdle deletes an unused channel, if neither it nor its topic has changed since it was read. txn.ErrCompare: one
// of them has changed, or this broker is no longer the controller. An interrupted deletion is completed.
func (c *Channels) DeleteIdle(ctx context.Context, topic string, t metadata.TopicState, channel string, s metadata.ChannelState, fence ...metadata.Compare) error {
	began := !s.Deleting
	if began {
		key := c.keys.Channel(t.ID, channel)
		s.V, s.Deleting = metadata.Version, true
		compares := append(fence, metadata.Compare{Key: key, Create: -1, Mod: s.Revision}, metadata.Compare{Key: c.keys.Topic(topic), Create: -1, Mod: t.Revision})
		if _, err := txn.Apply(ctx, c.store, compares, []metadata.Put{{Key: key, Value: metadata.Encode(s)}}); err != nil {
			return err
		}
	}
	if err := c.finishDelete(ctx, topic, channel, t, s.ID); err != nil {
		return err
	}
	if began {
		ctx = api.WithRequester(ctx, func() api.Requester { return idleChannel })
		c.quotas.Implied(ctx, fmt.Sprintf("deleted channel %s/%s, which nothing has used for %s", topic, channel, time.Duration(t.Options.ChannelIdleMS)*time.Millisecond))
	}
	return nil
}

// finishDelete completes the deletion of a channel whose key has this id and is marked. Several brokers may do it
// concurrently.
func (c *Channels) finishDelete(ctx context.Context, topic, channel string, t metadata.TopicState, id uint64) error {
	for grown := true; grown; {
		err := c.leaders.onAll(ctx, t, 0, calls.QueueOp{Verb: calls.ChannelDelete, Channel: channel, ID: id})
		if err != nil {
			return err
		}
		if t, grown, err = c.dropKey(ctx, topic, channel, t, id); err != nil {
			return err
		}
	}
	return c.catalog.Await(ctx, func() bool { s, ok := c.catalog.Channels(t.ID)[channel]; return !ok || s.ID != id })
}

// dropKey removes the key. If it was the topic's last channel, the next channel is a first channel again and begins
// with the messages that the topic retained. grown: the topic has new partitions whose leaders may have the channel, so
// the key stays.
func (c *Channels) dropKey(ctx context.Context, topic, channel string, asked metadata.TopicState, id uint64) (t metadata.TopicState, grown bool, err error) {
	unlock, err := lock(ctx, c.locks, "channels of "+topic)
	if err != nil {
		return t, false, err
	}
	defer unlock()
	for {
		changed := c.catalog.Changed()
		t, ok := c.catalog.Topic(topic)
		if !ok || t.ID != asked.ID {
			return t, false, outcome.ErrTopicNotFound
		}
		if t.Span() > asked.Span() {
			return t, true, nil
		}
		e, s, there, err := c.channel(ctx, t.ID, channel)
		if err != nil || !there || s.ID != id || !s.Deleting {
			return t, false, err
		}
		next := t // always written, see tryKeys
		if next.V = metadata.Version; len(c.catalog.Channels(t.ID)) == 1 {
			next.FirstChannel = ""
		}
		puts := []metadata.Put{{Key: e.Key, Delete: true}, {Key: c.keys.Topic(topic), Value: metadata.Encode(next)}}
		cmp := []metadata.Compare{{Key: e.Key, Create: -1, Mod: e.Mod}, {Key: c.keys.Topic(topic), Create: -1, Mod: t.Revision}}
		ok, _, err = txn.Try(ctx, c.store, cmp, puts)
		if ok && err == nil {
			return t, false, nil
		}
		if !concurrency.SleepUntil(ctx, changed, txn.Retry) {
			return t, false, fmt.Errorf("%w: delete channel %s: %w", outcome.ErrUnavailable, channel, errors.Join(err, ctx.Err()))
		}
	}
}

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

// refuseCycle refuses a dead-letter topic from which other channels' policies would return messages to the channel's
// own topic: a message that fails everywhere would circulate endlessly.
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
