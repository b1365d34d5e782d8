// Package msgstream is the format in which messages are exported from and imported into a cluster: the stream of
// `nsqctl export`, and the body of POST /v1/topic/append. docs/reference/export-format.md describes it byte by byte.
//
// It reads and writes streams. It contacts no broker and opens no file.
//
// # Invariants
//
//  1. The checksum of a record covers the checksum of the record before it: a record that is altered, removed, repeated
//     or moved is detected at that record or at the next one.
//  2. A stream without its last record, End, is truncated. End has the counts of the whole stream.
//  3. Memory is allocated only for bytes that have arrived, never for a length that the stream claims.
//  4. The format is fixed by golden bytes. A field of a JSON record may be added; a record of an
//     unknown kind is refused.
//
// The package starts no goroutine.
package msgstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

// Magic begins a stream. ContentType is the content type of the body of POST /v1/topic/append.
const (
	Magic       = "LOCKSTEP-EXPORT 1\n"
	ContentType = "application/x-lockstep-messages"
)

// The fields of a message's header that name the message of another cluster of which it is a copy.
const (
	headerOrigin      = "##origin"       // Origin.String
	headerOriginTime  = "##origin_time"  // Origin.TimeNS
	headerOnlyChannel = "##only_channel" // nsqd.HeaderOnlyChannel, which this layer does not import
)

// recordKind numbers the records of a stream. The numbers are in files: append only.
type recordKind uint8

const (
	kindInfo    recordKind = 1 // JSON: Info; the first record
	kindChannel recordKind = 2 // JSON: Channel; between Info and the messages
	kindMessage recordKind = 3 // Message
	kindEnd     recordKind = 4 // JSON: End; the last record
)

// MessageOverhead is the size of a message record without its header and body.
const MessageOverhead = headSize + messageHead + sumSize

const (
	headSize  = 1 + 4 // kind, length
	sumSize   = 4
	maxRecord = 64 << 20 // no batch of a broker is larger

	flagDeferredOnly = 1
	messageHead      = 1 + 2 + 8 + 8 + 8 + 8 + 2 // flags, partition, sequence, time, deadline, trace, length of the header
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Info describes the source of a stream.
type Info struct {
	Cluster    string          `json:"cluster"`
	Topic      string          `json:"topic"`
	TopicID    ident.TopicID   `json:"topic_id"`
	TimeNS     int64           `json:"time"` // unix ns: when the export began
	Build      string          `json:"build,omitempty"`
	Ordered    bool            `json:"ordered,omitempty"`
	Partitions []PartitionInfo `json:"partitions"`
}

// PartitionInfo is the part of a partition's log that a stream contains: the messages from First to End−1.
type PartitionInfo struct {
	First uint64 `json:"first"`
	End   uint64 `json:"end"`
}

// Channel is a channel of the topic when the export began.
type Channel struct {
	Name      string             `json:"channel"`
	Ordered   bool               `json:"ordered,omitempty"`
	Paused    bool               `json:"paused,omitempty"`
	Policy    *option.PolicyView `json:"policy,omitempty"` // without its owner
	Positions []Position         `json:"positions"`
}

// Position is the position of a channel in one partition: every message below Confirmed was finished, or is in
// Deferred.
type Position struct {
	Partition int                `json:"partition"`
	Confirmed uint64             `json:"confirmed"`
	Deferred  []DeferredPosition `json:"deferred,omitempty"`
}

// Low is the first sequence that the channel has not finished.
func (p Position) Low() uint64 {
	low := p.Confirmed
	for _, d := range p.Deferred {
		low = min(low, uint64(d.Sequence))
	}
	return low
}

// DeferredPosition is a message that was delivered or delayed, and not finished.
type DeferredPosition struct {
	Sequence   ident.Sequence `json:"sequence"`
	DeadlineNS int64          `json:"deadline,omitempty"` // unix ns; 0: due
	Attempts   uint16         `json:"attempts,omitempty"`
}

// Message is one message with its position in the source.
type Message struct {
	// DeferredOnly: the log of the topic no longer had the message. It is in the stream because a channel had
	// deferred it.
	DeferredOnly bool
	Partition    uint16
	Sequence     uint64
	TimeNS       int64 // unix ns: when it was published
	DeliverAtNS  int64 // unix ns; 0: at once
	Trace        uint64
	Header       []byte // JSON; nil: none
	Body         []byte
}

// End has the counts of a stream.
type End struct {
	Messages   int64          `json:"messages"`
	BodyBytes  int64          `json:"body_bytes"`
	Partitions []partitionEnd `json:"partitions"`
}

// partitionEnd is the content of one partition. Digest is the SHA-256 of its messages: of each the length of the body
// (8 bytes, big-endian) and the body, in the order of the stream. Messages that are DeferredOnly, and copies for one
// channel (Origin), count in neither field, so an imported topic has the same digest as the stream.
type partitionEnd struct {
	Partition int    `json:"partition"`
	Messages  int64  `json:"messages"`
	Digest    string `json:"digest"`
}

// sum is the checksum of a record, after that of the record before it.
func sum(before uint32, head, payload []byte) uint32 {
	var b [sumSize]byte
	binary.BigEndian.PutUint32(b[:], before)
	crc := crc32.Update(0, castagnoli, b[:])
	crc = crc32.Update(crc, castagnoli, head)
	return crc32.Update(crc, castagnoli, payload)
}

var errTooBig = errors.New("msgstream: the message is too big for a stream")

// AppendMessage appends a message as one record, after a record with the checksum `before`, and returns its checksum.
func AppendMessage(b []byte, before uint32, m *Message) ([]byte, uint32, error) {
	length := messageHead + len(m.Header) + len(m.Body)
	if len(m.Header) > 0xffff || length > maxRecord {
		return b, before, errTooBig
	}
	at := len(b)
	b = append(b, byte(kindMessage))
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	var flags byte
	if m.DeferredOnly {
		flags |= flagDeferredOnly
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint16(b, m.Partition)
	b = binary.BigEndian.AppendUint64(b, m.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(m.TimeNS))
	b = binary.BigEndian.AppendUint64(b, uint64(m.DeliverAtNS))
	b = binary.BigEndian.AppendUint64(b, m.Trace)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Header)))
	b = append(b, m.Header...)
	b = append(b, m.Body...)
	crc := sum(before, b[at:at+headSize], b[at+headSize:])
	return binary.BigEndian.AppendUint32(b, crc), crc, nil
}

// decodeMessage decodes the payload of a message, and shares its memory.
func decodeMessage(p []byte) (m Message, err error) {
	if len(p) < messageHead {
		return m, fmt.Errorf("a message of %d bytes", len(p))
	}
	if p[0] > flagDeferredOnly {
		return m, fmt.Errorf("a message with the unknown flags %#x", p[0])
	}
	m.DeferredOnly = p[0]&flagDeferredOnly != 0
	m.Partition = binary.BigEndian.Uint16(p[1:])
	m.Sequence = binary.BigEndian.Uint64(p[3:])
	m.TimeNS = int64(binary.BigEndian.Uint64(p[11:]))
	m.DeliverAtNS = int64(binary.BigEndian.Uint64(p[19:]))
	m.Trace = binary.BigEndian.Uint64(p[27:])
	end := messageHead + int(binary.BigEndian.Uint16(p[35:]))
	if end > len(p) {
		return m, fmt.Errorf("a header that ends behind its message")
	}
	if end > messageHead {
		m.Header = p[messageHead:end]
	}
	m.Body = p[end:]
	if len(m.Body) == 0 {
		return m, errors.New("a message without a body")
	}
	return m, nil
}
