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
	// Lags: the channel has messages that are neither finished nor deferred; Oldest is the first. Both for one
	// partition.
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

// ClientStats is one connection of /stats?format=json. Brokers send it to each other. On the wire, by place: append
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

// PubCount counts the messages of a producer to its first topic. On the wire, by place: append only.
type PubCount struct {
	Topic string `json:"topic"`
	Count uint64 `json:"count"`
}
