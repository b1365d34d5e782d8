// Package api has the small interfaces and plain values between the front ends (internal/frontend) and the broker. The
// coordinator implements the interfaces, tests fake them. The only logic is the checks of single values.
//
// # Invariants every implementation keeps
//
//  1. Publish never blocks, and its Answerer is called exactly once, also at
//     shutdown, at the latest after the put limit (9 s).
//  2. Subscribe returns only after the channel's position is replicated on every
//     partition, so that nothing published later is missed.
//  3. A Delivery is a committed message.
package api

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Publisher accepts puts for any topic, including topics that other brokers lead.
type Publisher interface {
	// Admit is called before a body of this size is read. It blocks for back-pressure. If the topic does not exist and
	// may be created, it creates the topic.
	Admit(ctx context.Context, topic string, bytes int) error
	// Publish takes one put, and fills in its request id. outcome.ErrPartitionNotFound: the topic does not have the
	// partition. The key only counts with AnyPartition: it chooses the partition; nil: any.
	Publish(topic string, partition int, key []byte, d queue.Draft, a Answerer)
}

// AnyPartition is the number that names no partition of a put.
const AnyPartition = -1

// Answerer receives the answer to one put, once. Answer must not block.
type Answerer interface{ Answer(r PutResult) }

// PutResult is the outcome of one put. Err is nil (committed) or wraps an error of package outcome. ID and Sequence are
// those of the first message, valid if Err is nil.
type PutResult struct {
	ID       MessageID
	Sequence ident.Sequence
	Err      error
	// Duplicate: every message was published before, with the same message id. ID and Sequence are those of that put.
	Duplicate bool
}

// EachError is the error of a put whose messages were stored in part: in a topic that recognises content, each message
// may belong to a different partition.
type EachError struct {
	Whole error   // in doubt, unless nothing is stored
	Each  []error // of the messages, in their order; nil: stored
}

// Error is the text of the whole put.
func (e *EachError) Error() string { return e.Whole.Error() }

// Unwrap returns the error of the whole put.
func (e *EachError) Unwrap() error { return e.Whole }

// MessageID is the 16 ASCII hex digits that clients see.
type MessageID [16]byte

// MarshalText returns the digits.
func (id MessageID) MarshalText() ([]byte, error) { return id[:], nil }

// UnmarshalText reads the digits.
func (id *MessageID) UnmarshalText(text []byte) error {
	copy(id[:], text)
	return nil
}

// Subscribers opens subscriptions on any topic, led by this broker or relayed.
type Subscribers interface {
	Subscribe(ctx context.Context, r SubscribeRequest) (Subscription, error)
}

// SubscribeRequest is the content of a SUB.
type SubscribeRequest struct {
	Topic, Channel string
	From           string // start of a new channel: earliest | latest | <time> | <sequence>; "": by the rules
	Reposition     bool   // From also repositions an existing channel that has no consumers
	Partition      int    // -1: all
	Ordered        bool
	MsgTimeoutMS   int64
	SampleRate     int32              // 0: off; NSQ: deliver if rand(0..99) <= rate
	Filter         string             // that the client requires; another one is ErrFilter; "": none is required
	Client         func() ClientStats // for /stats; any goroutine may call it at any time
	Memory         limits.Share       // counts the messages until the client has read them
}

