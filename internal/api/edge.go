// Package api declares the part of the cluster that the client-facing packages
// (internal/frontend/listen, internal/frontend/tcp, internal/frontend/httpapi, internal/frontend/lookup) use,
// as small interfaces and plain values. The coordinator implements them; tests
// fake them. The package holds no logic but the checks of single values.
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
	"fmt"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The errors with which the cluster answers. Package outcome has their texts and meanings.
// The packages of the edge use them under these names.
var (
	ErrNotEnough       = outcome.ErrNotEnough
	ErrRolledBack      = outcome.ErrRolledBack
	ErrInDoubt         = outcome.ErrInDoubt
	ErrExiting         = outcome.ErrExiting
	ErrNoLeader        = outcome.ErrNoLeader
	ErrDiskFull        = outcome.ErrDiskFull
	ErrTopicFull       = outcome.ErrTopicFull
	ErrTooBig          = outcome.ErrTooBig
	ErrBusy            = outcome.ErrBusy
	ErrBelowWindow     = outcome.ErrBelowWindow
	ErrWindowFull      = outcome.ErrWindowFull
	ErrNotReady        = outcome.ErrNotReady
	ErrNotInFlight     = outcome.ErrNotInFlight
	ErrNotOwner        = outcome.ErrNotOwner
	ErrTopicNotFound   = outcome.ErrTopicNotFound
	ErrChannelNotFound = outcome.ErrChannelNotFound
	ErrBrokerNotFound  = outcome.ErrBrokerNotFound
	ErrInvalid         = outcome.ErrInvalid
	ErrConflict        = outcome.ErrConflict
	ErrFilter          = outcome.ErrFilter
	ErrTooManyClients  = outcome.ErrTooManyClients
	ErrRateLimited     = outcome.ErrRateLimited
	ErrQuota           = outcome.ErrQuota
	ErrUnavailable     = outcome.ErrUnavailable
)

// ErrNoPartition names a partition that the topic does not have; its number follows.
var ErrNoPartition = fmt.Errorf("%w: the topic has no partition", ErrInvalid)

// NotEnough is ErrNotEnough with its numbers: InSync in-sync replicas answer, and a put
// requires Minimum of them.
type NotEnough struct{ InSync, Minimum int }

// Error begins as ErrNotEnough does; clients compare the beginning.
func (e NotEnough) Error() string {
	return fmt.Sprintf("not enough in-sync replicas (%d of %d), not stored", e.InSync, e.Minimum)
}

// Is makes it an ErrNotEnough.
func (e NotEnough) Is(target error) bool { return target == ErrNotEnough }

// Publisher takes puts for any topic, also for topics that other brokers lead.
type Publisher interface {
	// Admit is called before a body is read. It blocks for back-pressure, and creates the
	// topic if it does not exist and may be created. bytes is the body's size.
	Admit(ctx context.Context, topic string, bytes int) error
	// Publish takes one put. The caller cannot distinguish local, forwarded, held and
	// retried puts. Publish fills in the request id. key nil = any partition.
	Publish(topic string, key []byte, d queue.Draft, a Answerer)
	// PublishAt is Publish to the partition with this number. ErrNoPartition: the topic does not
	// have it.
	PublishAt(topic string, partition int, d queue.Draft, a Answerer)
}

// Answerer receives the answer to one put, once. Answer must not block.
type Answerer interface{ Answer(r PutResult) }

// PutResult is the fate of one put. Err is nil (committed) or wraps one of the
// errors above. ID and Sequence are the first message's, valid when Err is nil.
type PutResult struct {
	ID       MessageID
	Sequence ident.Sequence
	Err      error
	// Duplicate: every message of the put was published before, with the same message id. ID and
	// Sequence are those of the first put.
	Duplicate bool
}

// EachError is the error of a put whose messages were stored in part: those of a topic that recognises
// content go to the partitions of their own.
type EachError struct {
	Whole error   // in doubt, unless nothing is stored
	Each  []error // of the messages, in their order; nil: stored
}

// Error is that of the whole put.
func (e *EachError) Error() string { return e.Whole.Error() }

// Unwrap makes it the error of the whole put.
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
	From           string // beginning of a new channel: "" = by the rules; earliest | latest | <time> | <sequence>
	Reposition     bool   // From also moves an existing channel without consumers
	Partition      int    // -1 = all
	Ordered        bool
	MsgTimeoutMS   int64
	SampleRate     int32 // 0 = off; NSQ: keep if rand(0..99) <= rate
	// Filter is the filter that the client requires. If the channel has another one, the error
	// is ErrFilter. "": the client requires none.
	Filter string
	// Client describes the connection for /stats; called at any time, from any
	// goroutine.
	Client func() ClientStats
	// Memory is the share that messages count against until the client has read them.
	Memory limits.Share
}

