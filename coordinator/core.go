package coordinator

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// core is the broker as the gateway uses it: gateway.Core. Puts go to the engine without a
// detour (Propose, Flush). The methods of this file that others use as well are the
// Broker's own.
type core struct {
	*Broker
	*engine.Engine
}

// Self is this broker's name.
func (b *Broker) Self() ident.Node { return b.self }

// Incarnation is that of the newest registration. It is kept while that is gone:
// request ids carry it, and two brokers must never use the same.
func (b *Broker) Incarnation() ident.Incarnation { return b.session.Newest() }

// Topic finds a topic in the watched metadata.
func (b core) Topic(name string) (gateway.Topic, bool) {
	t, ok := b.catalog.Topic(name)
	return gateway.Topic{
		Name: name, ID: t.ID, Partitions: t.Partitions, Ordered: t.Ordered, Options: t.Options,
	}, ok
}

// EnsureTopic finds a topic, or makes it with the defaults if that is allowed.
func (b core) EnsureTopic(ctx context.Context, name string) error {
	return b.admin.Topics.Ensure(ctx, name)
}

// Leader is the live leader of a partition.
func (b core) Leader(p ident.Partition) (gateway.Leadership, bool) {
	return b.directory.Leader(p)
}

// Leads reports whether this broker serves the partition now.
func (b core) Leads(id ident.Partition) bool {
	p, ok := b.engine.Partition(id)
	return ok && p.Leading()
}

// Queue is the channels of a replica hosted here.
func (b core) Queue(id ident.Partition) (*nsqd.Partition, bool) {
	p, ok := b.engine.Partition(id)
	if !ok {
		return nil, false
	}
	return p.Queue(), true
}

// Changed is closed at the next change of metadata, leadership or peers.
func (b *Broker) Changed() <-chan struct{} { return b.catalog.Changed() }

// CreateChannel makes a channel exist, with its position at every leader.
func (b core) CreateChannel(ctx context.Context, topic, channel, from string, ordered bool) error {
	return b.admin.Channels.Create(ctx, topic, channel, from, ordered)
}

// Filter is the filter in a channel's key.
func (b core) Filter(t ident.TopicID, channel string) string {
	return b.catalog.Channels(t)[channel].Policy.Filter
}

// AskSettle settles receipts at the leader of their partition.
func (b core) AskSettle(ctx context.Context, req calls.SettleRequest) (calls.SettleReply, error) {
	return b.admin.Channels.AskSettle(ctx, req)
}

// ChannelMissing has the next CreateChannel ask the leaders again.
func (b core) ChannelMissing(t ident.TopicID, channel string) {
	b.admin.Channels.Missing(t, channel)
}

// RepositionChannel makes a channel exist, and moves it where it has no consumers.
func (b core) RepositionChannel(ctx context.Context, topic, channel, from string, partition int, ordered bool) error {
	return b.admin.Channels.Reposition(ctx, topic, channel, from, partition, ordered)
}