// Subscription is one consumer's view of a channel over all partitions. Any goroutine may call its methods.
type Subscription interface {
	// Wake receives (capacity 1, edge-triggered, never lost) when Pull may find messages.
	Wake() <-chan struct{}
	// Pull appends at most credit deliveries to dst, which are then in flight to this subscription. It returns fewer if
	// they are large, or if the client's share of the memory is used up.
	Pull(credit int, dst []Delivery) []Delivery
	// Written reports deliveries of Pull as written or abandoned, and so releases their memory. The caller reports each
	// delivery once.
	Written(list []Delivery)
	// Finish, Requeue and Touch concern the last delivery of the message that Pull has returned. Errors:
	// ErrNotInFlight, ErrNotOwner.
	Finish(id MessageID) error
	Requeue(id MessageID, delayMS int64) error
	Touch(id MessageID) error
	// Settle carries out a verb on one delivery. ErrNotOwner: this subscription has a later delivery of the message.
	// ErrNotInFlight: the caller must ask the leader of the message (Receipts).
	Settle(r Receipt, do Settlement) error
	// InFlight counts the deliveries that are neither finished, requeued nor timed out.
	InFlight() int
	// Ordered reports whether the subscription or its topic requires an ordered channel.
	Ordered() bool
	// Oldest is the oldest delivery in flight; nil if there is none. It searches all deliveries.
	Oldest() *HeldMessage
	// SetReady sets the credit that the consumer grants (RDY), for relays and statistics.
	SetReady(n int)
	// Refused receives late refusals of a leader on another broker. It is never closed.
	Refused() <-chan Refusal
	// Closed is closed when the channel is deleted: the connection must end.
	Closed() <-chan struct{}
	// Close ends the subscription. With requeue the messages in flight are requeued at once, otherwise after their
	// timeouts.
	Close(requeue bool)
	// Withdraw is Close if the client is not the cause: the messages in flight are requeued at once, and their
	// deliveries do not count as attempts.
	Withdraw()
}

// Delivery is one delivery of a message. Message.Attempts counts from 1. Epoch and Number identify it in its partition.
type Delivery struct {
	ID        MessageID
	Partition ident.Partition
	Epoch     ident.Epoch
	Number    uint64
	Message   queue.Message
}

// Receipt identifies the delivery.
func (d *Delivery) Receipt() Receipt {
	return Receipt{ID: d.ID, Epoch: d.Epoch, Number: d.Number}
}

// Refusal is a late answer to a verb ("FIN", "REQ", "TOUCH").
type Refusal struct {
	ID   MessageID
	Verb string
	Err  error
}

// Channels reads and changes channels. Errors are those of Admin.
type Channels interface {
	// ChannelViews lists a topic's channels by name.
	ChannelViews(topic string) ([]ChannelView, error)
	// Policy is a channel's policy.
	Policy(topic, channel string) (ChannelPolicy, error)
	// Deferred lists at most limit delayed messages, by deadline.
	Deferred(ctx context.Context, topic, channel string, limit int) ([]DeferredMessage, error)
	// CancelDeferred finishes those of the given messages that are delayed, and returns their number.
	CancelDeferred(ctx context.Context, topic, channel string, ids []MessageID) (int, error)
	// Positions lists the position of each durable channel of a topic in each partition.
	Positions(ctx context.Context, topic string) ([]ChannelPosition, error)
	// Seek moves a channel, or counts what the move would do (SeekChannel.DryRun).
	Seek(ctx context.Context, op SeekChannel) (SeekResult, error)
	// FinishElsewhere finishes messages of a channel without consumers, because another channel has finished their
	// originals. It does not change the deferred messages of the channel.
	FinishElsewhere(ctx context.Context, op FinishElsewhere) (FinishedElsewhere, error)
	// Redrive moves up to limit messages back from the channel's dead-letter topic and returns their number.
	Redrive(ctx context.Context, topic, channel string, limit int) (int, error)
}

// ChannelView is a channel according to the metadata. Ephemeral channels appear only in /stats.
type ChannelView struct {
	Channel string `json:"channel"`
	Ordered bool   `json:"ordered"`
	Paused  bool   `json:"paused"`
	From    string `json:"from,omitempty"` // its start, as requested
	Filter  string `json:"filter,omitempty"`
}

// ChannelPolicy is the treatment of messages that fail, and the filter.
type ChannelPolicy = option.PolicyView

// DeferredMessage is one delayed message of a channel.
type DeferredMessage struct {
	ID         string `json:"id"`
	Partition  int    `json:"partition"`
	DeadlineNS int64  `json:"deadline"` // unix ns
	Attempts   uint16 `json:"attempts"`
}

// ChannelPosition is the position of one channel in one partition. Every message below Confirmed, and in the ranges
// Settled above it, is finished or in Deferred.
type ChannelPosition struct {
	Channel   string                       `json:"channel"`
	Partition int                          `json:"partition"`
	Confirmed ident.Sequence               `json:"confirmed"`
	Settled   []SequenceSpan               `json:"settled,omitempty"`
	Deferred  []msgstream.DeferredPosition `json:"deferred,omitempty"` // by sequence
	Consumers int                          `json:"consumers"`
}

