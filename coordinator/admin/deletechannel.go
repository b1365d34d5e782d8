package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// delete deletes a channel everywhere.
func (c *Channels) delete(ctx context.Context, topic, channel string) error {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return api.ErrTopicNotFound
	}
	if nsqd.IsEphemeral(channel) {
		return c.leaders.onAll(ctx, t, 0, calls.QueueOp{Verb: calls.ChannelDelete, Channel: channel})
	}
	s, err := c.editChannel(ctx, t.ID, channel, func(s *metadata.ChannelState) error { s.Deleting = true; return nil })
	if errors.Is(err, api.ErrChannelNotFound) && c.catalog.HadChannel(t.ID, channel, deleteRepeat) {
		return nil // the same delete, repeated on another broker
	}
	if err != nil {
		return err
	}
	return c.finishDelete(ctx, topic, channel, t, s.ID)
}

// idleChannel stands for the client in the audit when an unused channel is deleted.
var idleChannel = api.Requester{Identity: idle.Identity, Action: "channel_idle_after"}

// DeleteIdle deletes an unused channel, if it and its topic are as they were read. txn.ErrCompare: one of them has
// changed, or the fence fails. An interrupted deletion is completed.
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

// dropKey removes the key. A topic that loses its last channel has no first one: the next begins with the messages that
// the topic retained. grown: the topic has new partitions, whose leaders may have the channel too, so the key stays.
func (c *Channels) dropKey(ctx context.Context, topic, channel string, asked metadata.TopicState, id uint64) (t metadata.TopicState, grown bool, err error) {
	unlock, err := c.lockKeys(ctx, topic)
	if err != nil {
		return t, false, err
	}
	defer unlock()
	for {
		changed := c.catalog.Changed()
		t, ok := c.catalog.Topic(topic)
		if !ok || t.ID != asked.ID {
			return t, false, api.ErrTopicNotFound
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
			return t, false, fmt.Errorf("%w: delete channel %s: %w", api.ErrUnavailable, channel, errors.Join(err, ctx.Err()))
		}
	}
}