// Subscription is one consumer's view of a channel over all partitions. Pull,
// Finish, Requeue and Touch may be called by different goroutines.
type Subscription interface {
	// Wake receives (capacity 1, edge-triggered, never lost) when Pull may find
	// something.
	Wake() <-chan struct{}
	// Pull appends at most credit deliveries to dst: in flight to this
	// subscription from now on. It finds fewer if their bytes are many, or the client's share of the memory is used up.
	Pull(credit int, dst []Delivery) []Delivery
	// Written says that the caller no longer holds these deliveries of Pull: they are written, or given back. Each is
	// reported once.
	Written(list []Delivery)
	// Finish, Requeue and Touch are about the last delivery of the message that Pull has returned.
	// Errors: ErrNotInFlight, ErrNotOwner.
	Finish(id MessageID) error
	Requeue(id MessageID, delayMS int64) error
	Touch(id MessageID) error
	// Settle carries a verb out on one delivery, and returns when it is done. ErrNotOwner: this
	// subscription has a later delivery of the message. ErrNotInFlight: only the leader of the message
	// can say more (Receipts).
	Settle(r Receipt, do Settlement) error
	// InFlight is the number of deliveries neither finished, requeued nor timed out.
	InFlight() int
	// Ordered reports whether the subscription or its topic asked for an ordered channel: the next message of a partition
	// comes after the finish of this one.
	Ordered() bool
	// Oldest is the delivery in flight that the client has held longest; nil if there is none. It looks at all of them.
	Oldest() *HeldMessage
	// SetReady sets the credit that the consumer grants (RDY), for relays and stats.
	SetReady(n int)
	// Refused receives late refusals, from a leader on another broker. The connection
	// answers them with E_FIN_FAILED, E_REQ_FAILED or E_TOUCH_FAILED. Never closed.
	Refused() <-chan Refusal
	// Closed is closed when the channel was deleted: the connection must end.
	Closed() <-chan struct{}
	// Close ends the subscription. With requeue the messages in flight are requeued at
	// once, otherwise they wait for their timeouts.
	Close(requeue bool)
	// Withdraw is Close when the client is not the cause: the messages in flight are
	// requeued at once, and their deliveries do not count as attempts.
	Withdraw()
}

// Delivery is one message on its way to a consumer. Message.Attempts counts
// from 1. No other delivery of the partition has the same epoch and number.
type Delivery struct {
	ID        MessageID
	Partition ident.Partition
	Epoch     ident.Epoch
	Number    uint64
	Message   queue.Message
}

// Receipt names the delivery.
func (d *Delivery) Receipt() Receipt {
	return Receipt{ID: d.ID, Epoch: d.Epoch, Number: d.Number}
}

// Refusal is a late answer to a verb ("FIN", "REQ", "TOUCH").
type Refusal struct {
	ID   MessageID
	Verb string
	Err  error
}

// Channels reads policies and deferred messages of channels, and changes the latter. Errors as Admin.
type Channels interface {
	// ChannelViews lists a topic's channels by name.
	ChannelViews(topic string) ([]ChannelView, error)
	// Policy is the treatment of messages that fail.
	Policy(topic, channel string) (ChannelPolicy, error)
	// Deferred lists at most limit delayed messages, by deadline.
	Deferred(ctx context.Context, topic, channel string, limit int) ([]DeferredMessage, error)
	// CancelDeferred finishes delayed messages and returns their number. It does not change
	// messages that are no longer delayed.
	CancelDeferred(ctx context.Context, topic, channel string, ids []MessageID) (int, error)
	// Positions lists the position of each durable channel of a topic in each partition.
	Positions(ctx context.Context, topic string) ([]ChannelPosition, error)
	// Seek moves a channel, or counts what the move would do (SeekChannel.DryRun).
	Seek(ctx context.Context, op SeekChannel) (SeekResult, error)
	// FinishElsewhere finishes messages of a channel without consumers, because another channel has
	// finished their originals. It moves no channel back, and keeps the deferred messages of the channel.
	FinishElsewhere(ctx context.Context, op FinishElsewhere) (FinishedElsewhere, error)
	// Redrive moves up to limit messages back from the channel's dead-letter
	// topic and returns how many.
	Redrive(ctx context.Context, topic, channel string, limit int) (int, error)
}

// ChannelView is a channel by its record in the metadata. Ephemeral channels have no
// record: /stats shows them.
type ChannelView struct {
	Channel string `json:"channel"`
	Ordered bool   `json:"ordered"`
	Paused  bool   `json:"paused"`
	From    string `json:"from,omitempty"`   // its beginning, as requested
	Filter  string `json:"filter,omitempty"` // its text; see package nsqd/filter
}

