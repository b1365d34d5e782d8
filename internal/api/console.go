package api

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// TopicSample is the part of a topic that one broker leads, at one moment.
type TopicSample struct {
	Topic string
	Led   int // partitions of the topic that the broker leads
	// Leadership changes with the led partitions and their epochs. Counts of samples with different ones are not
	// comparable.
	Leadership    uint64
	Messages      uint64 // since the creation of the topic
	Put, PutBytes uint64 // committed by this process
	Depth         int64  // messages that no channel has received
	Paused        bool
	KeptBytes     int64 // of one copy of the logs
	Channels      []ChannelSample
}

// ChannelSample is the part of a channel that one broker leads, at one moment.
type ChannelSample struct {
	Channel                   string
	Depth, InFlight, Deferred int64
	Finished                  uint64 // messages that the channel has passed; comparable as counts of the topic
	Requeued, TimedOut        uint64 // since the leadership began; for metrics.Queues by this process
	Filtered, Expired         uint64 // by this process; only for metrics.Queues
	Clients                   int
	Paused, Ordered           bool
	Lag                       time.Duration // age of the oldest message that is neither finished nor deferred
	Partitions                []ChannelPartition
}

// ChannelPartition is a channel in one partition. Only a sample of a named channel has it.
type ChannelPartition struct {
	Partition  uint16         `json:"partition"`
	Depth      int64          `json:"depth"`
	InFlight   int64          `json:"in_flight"`
	Deferred   int64          `json:"deferred"`
	Lags       bool           `json:"lags"`               // it has a message that is neither finished nor deferred
	Oldest     ident.Sequence `json:"confirmed_sequence"` // the first such message; without one the end
	OldestMS   int64          `json:"oldest_ms"`          // the time of its put, unix ms; 0 = unknown
	LagSeconds float64        `json:"lag_seconds"`
	End        ident.Sequence `json:"end_sequence"`
}

// ReplicaSample is one replica on one broker.
type ReplicaSample struct {
	Role              string           `json:"role"`
	Epoch             ident.Epoch      `json:"epoch"`
	CommittedOffset   ident.Offset     `json:"committed_offset"`
	CommittedSequence ident.Sequence   `json:"committed_sequence"`
	End               ident.Offset     `json:"end_offset"`
	EndSequence       ident.Sequence   `json:"end_sequence"`
	Followers         []FollowerSample `json:"followers,omitempty"` // of the leader
	DiskBytes         int64            `json:"disk_bytes"`
}

// FollowerSample is another replica as the leader sees it.
type FollowerSample struct {
	Node   ident.Node    `json:"node"`
	InSync bool          `json:"in_sync"`
	Known  bool          `json:"known"`        // the next two are known
	Behind int64         `json:"behind_bytes"` // that it has not acknowledged
	Owes   time.Duration `json:"owes_ns"`      // an acknowledgement
}

// DiskSample is the space of one broker.
type DiskSample struct {
	FreeBytes, DataBytes int64
	FreeKnown            bool
}

// FaultSample has the faults of one broker.
type FaultSample struct {
	Corrupt               uint64        // connections of other brokers that were closed because of a wrong checksum
	JournalBusy, LoopBusy time.Duration // duration of the current write of the journal, and pass of a core loop
	IdleChannels          []IdleChannel // that this broker, as the controller, will delete, in this order
	HeldPolicies          []HeldPolicy  // of channels of topics that this broker leads, by topic and channel
}

// HeldPolicy is a policy whose owner may no longer publish to the dead-letter topic. The channel retains its dead
// messages until the owner may, or another user sets the policy.
type HeldPolicy struct {
	Topic           string `json:"topic"`
	Channel         string `json:"channel"`
	DeadLetterTopic string `json:"dead_letter_topic"`
	Owner           string `json:"owner"`
}

// IdleChannel is a channel that is to be deleted because it is unused.
type IdleChannel struct {
	Topic       string `json:"topic"`
	Channel     string `json:"channel"`
	IdleMS      int64  `json:"idle_ms"`       // unused for at least this time
	DeletesAtMS int64  `json:"deletes_at_ms"` // unix ms, by the controller's clock: not deleted before
}

// PlacedDamage is a damaged range of a partition's replica.
type PlacedDamage struct {
	Topic     string     `json:"topic"`
	Partition int        `json:"partition"`
	Damage    DamageView `json:"damage"`
}

// ConsumerStats is a connection with a subscription, or a client that consumes by HTTP requests.
type ConsumerStats struct {
	ClientStats
	LastActivity time.Time    `json:"last_activity"`
	Oldest       *HeldMessage `json:"oldest"` // in flight, or nil
}

// HeldMessage is a message in flight to a client.
type HeldMessage struct {
	ID        MessageID     `json:"id"`
	Partition uint16        `json:"partition"`
	Attempts  uint16        `json:"attempts"` // this delivery included
	For       time.Duration `json:"held_ns"`  // since the delivery; a touch does not change it
}
