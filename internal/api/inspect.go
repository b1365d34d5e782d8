package api

import (
	"context"
	"encoding/json"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Inspector reads replicas and changes no channel. Errors wrap ErrTopicNotFound, ErrBrokerNotFound, ErrInvalid and
// ErrUnavailable.
type Inspector interface {
	// Peek reads messages, also of a replica on another broker.
	Peek(ctx context.Context, r PeekRequest) (Peeked, error)
	// Digest reads the checksums of the batches of a replica on this broker.
	Digest(r DigestRequest) (Digest, error)
}

// PeekRequest asks for committed messages of a replica.
type PeekRequest struct {
	Topic     string
	Partition uint16
	From      string // earliest, latest, a unix time in ns or a sequence
	Limit     int
	Node      ident.Node // whose replica is read; "": any
	// Uncommitted reads to the end of the replica's log, even of a replica that is refused or has no leader. Valid only
	// with Node.
	Uncommitted bool
	// Leader: the broker answers only while it leads, so that no committed message is missing. Another replica may not
	// have the committed end yet.
	Leader bool
}

// Peeked are messages of a replica, consumed or not. Start is the first retained message. End is after the last
// committed message (with Uncommitted: after the last message). Next is where the next answer begins. Mark identifies
// the log below the first requested message, NextMark below Next: logs with equal marks at a sequence have the same
// messages below it. "": the log does not have that message.
type Peeked struct {
	Start    ident.Sequence  `json:"start"`
	End      ident.Sequence  `json:"end"`
	Next     ident.Sequence  `json:"next"`
	Messages []PeekedMessage `json:"messages"`
	Mark     string          `json:"mark,omitempty"`
	NextMark string          `json:"next_mark,omitempty"`
}

// PeekedMessage is one message. Body is set if it is text, otherwise Bytes.
type PeekedMessage struct {
	ID        string          `json:"id"`
	Partition uint16          `json:"partition"`
	Sequence  ident.Sequence  `json:"sequence"`
	Time      int64           `json:"timestamp"`
	DeliverAt int64           `json:"deliver_at,omitempty"`
	Header    json.RawMessage `json:"header,omitempty"`
	Body      string          `json:"body,omitempty"`
	Bytes     []byte          `json:"body_base64,omitempty"`
	Trace     uint64          `json:"trace,omitempty"`
	// HeaderBytes is the stored header, if Header differs: JSON loses its white space.
	HeaderBytes []byte `json:"header_base64,omitempty"`
}

// DigestRequest asks for the checksums of a replica from an offset on.
type DigestRequest struct {
	Topic     string
	Partition uint16
	From      int64
}

// Digest lists the batches on a replica's disk up to its committed end. Equal digests mean equal bytes, because each
// batch's checksum covers its predecessor's. The following digest begins at Next; the last one ends at Committed.
type Digest struct {
	Node      ident.Node    `json:"node"`
	Store     ident.StoreID `json:"store"`
	Role      string        `json:"role"`
	Epoch     ident.Epoch   `json:"epoch"`
	Start     int64         `json:"start"`
	Committed int64         `json:"committed"`
	End       int64         `json:"end"`
	Next      int64         `json:"next"`
	Batches   []BatchDigest `json:"batches"`

	CommittedSequence ident.Sequence `json:"committed_sequence"`
	EndSequence       ident.Sequence `json:"end_sequence"`
}

// BatchDigest is one batch: [offset, bytes, epoch, crc].
type BatchDigest struct {
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Epoch  uint64 `json:"epoch"`
	CRC    uint32 `json:"crc"`
}

// Tracer finds the state of one message in the log and the channels of its leader.
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
	TraceSkipped  = "not for the channel" // the filter rejects it, or it is for another channel alone
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
	Time      int64           `json:"timestamp,omitempty"` // unix ns of the put, if the log has the message
	DeliverAt int64           `json:"deliver_at,omitempty"`
	Bytes     int             `json:"bytes,omitempty"` // of the body
	Header    json.RawMessage `json:"header,omitempty"`
	Leader    ident.Node      `json:"leader"`
	Epoch     ident.Epoch     `json:"epoch"`
	Replicas  []ident.Node    `json:"replicas"`
	ISR       []ident.Node    `json:"isr"`
	Committed ident.Sequence  `json:"committed_sequence"`
	Channels  []ChannelTrace  `json:"channels"` // of a committed message, even of one that was removed
}

// ChannelTrace is the state of a message in one channel.
type ChannelTrace struct {
	Channel  string   `json:"channel"`
	State    string   `json:"state"`
	Attempts uint16   `json:"attempts,omitempty"` // so far
	Deadline int64    `json:"deadline,omitempty"` // unix ns: of the delivery, or of the delay
	Clients  []string `json:"clients,omitempty"`  // addresses of the consumers to which it is in flight
}