// SeekResult is the effect of a seek in messages. A number is null if the answer of a leader was lost.
type SeekResult struct {
	DryRun     bool       `json:"dry_run"` // nothing has moved
	Skips      *uint64    `json:"skips"`   // unfinished, and no longer delivered
	Repeats    *uint64    `json:"repeats"` // finished or skipped, and delivered again
	Partitions []SeekMove `json:"partitions"`
}

// SeekMove is the effect in one partition. From and To are confirmed sequences.
type SeekMove struct {
	Partition int             `json:"partition"`
	From      *ident.Sequence `json:"from"`
	To        *ident.Sequence `json:"to"`
	Skips     *uint64         `json:"skips"`
	Repeats   *uint64         `json:"repeats"`
	Stays     bool            `json:"stays,omitempty"` // with SeekChannel.Idle: the channel has consumers and is not moved
}

// FinishElsewhere names messages of one partition that are finished for a channel. If the topic does not have this id,
// the error is ErrTopicNotFound.
type FinishElsewhere struct {
	Topic, Channel string
	TopicID        ident.TopicID
	Partition      int
	Spans          []SequenceSpan
}

// FinishedElsewhere is the effect of FinishElsewhere.
type FinishedElsewhere struct {
	Finished uint64 `json:"finished"` // messages that were not finished before
	Kept     uint64 `json:"kept"`     // delivered before, and not finished
	Stays    bool   `json:"stays"`    // the channel has consumers: nothing has changed
}

// SequenceSpan is the messages from From to To−1.
type SequenceSpan struct {
	From ident.Sequence `json:"from"`
	To   ident.Sequence `json:"to"`
}

// Stats has the queues that this broker leads. Only leaders report, because tools sum over brokers.
type Stats interface {
	// Topics returns the topics sorted by name, each with its channels sorted by name. "" selects all.
	Topics(topic, channel string, includeClients bool) []TopicStats
	// Health is nil, or the reason why the broker cannot store messages.
	Health() error
}

// Directory answers the lookup API from the watched metadata.
type Directory interface {
	// Lookup returns the channels and the producers of a topic: each partition's leader and a live in-sync follower. It
	// waits up to 1.5 s while a partition has no leader. ErrTopicNotFound.
	Lookup(ctx context.Context, topic string) (channels []string, producers []Producer, err error)
	// Leaders lists the live leaders of the partitions of a topic. It waits as Lookup does.
	Leaders(ctx context.Context, topic string) ([]PartitionLeader, error)
	Topics() []string
	Channels(topic string) []string
	Nodes() []NodeEntry
	// Tombstone removes a node ("broadcast_address:http_port") from Lookup of a topic for the tombstone lifetime.
	Tombstone(topic, node string) error
	// TopicSettings are the effective settings of a topic; false if the topic does not exist.
	TopicSettings(topic string) (TopicSettings, bool)
	// Trash lists the deleted topics that can be undeleted, oldest deletion first.
	Trash() []TrashedTopic
	// Usage counts the topics, partitions and channels that a user created and that still exist.
	Usage(user string) Usage
	// Limits are the limits of the cluster with their use.
	Limits() LimitsView
	// Cluster is the answer of GET /v1/cluster.
	Cluster() ClusterView
	// Ready is nil if the broker is registered and serves.
	Ready() error
}

// Producer is one broker as /lookup and /nodes show it.
type Producer struct {
	RemoteAddress    string `json:"remote_address"`
	Hostname         string `json:"hostname"`
	BroadcastAddress string `json:"broadcast_address"`
	TCPPort          int    `json:"tcp_port"`
	HTTPPort         int    `json:"http_port"`
	Version          string `json:"version"`
	TopologyZone     string `json:"topology_zone"`
	TopologyRegion   string `json:"topology_region"`
}

// PartitionLeader is the broker that leads a partition.
type PartitionLeader struct {
	Partition int
	Producer
}

// NodeEntry is one broker of /nodes. Tombstones has the length of Topics.
type NodeEntry struct {
	Producer
	Tombstones []bool   `json:"tombstones"`
	Topics     []string `json:"topics"`
}

