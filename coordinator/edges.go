package coordinator

import (
	"context"
	"errors"

	"github.com/lockstepmq/lockstep/coordinator/query"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// The methods of this file are the interfaces of internal/api, and two for webui and for
// the process.

// errNotRegistered and errIsolated are why Ready says no.
var (
	errNotRegistered = errors.New("this broker is not registered")
	errIsolated      = errors.New("this broker reaches none of the other brokers that are registered")
)

// Publisher takes puts for any topic.
func (b *Broker) Publisher() api.Publisher { return b.gateway }

// Subscribers opens subscriptions on any topic.
func (b *Broker) Subscribers() api.Subscribers { return b.gateway }

// Stats is the statistics of the partitions led here, for tools that add brokers up.
func (b *Broker) Stats() api.Stats { return query.Summed{Inspector: b.inspector} }

// Do carries out an administrative operation (api.Admin).
func (b *Broker) Do(ctx context.Context, op api.Operation) error { return b.admin.Do(ctx, op) }

// Plan reports the changes that an operation on the placement would make (api.Planner).
func (b *Broker) Plan(ctx context.Context, op api.Operation) (api.Plan, error) {
	return b.admin.Moves.Plan(ctx, op)
}

// ChannelViews lists a topic's channels (api.Channels).
func (b *Broker) ChannelViews(topic string) ([]api.ChannelView, error) {
	return b.admin.Channels.Views(topic)
}

// Seek moves a channel, or counts what the move would do (api.Channels).
func (b *Broker) Seek(ctx context.Context, op api.SeekChannel) (api.SeekResult, error) {
	return b.admin.Seek(ctx, op)
}

// FinishElsewhere finishes messages of a channel whose originals are finished (api.Channels).
func (b *Broker) FinishElsewhere(ctx context.Context, op api.FinishElsewhere) (api.FinishedElsewhere, error) {
	return b.admin.FinishElsewhere(ctx, op)
}

// Policy is the policy in a channel's key (api.Channels).
func (b *Broker) Policy(topic, channel string) (api.ChannelPolicy, error) {
	return b.admin.Channels.Policy(topic, channel)
}

// Deferred lists delayed messages of a channel (api.Channels).
func (b *Broker) Deferred(ctx context.Context, topic, channel string, limit int) ([]api.DeferredMessage, error) {
	return b.admin.Channels.Deferred(ctx, topic, channel, limit)
}

// CancelDeferred finishes delayed messages of a channel (api.Channels).
func (b *Broker) CancelDeferred(ctx context.Context, topic, channel string, ids []api.MessageID) (int, error) {
	return b.admin.Channels.CancelDeferred(ctx, topic, channel, ids)
}

// Positions lists how far the channels of a topic are (api.Channels).
func (b *Broker) Positions(ctx context.Context, topic string) ([]api.ChannelPosition, error) {
	return b.admin.Channels.Positions(ctx, topic)
}

// Settle carries a verb out on deliveries by their receipts (api.Receipts).
func (b *Broker) Settle(ctx context.Context, topic, channel string, do api.Settlement, list []api.Receipt) []error {
	return b.gateway.Settle(ctx, topic, channel, do, list)
}

// Trace gives the state of one message (api.Tracer).
func (b *Broker) Trace(ctx context.Context, topic string, id api.MessageID) (api.MessageTrace, error) {
	return b.admin.Channels.Trace(ctx, topic, id)
}

// Redrive moves messages back from a channel's dead-letter topic (api.Channels).
func (b *Broker) Redrive(ctx context.Context, topic, channel string, limit int) (int, error) {
	return b.admin.Redriver.Redrive(ctx, topic, channel, limit)
}

// Lookup gives a topic's channels, and the brokers that serve it (api.Directory).
func (b *Broker) Lookup(ctx context.Context, topic string) ([]string, []api.Producer, error) {
	return b.directory.Lookup(ctx, topic)
}

// Leaders lists the brokers that lead a topic's partitions (api.Directory).
func (b *Broker) Leaders(ctx context.Context, topic string) ([]api.PartitionLeader, error) {
	return b.directory.Leaders(ctx, topic)
}

// Topics lists the topics of the cluster, sorted (api.Directory).
func (b *Broker) Topics() []string { return b.catalog.Topics() }

// Channels lists a topic's channels, sorted (api.Directory).
func (b *Broker) Channels(topic string) []string { return b.directory.Channels(topic) }

// Nodes lists the live brokers with the topics that they serve (api.Directory).
func (b *Broker) Nodes() []api.NodeEntry { return b.directory.Nodes() }

// Tombstone hides a node from Lookup of a topic for a while (api.Directory).
func (b *Broker) Tombstone(topic, node string) error { return b.directory.Tombstone(topic, node) }

// TopicSettings are the effective settings of a topic (api.Directory).
func (b *Broker) TopicSettings(topic string) (api.TopicSettings, bool) {
	return b.admin.Topics.Settings(topic)
}

// Trash lists the deleted topics that can be undeleted (api.Directory).
func (b *Broker) Trash() []api.TrashedTopic { return b.directory.Trash() }

// Usage is what a user created and is still there (api.Directory).
func (b *Broker) Usage(user string) api.Usage { return b.admin.Quotas.Usage(user) }

// Limits are the limits of the cluster and their use (api.Directory).
func (b *Broker) Limits() api.LimitsView { return b.admin.Quotas.View() }

// Cluster is the whole of GET /v1/cluster (api.Directory).
func (b *Broker) Cluster() api.ClusterView { return b.directory.Cluster() }

// Ready is nil when the broker is registered, serves, and reaches some other broker, if
// there are others (api.Directory): it could neither forward puts nor relay.
func (b *Broker) Ready() error {
	if b.session.Incarnation() == 0 || b.stopping.Load() {
		return errNotRegistered
	}
	if b.directory.Isolated() {
		return errIsolated
	}
	return b.inspector.Health()
}

// Peek reads messages of a replica (api.Inspector).
func (b *Broker) Peek(ctx context.Context, req api.PeekRequest) (api.Peeked, error) {
	return b.inspector.Peek(ctx, req)
}

// Digest reads the checksums of a replica here (api.Inspector).
func (b *Broker) Digest(req api.DigestRequest) (api.Digest, error) { return b.inspector.Digest(req) }

// Remains asks all replicas of a partition what they hold (api.Recovery).
func (b *Broker) Remains(ctx context.Context, topic string, partition int) (api.Remains, error) {
	return b.admin.Recovery.Remains(ctx, topic, partition)
}

// Recover continues without a partition's in-sync set (api.Recovery).
func (b *Broker) Recover(ctx context.Context, topic string, partition int, from ident.Node) (api.Remains, error) {
	return b.admin.Recovery.Recover(ctx, topic, partition, from)
}

// Discard gives up a replica that is refused after a Recover (api.Recovery).
func (b *Broker) Discard(ctx context.Context, topic string, partition int, on ident.Node) error {
	return b.admin.Recovery.Discard(ctx, topic, partition, on)
}

// Decommissioned reports whether this broker is decommissioned and has no replica any more: if it
// stops, it stops permanently.
func (b *Broker) Decommissioned() bool { return b.catalog.Decommissioned(b.self) }
