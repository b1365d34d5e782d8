package api

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// TopicSample is the part of a topic that one broker leads, at one moment. The consoles of two brokers exchange it: a table has
// thousands of idle topics, so its names are short. A new field has a new name.
type TopicSample struct {
	Topic string `json:"t"`
	// Leadership changes with the led partitions and their epochs. Counts of samples with different ones are not
	// comparable.
	Leadership uint64          `json:"-"`
	Messages   uint64          `json:"m,omitempty"` // since the creation of the topic
	Put        uint64          `json:"-"`           // messages committed by this process
	PutBytes   uint64          `json:"-"`           // of their bodies
	Depth      int64           `json:"d,omitempty"` // messages that no channel has received
	Paused     bool            `json:"p,omitempty"`
	KeptBytes  int64           `json:"k,omitempty"` // of one copy of the logs
	Channels   []ChannelSample `json:"c,omitempty"`
	// The console sets the rates a second: of Put and PutBytes; nil: unknown.
	PutRate   *float64 `json:"w,omitempty"`
	BytesRate *float64 `json:"b,omitempty"`
}

// ChannelSample is the part of a channel that one broker leads, at one moment.
type ChannelSample struct {
	Channel    string             `json:"n"`
	Depth      int64              `json:"d,omitempty"`
	InFlight   int64              `json:"i,omitempty"`
	Deferred   int64              `json:"f,omitempty"`
	Finished   uint64             `json:"-"`           // messages that the channel has passed; comparable as counts of the topic
	Requeued   uint64             `json:"q,omitempty"` // since the leadership began; for metrics.Queues by this process
	TimedOut   uint64             `json:"x,omitempty"` // as Requeued
	Filtered   uint64             `json:"-"`           // by this process; only for metrics.Queues
	Expired    uint64             `json:"-"`           // as Filtered
	Clients    int                `json:"s,omitempty"`
	Paused     bool               `json:"p,omitempty"`
	Ordered    bool               `json:"o,omitempty"`
	Lag        time.Duration      `json:"l,omitempty"` // age of the oldest message that is neither finished nor deferred
	Partitions []ChannelPartition `json:"a,omitempty"`
	FinishRate *float64           `json:"r,omitempty"` // of Finished a second; the console sets it; nil: unknown
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
