package admin

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd"
)

// Settings are the effective settings of a topic (api.Directory).
func (t *Topics) Settings(name string) (api.TopicSettings, bool) {
	s, ok := t.catalog.Topic(name)
	return api.TopicSettings{
		Topic: name, ID: s.ID, Partitions: s.Partitions, ReplicationFactor: s.ReplicationFactor, MinInSync: s.MinInSync,
		Durability: string(s.Durability), Ordered: s.Ordered, Effective: s.Options.Effective(),
	}, ok
}

// conflict is the error of a creation that requests other settings than the topic has.
func conflict(t metadata.TopicState, op api.CreateTopic) error {
	var has, asked []string
	compare := func(name string, is, wants any) {
		if is != wants {
			has, asked = append(has, fmt.Sprintf("%s=%v", name, is)), append(asked, fmt.Sprintf("%s=%v", name, wants))
		}
	}
	compare("partitions", t.Partitions, cmp.Or(op.Partitions, t.Partitions))
	compare("replication_factor", t.ReplicationFactor, cmp.Or(op.ReplicationFactor, t.ReplicationFactor))
	compare("min_in_sync", t.MinInSync, cmp.Or(op.MinInSync, t.MinInSync))
	if op.Ordered != nil {
		compare("ordered", t.Ordered, *op.Ordered)
	}
	wanted := t
	setOptions(&wanted, op.Options, metadata.Durability(op.Durability))
	compare("durability", t.Durability, wanted.Durability)
	is, wants := t.Options.Effective(), wanted.Options.Effective()
	for i := range option.Topics {
		r := &option.Topics[i]
		compare(r.Name, r.Show(option.Topic(is)), r.Show(option.Topic(wants)))
	}
	if has == nil {
		return nil
	}
	return fmt.Errorf("%w: topic %s has %s, not %s; nothing was changed (/v1/topic/set or nsqctl topic set changes limits and the durability, /v1/topic/replication replication_factor and min_in_sync, /v1/topic/partitions raises partitions)",
		outcome.ErrConflict, op.Topic, strings.Join(has, " "), strings.Join(asked, " "))
}

// confirm compares an existing topic with the request. Its next deletion is not a repeat by nsqadmin.
func (t *Topics) confirm(ctx context.Context, op api.CreateTopic) error {
	return t.changeTopic(ctx, op.Topic, func(s metadata.TopicState) (metadata.TopicState, error) {
		err := conflict(s, op)
		s.DeletedAtMS = 0
		return s, err
	})
}

// createExplicitly creates a channel as requested. ErrConflict: it exists with other settings. An ephemeral channel
// has no record to compare with.
func (c *Channels) createExplicitly(ctx context.Context, op api.CreateChannel) error {
	place, err := nsqd.CheckStart(op.From)
	if err != nil {
		return err
	}
	t, ok := c.catalog.Topic(op.Topic)
	if !ok {
		return outcome.ErrTopicNotFound
	}
	ordered := t.Ordered
	if op.Ordered != nil {
		ordered = *op.Ordered
	}
	if t.Ordered && !ordered {
		return fmt.Errorf("%w: topic %s is ordered, and so are all of its channels", outcome.ErrInvalid, op.Topic)
	}
	if op.Filter != "" && nsqd.IsEphemeral(op.Channel) {
		return fmt.Errorf("%w: an ephemeral channel has no filter", outcome.ErrInvalid)
	}
	if !nsqd.IsEphemeral(op.Channel) {
		if err := c.forgetDeleted(ctx, op.Topic, t.ID, op.Channel); err != nil {
			return err
		}
		if err := c.checkPlace(ctx, op.Topic, op.Channel, op.From, place); err != nil {
			return err
		}
		_, state, err := c.ensureKey(ctx, op.Topic, op.Channel, metadata.ChannelState{From: op.From, Ordered: ordered, Policy: option.Policy{Filter: op.Filter}})
		if err == nil {
			err = channelConflict(state, op)
		}
		if err != nil {
			return err
		}
		ordered = state.Ordered
	}
	return c.CreateChannel(ctx, op.Topic, op.Channel, op.From, ordered)
}

// forgetDeleted waits, if another broker has deleted the channel, until the catalog has the deletion: a creation is
// answered by the current metadata.
func (c *Channels) forgetDeleted(ctx context.Context, topic string, t ident.TopicID, channel string) error {
	known, ok := c.catalog.Channels(t)[channel]
	if !ok {
		return nil // a transaction creates it
	}
	now, err := c.topic(ctx, topic)
	if err != nil {
		return err
	}
	_, state, there, err := c.channel(ctx, t, channel)
	if err != nil || there && now.ID == t && state.ID == known.ID && state.Deleting == known.Deleting {
		return err
	}
	return c.catalog.Await(ctx, func() bool {
		now, ok := c.catalog.Topic(topic)
		return !ok || now.ID != t || c.catalog.Channels(t)[channel].ID != known.ID || c.catalog.Channels(t)[channel].Deleting
	})
}

// channelConflict is conflict for a channel.
func channelConflict(s metadata.ChannelState, op api.CreateChannel) error {
	var differ []string
	if op.From != "" && op.From != s.From {
		differ = append(differ, fmt.Sprintf("from=%s", op.From))
	}
	if op.Ordered != nil && *op.Ordered != s.Ordered {
		differ = append(differ, fmt.Sprintf("ordered=%v", *op.Ordered))
	}
	if op.Filter != "" && op.Filter != s.Policy.Filter {
		differ = append(differ, fmt.Sprintf("filter=%q", op.Filter))
	}
	if differ == nil {
		return nil
	}
	filter := ""
	if s.Policy.Filter != "" || op.Filter != "" {
		filter = fmt.Sprintf(" filter=%q", s.Policy.Filter)
	}
	return fmt.Errorf("%w: channel %s of topic %s has from=%q ordered=%v%s, not %s (/v1/channel/seek moves it, /channel/setorder changes its order, /v1/channel/policy its filter)",
		outcome.ErrConflict, op.Channel, op.Topic, s.From, s.Ordered, filter, strings.Join(differ, " "))
}
