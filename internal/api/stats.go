package api

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// TopicStats is one topic of /stats?format=json, in NSQ's field order. MessageCount counts since the creation of the
// topic, MessageBytes the bodies that this broker committed since its start.
type TopicStats struct {
	TopicName    string         `json:"topic_name"`
	Channels     []ChannelStats `json:"channels"`
	Depth        int64          `json:"depth"`
	BackendDepth int64          `json:"backend_depth"`
	MessageCount uint64         `json:"message_count"`
	MessageBytes uint64         `json:"message_bytes"`
	Paused       bool           `json:"paused"`
	E2E          E2ELatency     `json:"e2e_processing_latency"`
	// Inherited is MessageCount at the moment when this broker began to lead.
	Inherited uint64 `json:"-"`
}

// ChannelStats is one channel of /stats?format=json.
type ChannelStats struct {
	ChannelName         string        `json:"channel_name"`
	Depth               int64         `json:"depth"`
	BackendDepth        int64         `json:"backend_depth"`
	InFlightCount       int           `json:"in_flight_count"`
	DeferredCount       int           `json:"deferred_count"`
	MessageCount        uint64        `json:"message_count"`
	ZoneLocalMsgCount   uint64        `json:"zone_local_msg_count,omitempty"`
	RegionLocalMsgCount uint64        `json:"region_local_msg_count,omitempty"`
	GlobalMsgCount      uint64        `json:"global_msg_count,omitempty"`
	RequeueCount        uint64        `json:"requeue_count"`
	TimeoutCount        uint64        `json:"timeout_count"`
	ClientCount         int           `json:"client_count"`
	Clients             []ClientStats `json:"clients"`
	Paused              bool          `json:"paused"`
	E2E                 E2ELatency    `json:"e2e_processing_latency"`
	Ordered             bool          `json:"ordered,omitempty"` // beyond NSQ
	Filter              string        `json:"filter,omitempty"`
	FilteredCount       uint64        `json:"filtered_count,omitempty"` // rejected by the filter, or for another channel alone
	ExpiredCount        uint64        `json:"expired_count,omitempty"`  // including those that became dead letters
	Inherited           uint64        `json:"-"`                        // as TopicStats.Inherited
	// Lags: the channel has messages that are neither finished nor deferred; Oldest is the first of them. Both refer to
	// one partition.
	Lags   bool           `json:"-"`
	Oldest ident.Sequence `json:"-"`
	Held   time.Duration  `json:"-"` // age of the oldest message in flight
}

// E2ELatency is never omitted, because nsqadmin dereferences it.
type E2ELatency struct {
	Count       int          `json:"count"`
	Percentiles []Percentile `json:"percentiles"`
}

// Percentile is one quantile in nanoseconds.
type Percentile struct {
	Quantile float64 `json:"quantile"`
	Value    float64 `json:"value"`
}

// OverHTTP is the Version of a client that consumes by HTTP requests.
const OverHTTP = "HTTP"