// ChannelPolicy is the treatment of messages that fail, and the filter. The zero value
// redelivers failed messages for ever, at once, and delivers every message.
type ChannelPolicy struct {
	MaxAttempts     uint16  `json:"max_attempts"`
	DeadLetterTopic string  `json:"dead_letter_topic"`
	BackoffMS       int64   `json:"retry_backoff_ms"`
	BackoffFactor   float64 `json:"retry_backoff_factor"`
	BackoffMaxMS    int64   `json:"retry_backoff_max_ms"`
	BackoffJitter   float64 `json:"retry_backoff_jitter"`
	Filter          string  `json:"filter,omitempty"` // its text; see package nsqd/filter
	Owner           string  `json:"owner,omitempty"`  // the user that set the dead-letter topic, and with whose rights messages go there
}

// DeferredMessage is one delayed message of a channel.
type DeferredMessage struct {
	ID         string `json:"id"`
	Partition  int    `json:"partition"`
	DeadlineNS int64  `json:"deadline"` // unix ns
	Attempts   uint16 `json:"attempts"`
}

// ChannelPosition is the position of one channel in one partition. Every message below
// Confirmed is finished, or in Deferred. So is every message in Settled, which lists ranges
// above Confirmed.
type ChannelPosition struct {
	Channel   string             `json:"channel"`
	Partition int                `json:"partition"`
	Confirmed ident.Sequence     `json:"confirmed"`
	Settled   []SequenceSpan     `json:"settled,omitempty"`
	Deferred  []DeferredPosition `json:"deferred,omitempty"` // by sequence
	Consumers int                `json:"consumers"`
}

// SeekResult is the effect of a seek in messages. A number is null if it is unknown: the channel
// moved, but the answer of a leader was lost.
type SeekResult struct {
	DryRun     bool       `json:"dry_run"` // nothing has moved
	Skips      *uint64    `json:"skips"`   // not finished, and not delivered any more
	Repeats    *uint64    `json:"repeats"` // finished or passed before, and delivered again
	Partitions []SeekMove `json:"partitions"`
}

// SeekMove is the effect in one partition. From and To are confirmed sequences.
type SeekMove struct {
	Partition int             `json:"partition"`
	From      *ident.Sequence `json:"from"`
	To        *ident.Sequence `json:"to"`
	Skips     *uint64         `json:"skips"`
	Repeats   *uint64         `json:"repeats"`
	Stays     bool            `json:"stays,omitempty"` // SeekChannel.Idle, and the channel has consumers
}

// FinishElsewhere names messages of one partition that are finished for a channel: the spans are of a topic
// with this id, and another topic of the name is ErrTopicNotFound.
type FinishElsewhere struct {
	Topic, Channel string
	TopicID        ident.TopicID
	Partition      int
	Spans          []SequenceSpan
}

// FinishedElsewhere is the effect of FinishElsewhere.
type FinishedElsewhere struct {
	Finished uint64 `json:"finished"` // messages that were not finished before
	Kept     uint64 `json:"kept"`     // that the channel has delivered, and delivers again: not finished
	Stays    bool   `json:"stays"`    // the channel has consumers: nothing has changed
}

// SequenceSpan is the messages from From to To−1.
type SequenceSpan struct {
	From ident.Sequence `json:"from"`
	To   ident.Sequence `json:"to"`
}

// DeferredPosition is a message that was delivered or delayed, and is not finished.
type DeferredPosition struct {
	Sequence   ident.Sequence `json:"sequence"`
	DeadlineNS int64          `json:"deadline,omitempty"` // unix ns; 0: due
	Attempts   uint16         `json:"attempts,omitempty"`
}

// Stats gives the queues that this broker leads. Only leaders report: tools that sum over
// brokers would count each message once per replica otherwise.
type Stats interface {
	// Topics returns them sorted by name, channels sorted too. Empty filters
	// select all.
	Topics(topic, channel string, includeClients bool) []TopicStats
	// Health is nil, or the reason why the broker cannot store messages (the text after
	// "NOK - ").
	Health() error
}

// Directory answers the lookup API from the broker's watch of the metadata.
type Directory interface {
	// Lookup returns the channels and the producers of a topic: each
	// partition's leader and a live in-sync follower. ErrTopicNotFound. Waits up
	// to 1.5 s while a partition has no leader.
	Lookup(ctx context.Context, topic string) (channels []string, producers []Producer, err error)
	// Leaders lists the brokers that lead the partitions of a topic; partitions without a live
	// leader are left out. It waits as Lookup does.
	Leaders(ctx context.Context, topic string) ([]PartitionLeader, error)
	Topics() []string
	Channels(topic string) []string
	Nodes() []NodeEntry
	// Tombstone hides a node ("broadcast_address:http_port") from Lookup of a
	// topic for the tombstone lifetime.
	Tombstone(topic, node string) error
	// TopicSettings are the effective settings of a topic; false if there is none.
	TopicSettings(topic string) (TopicSettings, bool)
	// Trash lists the deleted topics that can be undeleted, the one that was deleted first first.
	Trash() []TrashedTopic
	// Usage is what a user created and is still there.
	Usage(user string) Usage
	// Limits are the limits of the cluster and their use.
	Limits() LimitsView
	// Cluster is the whole of GET /v1/cluster.
	Cluster() ClusterView
	// Ready is nil when the broker is registered and serves (for /readyz).
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
	Level      int           `json:"feature_level"` // that all brokers have, running or not; it never falls
	Counters   CounterTotals `json:"counters"`
	// MetadataUnheardMS is for how long the metadata has not answered this broker; 0 if it
	// answers.
	MetadataUnheardMS int64 `json:"metadata_unheard_ms"`
}