// ClusterView is the answer of GET /v1/cluster.
type ClusterView struct {
	Cluster    string        `json:"cluster"`
	Controller ident.Node    `json:"controller"`
	Brokers    []BrokerView  `json:"brokers"`
	Topics     []TopicView   `json:"topics"`
	Self       ident.Node    `json:"self"`
	Level      int           `json:"feature_level"` // the feature level that all brokers support, running or not; it never falls
	Counters   CounterTotals `json:"counters"`
	// MetadataUnheardMS is how long the metadata store has not answered this broker; 0 while it answers.
	MetadataUnheardMS int64 `json:"metadata_unheard_ms"`
}

// InSync returns the smallest in-sync set of a topic's partitions and the number of their replicas; 0, 0 if there is no
// such topic.
func (v ClusterView) InSync(topic string) (least, replicas int) {
	for _, x := range v.Topics {
		if x.Topic != topic {
			continue
		}
		for _, p := range x.Partitions {
			if least == 0 || len(p.ISR) < least {
				least = len(p.ISR)
			}
			replicas = max(replicas, len(p.Replicas))
		}
	}
	return least, replicas
}

// CounterTotals sums the rare events of this broker's partitions.
type CounterTotals struct {
	Elections   uint64 `json:"elections"`
	Rollbacks   uint64 `json:"rollbacks"`
	RolledBack  uint64 `json:"rolled_back_puts"`
	InDoubt     uint64 `json:"in_doubt_puts"`
	Truncations uint64 `json:"truncations"`
	Shrinks     uint64 `json:"isr_shrinks"`
	Grows       uint64 `json:"isr_grows"`
	Swaps       uint64 `json:"isr_swaps"`
}

// Add sums two counts.
func (t *CounterTotals) Add(o CounterTotals) {
	t.Elections += o.Elections
	t.Rollbacks += o.Rollbacks
	t.RolledBack += o.RolledBack
	t.InDoubt += o.InDoubt
	t.Truncations += o.Truncations
	t.Shrinks += o.Shrinks
	t.Grows += o.Grows
	t.Swaps += o.Swaps
}

// BrokerView is one broker of the cluster view.
type BrokerView struct {
	Name         ident.Node        `json:"name"`
	Alive        bool              `json:"alive"`
	Incarnation  ident.Incarnation `json:"incarnation"`
	TCPAddress   string            `json:"tcp_address"`
	HTTPAddress  string            `json:"http_address"`
	HTTPSAddress string            `json:"https_address,omitempty"` // "": it has none
	RPCAddress   string            `json:"rpc_address"`
	Zone         string            `json:"zone"`
	Version      string            `json:"version"`                    // the version of NSQ that the broker speaks
	Build        string            `json:"lockstep_version,omitempty"` // of the product
	Leaving      bool              `json:"leaving"`                    // it is being decommissioned
	Drain        string            `json:"drain,omitempty"`            // "leaders" or "replicas"
	Level        int               `json:"feature_level"`              // of its build
	// Silent: it is not registered, and its address neither answers nor refuses connections.
	Silent bool `json:"silent,omitempty"`
	// Hangs: the broker has reported that its disk or a core loop is stuck, or that its store has failed.
	Hangs    bool `json:"hangs,omitempty"`
	LowSpace bool `json:"low_space"` // it is below its disk reserve
}

// TopicView is one topic of the cluster view.
type TopicView struct {
	Topic             string        `json:"topic"`
	ID                ident.TopicID `json:"id"`
	ReplicationFactor int           `json:"replication_factor"`
	MinInSync         int           `json:"min_in_sync"`
	Durability        string        `json:"durability,omitempty"` // missing: each broker's own
	Ordered           bool          `json:"ordered"`
	option.Effective
	Owner      string          `json:"owner,omitempty"` // the user who created it
	Partitions []PartitionView `json:"partitions"`
}

// TopicSettings are the effective settings of a topic.
type TopicSettings struct {
	Topic             string        `json:"topic"`
	ID                ident.TopicID `json:"-"`
	Partitions        int           `json:"partitions"`
	ReplicationFactor int           `json:"replication_factor"`
	MinInSync         int           `json:"min_in_sync"`
	Durability        string        `json:"durability,omitempty"` // missing: each broker's own
	Ordered           bool          `json:"ordered"`
	option.Effective
}