// ClientStats is one connection of /stats?format=json. Brokers send it to each other. On the wire, by position: append
// only.
type ClientStats struct {
	ClientID                      string     `json:"client_id"`
	Hostname                      string     `json:"hostname"`
	Version                       string     `json:"version"`
	RemoteAddress                 string     `json:"remote_address"`
	State                         int32      `json:"state"`
	ReadyCount                    int64      `json:"ready_count"`
	InFlightCount                 int64      `json:"in_flight_count"`
	MessageCount                  uint64     `json:"message_count"`
	ZoneLocalMsgCount             uint64     `json:"zone_local_msg_count,omitempty"`
	RegionLocalMsgCount           uint64     `json:"region_local_msg_count,omitempty"`
	GlobalMsgCount                uint64     `json:"global_msg_count,omitempty"`
	FinishCount                   uint64     `json:"finish_count"`
	RequeueCount                  uint64     `json:"requeue_count"`
	ConnectTime                   int64      `json:"connect_ts"`
	SampleRate                    int32      `json:"sample_rate"`
	Deflate                       bool       `json:"deflate"`
	Snappy                        bool       `json:"snappy"`
	UserAgent                     string     `json:"user_agent"`
	Authed                        bool       `json:"authed,omitempty"`
	AuthIdentity                  string     `json:"auth_identity,omitempty"`
	AuthIdentityURL               string     `json:"auth_identity_url,omitempty"`
	TopologyZone                  string     `json:"topology_zone"`
	TopologyRegion                string     `json:"topology_region"`
	PubCounts                     []PubCount `json:"pub_counts,omitempty"`
	TLS                           bool       `json:"tls"`
	TLSCipherSuite                string     `json:"tls_cipher_suite"`
	TLSVersion                    string     `json:"tls_version"`
	TLSNegotiatedProtocol         string     `json:"tls_negotiated_protocol"`
	TLSNegotiatedProtocolIsMutual bool       `json:"tls_negotiated_protocol_is_mutual"`
	Relayed                       bool       `json:"-"` // connected to another broker; its counts are for one partition
	Edge                          ident.Node `json:"-"` // the broker of a relayed client that is subscribed to all partitions
}

// PubCount counts the messages of a producer to its first topic. On the wire, by position: append only.
type PubCount struct {
	Topic string `json:"topic"`
	Count uint64 `json:"count"`
}

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
	// The rates of Put and PutBytes per second, set by the console; nil: unknown.
	PutRate   *float64 `json:"w,omitempty"`
	BytesRate *float64 `json:"b,omitempty"`
}

// ChannelSample is the part of a channel that one broker leads, at one moment.
type ChannelSample struct {
	Channel    string             `json:"n"`
	Depth      int64              `json:"d,omitempty"`
	InFlight   int64              `json:"i,omitempty"`
	Deferred   int64              `json:"f,omitempty"`
	Finished   uint64             `json:"-"`           // messages that the channel has passed; comparable under the same condition as the topic's counts
	Requeued   uint64             `json:"q,omitempty"` // since the leadership began; for metrics.Queues by this process
	TimedOut   uint64             `json:"x,omitempty"` // as Requeued
	Filtered   uint64             `json:"-"`           // by this process; only for metrics.Queues
	Expired    uint64             `json:"-"`           // as Filtered
	Clients    int                `json:"s,omitempty"`
	Paused     bool               `json:"p,omitempty"`
	Ordered    bool               `json:"o,omitempty"`
	Lag        time.Duration      `json:"l,omitempty"` // age of the oldest message that is neither finished nor deferred
	Partitions []ChannelPartition `json:"a,omitempty"`
	FinishRate *float64           `json:"r,omitempty"` // rate of Finished per second, set by the console; nil: unknown
}

// ChannelPartition is a channel in one partition. Only a sample of a named channel has it.
type ChannelPartition struct {
	Partition  uint16         `json:"partition"`
	Depth      int64          `json:"depth"`
	InFlight   int64          `json:"in_flight"`
	Deferred   int64          `json:"deferred"`
	Lags       bool           `json:"lags"`               // it has a message that is neither finished nor deferred
	Oldest     ident.Sequence `json:"confirmed_sequence"` // the first such message; the end if there is none
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
	Known  bool          `json:"known"`        // the next two fields are known
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
	IdleChannels          []IdleChannel // channels that this broker, as the controller, will delete, in this order
	HeldPolicies          []HeldPolicy  // held policies of channels of topics that this broker leads, by topic and channel
}

// HeldPolicy is a policy whose owner may no longer publish to the dead-letter topic. The channel retains its dead
// messages until the owner has the right again or another user sets the policy.
type HeldPolicy struct {
	Topic           string `json:"topic"`
	Channel         string `json:"channel"`
	DeadLetterTopic string `json:"dead_letter_topic"`
	Owner           string `json:"owner"`
}

// IdleChannel is a channel that will be deleted because it is unused.
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
