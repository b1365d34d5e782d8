package api

import (
	"context"
	"encoding/json"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Tracer gives the state of one message, from the log and the channels of its leader. Nothing is recorded for it.
type Tracer interface {
	// Trace errors wrap ErrTopicNotFound, ErrInvalid and ErrUnavailable.
	Trace(ctx context.Context, topic string, id MessageID) (MessageTrace, error)
}

// The states of a message in the log.
const (
	TraceCommitted = "committed" // durable on every in-sync replica
	TraceStored    = "stored"    // in the leader's log, not committed yet
	TraceRemoved   = "removed"   // by retention
	TraceAbsent    = "absent"    // the log has no such message
)

// The states of a message in a channel.
const (
	TraceBefore   = "before the channel" // the channel began after it
	TraceWaiting  = "waiting"            // for a consumer
	TraceInFlight = "in flight"
	TraceDeferred = "deferred"            // until its deadline
	TraceSkipped  = "not for the channel" // its filter rejects the message, or the message is for another channel alone
	TraceDying    = "moving to the dead letters"
	TraceFinished = "finished" // by a consumer, the dead letters, empty, seek, or because of its time to live
)

// MessageTrace is the state of one message. Replicas and ISR are those of the partition now.
type MessageTrace struct {
	ID        string          `json:"id"`
	Topic     string          `json:"topic"`
	Partition uint16          `json:"partition"`
	Sequence  ident.Sequence  `json:"sequence"`
	State     string          `json:"state"`
	Time      int64           `json:"timestamp,omitempty"` // unix ns of the put; of a message that the log has
	DeliverAt int64           `json:"deliver_at,omitempty"`
	Bytes     int             `json:"bytes,omitempty"` // of the body
	Header    json.RawMessage `json:"header,omitempty"`
	Leader    ident.Node      `json:"leader"`
	Epoch     ident.Epoch     `json:"epoch"`
	Replicas  []ident.Node    `json:"replicas"`
	ISR       []ident.Node    `json:"isr"`
	Committed ident.Sequence  `json:"committed_sequence"`
	Channels  []ChannelTrace  `json:"channels"` // of a committed message, also of one that was removed
}

// ChannelTrace is the state of a message in one channel.
type ChannelTrace struct {
	Channel  string   `json:"channel"`
	State    string   `json:"state"`
	Attempts uint16   `json:"attempts,omitempty"` // so far
	Deadline int64    `json:"deadline,omitempty"` // unix ns: of the delivery, or of the delay
	Clients  []string `json:"clients,omitempty"`  // addresses of the consumers that it is in flight to
}