// TrashedTopic is a deleted topic that can be undeleted.
type TrashedTopic struct {
	Topic       string        `json:"topic"`
	ID          ident.TopicID `json:"id"`
	DeletedAtMS int64         `json:"deleted_at_ms"`
	By          string        `json:"by,omitempty"` // the client that deleted it
	Partitions  int           `json:"partitions"`
	Channels    int           `json:"channels"` // durable ones
	Messages    int64         `json:"messages"` // in the log, finished or not
	Bytes       int64         `json:"bytes"`    // of one copy of the log
	// Incomplete: messages and bytes lack a partition whose leader did not answer.
	Incomplete bool `json:"incomplete,omitempty"`
	// RemainingMS is the rest of the grace. UntilMS is when it ends, or later if the cluster is without a controller
	// for a time.
	RemainingMS int64 `json:"remaining_ms"`
	UntilMS     int64 `json:"until_ms"`
	Purging     bool  `json:"purging,omitempty"` // it is being removed permanently
}

// PartitionView is one partition of the cluster view. Offsets and the sequence are from the leader's last report.
type PartitionView struct {
	Partition         int            `json:"partition"`
	Leader            ident.Node     `json:"leader"`
	Epoch             ident.Epoch    `json:"epoch"`
	Replicas          []ident.Node   `json:"replicas"`
	ISR               []ident.Node   `json:"isr"`
	CommittedOffset   ident.Offset   `json:"committed_offset"`
	CommittedSequence ident.Sequence `json:"committed_sequence"`
	EndOffset         ident.Offset   `json:"end_offset"`
	// EndsUnknown: there is no such report; the offsets and the sequence are 0.
	EndsUnknown     bool         `json:"ends_unknown,omitempty"`
	UnderReplicated bool         `json:"under_replicated"`
	Damaged         []DamageView `json:"damaged,omitempty"`
	MinInSync       int          `json:"min_in_sync"`      // the topic's, unless an operation changes it
	Target          []ident.Node `json:"target,omitempty"` // its future replicas, while they are moved
}

// DamageView is an unreadable range of one replica that is not repaired yet. Sequences are 0 if the commit log does not
// have them.
type DamageView struct {
	Node          ident.Node     `json:"node"`
	From          ident.Offset   `json:"from_offset"`
	To            ident.Offset   `json:"to_offset"`
	FirstSequence ident.Sequence `json:"first_sequence"`
	EndSequence   ident.Sequence `json:"end_sequence"`
}

// Usage counts what the quotas of a user limit: what the user created and still exists.
type Usage struct {
	Topics     int `json:"topics"`
	Partitions int `json:"partitions"` // of all the user's topics, including those in the trash
	Channels   int `json:"channels"`   // durable ones
}

// LimitView is one limit of the cluster with its use.
type LimitView struct {
	Used  int `json:"used"`
	Limit int `json:"limit"` // 0: none
}

// LimitsView lists the limits of the cluster, as configured at this broker, with their use.
type LimitsView struct {
	Topics     LimitView `json:"topics"`
	Partitions LimitView `json:"partitions"` // including the trash
	// Channels counts the durable channels of the topic that has the most.
	Channels LimitView `json:"channels_of_a_topic"`
}

// Verb is the answer of a consumer to a delivery.
type Verb string

// The verbs, as FIN, REQ and TOUCH of the TCP protocol.
const (
	VerbFinish  Verb = "finish"
	VerbRequeue Verb = "requeue"
	VerbTouch   Verb = "touch"
)

// Settlement is a verb with its argument.
type Settlement struct {
	Verb    Verb
	DelayMS int64 // of a requeue
}

// Receipt names one delivery of a message on a channel (Delivery.Receipt).
type Receipt struct {
	ID     MessageID
	Epoch  ident.Epoch
	Number uint64
}

// Receipts settles deliveries of clients that have no connection.
type Receipts interface {
	// Settle carries out a verb at the leaders of the messages, regardless of the broker that delivered them. It returns an
	// error for each receipt: nil, ErrNotInFlight, ErrNotOwner, or one that wraps ErrTopicNotFound, ErrChannelNotFound
	// or ErrUnavailable.
	Settle(ctx context.Context, topic, channel string, do Settlement, list []Receipt) []error
}
