package coordinator

import (
	"context"
	"errors"

	"github.com/lockstepmq/lockstep/coordinator/inspect"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// The methods of this file are the interfaces of internal/edge, and two for webui and for
// the process.

// errNotRegistered and errIsolated are why Ready says no.
var (
	errNotRegistered = errors.New("this broker is not registered")
	errIsolated      = errors.New("this broker reaches none of the other brokers that are registered")
)

// Publisher takes puts for any topic.
func (b *Broker) Publisher() edge.Publisher { return b.gateway }

// Subscribers opens subscriptions on any topic.
func (b *Broker) Subscribers() edge.Subscribers { return b.gateway }

// Stats is the statistics of the partitions led here, for tools that add brokers up.
func (b *Broker) Stats() edge.Stats { return inspect.Summed{Inspector: b.inspector} }

// Do carries out an administrative operation (edge.Admin).
func (b *Broker) Do(ctx context.Context, op edge.Operation) error { return b.admin.Do(ctx, op) }

// Plan reports the changes that an operation on the placement would make (edge.Planner).
func (b *Broker) Plan(ctx context.Context, op edge.Operation) (edge.Plan, error) {
	return b.admin.Moves.Plan(ctx, op)
}

// ChannelViews lists a topic's channels (edge.Channels).
func (b *Broker) ChannelViews(topic string) ([]edge.ChannelView, error) {
	return b.admin.Channels.Views(topic)
}

// Seek moves a channel, or counts what the move would do (edge.Channels).
func (b *Broker) Seek(ctx context.Context, op edge.SeekChannel) (edge.SeekResult, error) {
	return b.admin.Seek(ctx, op)
}

// FinishElsewhere finishes messages of a channel whose originals are finished (edge.Channels).
func (b *Broker) FinishElsewhere(ctx context.Context, op edge.FinishElsewhere) (edge.FinishedElsewhere, error) {
	return b.admin.FinishElsewhere(ctx, op)
}

// Policy is the policy in a channel's key (edge.Channels).
func (b *Broker) Policy(topic, channel string) (edge.ChannelPolicy, error) {
	return b.admin.Channels.Policy(topic, channel)
}

// Deferred lists delayed messages of a channel (edge.Channels).
func (b *Broker) Deferred(ctx context.Context, topic, channel string, limit int) ([]edge.DeferredMessage, error) {
	return b.admin.Channels.Deferred(ctx, topic, channel, limit)
}

// CancelDeferred finishes delayed messages of a channel (edge.Channels).
func (b *Broker) CancelDeferred(ctx context.Context, topic, channel string, ids []edge.MessageID) (int, error) {
	return b.admin.Channels.CancelDeferred(ctx, topic, channel, ids)
}

// Positions lists how far the channels of a topic are (edge.Channels).
func (b *Broker) Positions(ctx context.Context, topic string) ([]edge.ChannelPosition, error) {
	return b.admin.Channels.Positions(ctx, topic)
}

// Settle carries a verb out on deliveries by their receipts (edge.Receipts).
func (b *Broker) Settle(ctx context.Context, topic, channel string, do edge.Settlement, list []edge.Receipt) []error {
	return b.admin.Channels.Settle(ctx, topic, channel, do, list)
}

// Trace gives the state of one message (edge.Tracer).
func (b *Broker) Trace(ctx context.Context, topic string, id edge.MessageID) (edge.MessageTrace, error) {
	return b.admin.Channels.Trace(ctx, topic, id)
}

// Redrive moves messages back from a channel's dead-letter topic (edge.Channels).
func (b *Broker) Redrive(ctx context.Context, topic, channel string, limit int) (int, error) {
	return b.admin.Redriver.Redrive(ctx, topic, channel, limit)
}

// Lookup gives a topic's channels, and the brokers that serve it (edge.Directory).
func (b *Broker) Lookup(ctx context.Context, topic string) ([]string, []edge.Producer, error) {
	return b.directory.Lookup(ctx, topic)
}

// Leaders lists the brokers that lead a topic's partitions (edge.Directory).
func (b *Broker) Leaders(ctx context.Context, topic string) ([]edge.PartitionLeader, error) {
	return b.directory.Leaders(ctx, topic)
}

// Topics lists the topics of the cluster, sorted (edge.Directory).
func (b *Broker) Topics() []string { return b.catalog.Topics() }

// Channels lists a topic's channels, sorted (edge.Directory).
func (b *Broker) Channels(topic string) []string { return b.directory.Channels(topic) }

// Nodes lists the live brokers with the topics that they serve (edge.Directory).
func (b *Broker) Nodes() []edge.NodeEntry { return b.directory.Nodes() }

// Tombstone hides a node from Lookup of a topic for a while (edge.Directory).
func (b *Broker) Tombstone(topic, node string) error { return b.directory.Tombstone(topic, node) }

// TopicSettings are the effective settings of a topic (edge.Directory).
func (b *Broker) TopicSettings(topic string) (edge.TopicSettings, bool) {
	return b.admin.Topics.Settings(topic)
}

// Trash lists the deleted topics that can be undeleted (edge.Directory).
func (b *Broker) Trash() []edge.TrashedTopic { return b.directory.Trash() }

// Usage is what a user created and is still there (edge.Directory).
func (b *Broker) Usage(user string) edge.Usage { return b.admin.Quotas.Usage(user) }

// Limits are the limits of the cluster and their use (edge.Directory).
func (b *Broker) Limits() edge.LimitsView { return b.admin.Quotas.View() }

// Cluster is the whole of GET /v1/cluster (edge.Directory).
func (b *Broker) Cluster() edge.ClusterView { return b.directory.Cluster() }

// Ready is nil when the broker is registered, serves, and reaches some other broker, if
// there are others (edge.Directory): it could neither forward puts nor relay.
func (b *Broker) Ready() error {
	if b.session.Incarnation() == 0 || b.stopping.Load() {
		return errNotRegistered
	}
	if b.directory.Isolated() {
		return errIsolated
	}
	return b.inspector.Health()
}

// Peek reads messages of a replica (edge.Inspector).
func (b *Broker) Peek(ctx context.Context, req edge.PeekRequest) (edge.Peeked, error) {
	return b.inspector.Peek(ctx, req)
}

// Digest reads the checksums of a replica here (edge.Inspector).
func (b *Broker) Digest(req edge.DigestRequest) (edge.Digest, error) { return b.inspector.Digest(req) }

// Remains asks all replicas of a partition what they hold (edge.Recovery).
func (b *Broker) Remains(ctx context.Context, topic string, partition int) (edge.Remains, error) {
	return b.admin.Recovery.Remains(ctx, topic, partition)
}

// Recover goes on without a partition's in-sync set (edge.Recovery).
func (b *Broker) Recover(ctx context.Context, topic string, partition int, from ident.Node) (edge.Remains, error) {
	return b.admin.Recovery.Recover(ctx, topic, partition, from)
}

// Discard gives up a replica that is refused after a Recover (edge.Recovery).
func (b *Broker) Discard(ctx context.Context, topic string, partition int, on ident.Node) error {
	return b.admin.Recovery.Discard(ctx, topic, partition, on)
}

// TopicsLedBy gives the statistics of the partitions that a broker leads.
func (b *Broker) TopicsLedBy(ctx context.Context, n ident.Node) ([]edge.TopicStats, error) {
	return b.directory.TopicsLedBy(ctx, n)
}

// Left reports whether this broker is decommissioned and has no replica any more: if it
// stops, it is for good.
func (b *Broker) Left() bool { return b.catalog.Left(b.self) }