// InSync gives the smallest in-sync set of a topic's partitions and the number of
// their replicas; zeroes if there is no such topic.
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
	Version      string            `json:"version"`                    // of NSQ, which it speaks
	Build        string            `json:"lockstep_version,omitempty"` // of the product
	Leaving      bool              `json:"leaving"`                    // it is being decommissioned: its replicas go to others
	Drain        string            `json:"drain,omitempty"`            // "leaders" or "replicas": the broker gives them up and gets no new ones
	Level        int               `json:"feature_level"`              // of its build
	// Silent: it is not registered, and its address neither answers nor refuses connections. The process hangs, or its host
	// is off or cut off.
	Silent bool `json:"silent,omitempty"`
	// Hangs: the broker itself reported that its disk or a core loop is stuck, or that its store
	// has failed, and has not reconnected since.
	Hangs    bool `json:"hangs,omitempty"`
	LowSpace bool `json:"low_space"` // it is below its disk reserve: it leaves the in-sync sets whose other members satisfy the minimum
}

// TopicView is one topic of the cluster view.
type TopicView struct {
	Topic             string        `json:"topic"`
	ID                ident.TopicID `json:"id"`
	ReplicationFactor int           `json:"replication_factor"`
	MinInSync         int           `json:"min_in_sync"`
	Durability        string        `json:"durability,omitempty"` // missing: each broker's own
	Ordered           bool          `json:"ordered"`
	EffectiveLimits
	Owner      string          `json:"owner,omitempty"` // the user who created it; missing: none
	Partitions []PartitionView `json:"partitions"`
}

// TopicSettings are the settings of a topic: those of its creation, with later changes.
type TopicSettings struct {
	Topic             string        `json:"topic"`
	ID                ident.TopicID `json:"-"` // of this topic, and of no other one of its name
	Partitions        int           `json:"partitions"`
	ReplicationFactor int           `json:"replication_factor"`
	MinInSync         int           `json:"min_in_sync"`
	Durability        string        `json:"durability,omitempty"` // missing: each broker's own
	Ordered           bool          `json:"ordered"`
	EffectiveLimits
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
	// Incomplete: the leader of a partition did not answer, so that messages and bytes are without it.
	Incomplete bool `json:"incomplete,omitempty"`
	// RemainingMS is how much of the grace is left, and UntilMS the time of day at which it ends if a
	// controller is there all the time. It never ends before that.
	RemainingMS int64 `json:"remaining_ms"`
	UntilMS     int64 `json:"until_ms"`
	Purging     bool  `json:"purging,omitempty"` // it is being removed permanently
}

// PartitionView is one partition of the cluster view. Offsets and the sequence are those of the leader's
// last report.
type PartitionView struct {
	Partition         int            `json:"partition"`
	Leader            ident.Node     `json:"leader"`
	Epoch             ident.Epoch    `json:"epoch"`
	Replicas          []ident.Node   `json:"replicas"`
	ISR               []ident.Node   `json:"isr"`
	CommittedOffset   ident.Offset   `json:"committed_offset"`
	CommittedSequence ident.Sequence `json:"committed_sequence"`
	EndOffset         ident.Offset   `json:"end_offset"`
	// EndsUnknown: no leader reported the offsets and the sequence, which are 0.
	EndsUnknown     bool         `json:"ends_unknown,omitempty"`
	UnderReplicated bool         `json:"under_replicated"`
	Damaged         []DamageView `json:"damaged,omitempty"`
	MinInSync       int          `json:"min_in_sync"`      // the topic's, except while an operation changes it
	Target          []ident.Node `json:"target,omitempty"` // the replicas that it is to have, while they are moved
}

// DamageView is a place of one replica that cannot be read and was not repaired
// yet. Sequences are 0 if the commit log does not have them.
type DamageView struct {
	Node          ident.Node     `json:"node"`
	From          ident.Offset   `json:"from_offset"`
	To            ident.Offset   `json:"to_offset"`
	FirstSequence ident.Sequence `json:"first_sequence"`
	EndSequence   ident.Sequence `json:"end_sequence"`
}
