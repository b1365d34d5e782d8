package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// ErrFrame means that a peer's frame violates the format in doc.go.
var ErrFrame = errors.New("gateway: malformed frame")

// The sizes of the fixed records, in bytes.
const (
	PutSize      = 52
	ReplySize    = 40
	DeliverySize = 64
	VerbSize     = 40
)

// Bounds of what one broker sends another.
const (
	MaxItems = 512     // records in one frame
	MaxBytes = 1 << 20 // bytes in one frame, unless a single item is larger
	MaxName  = 128     // length of a topic's or channel's name in an opening
)

// frameKind is the kind of the records in the payload's table. The numbers are on the wire.
type frameKind uint8

// FramePuts and FrameReplies are kinds of ClassForward, the others of ClassRelay.
const (
	FramePuts    frameKind = 1
	FrameReplies frameKind = 2
	FrameOpen    frameKind = 3
	FrameDeliver frameKind = 4
	FrameVerbs   frameKind = 5
)

// Header is the header of a frame. Its beginning is the kind as a byte and the count as uvarint; Hints or Open follow
// as msgpack. On the wire, by position: append only.
type Header struct {
	Kind  frameKind
	Count int
	Hints []Hint   // only with FrameReplies
	Open  *Opening // only with FrameOpen; the table lists the messages that the client holds
}

// AppendBinary implements encoding.BinaryAppender.
func (h Header) AppendBinary(b []byte) ([]byte, error) {
	b = binary.AppendUvarint(append(b, byte(h.Kind)), uint64(h.Count))
	var more []byte
	var err error
	switch {
	case h.Open != nil:
		more, err = rpc.Marshal(h.Open)
	case len(h.Hints) > 0:
		more, err = rpc.Marshal(h.Hints)
	}
	return append(b, more...), err
}

// Decode reads a header that a peer has sent.
func (h *Header) Decode(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("%w: no header", ErrFrame)
	}
	n, size := binary.Uvarint(b[1:])
	if size <= 0 || n > math.MaxInt32 {
		return fmt.Errorf("%w: count of kind %d", ErrFrame, b[0])
	}
	h.Kind, h.Count = frameKind(b[0]), int(n)
	switch b = b[1+size:]; {
	case len(b) == 0:
		return nil
	case h.Kind == FrameOpen:
		return rpc.Unmarshal(b, &h.Open)
	}
	return rpc.Unmarshal(b, &h.Hints)
}

// Hint is the leadership of a partition as known to the sender of a NotLeader. On the wire, by position: append only.
type Hint struct {
	Topic       ident.TopicID
	Partition   uint16
	Node        ident.Node
	Incarnation ident.Incarnation
	Epoch       ident.Epoch
}

// Opening asks a leader for a stream. On the wire, by position: append only.
type Opening struct {
	Stream       uint64
	Replaces     uint64 // the stream that it replaces; 0 = none
	Topic        uint64
	TopicName    string
	Partition    uint16
	Channel      string
	MsgTimeoutMS int64
	SampleRate   int32
	Credit       int
	Client       rpc.Bytes // an api.ClientStats, the connection behind the stream, as JSON
	Ordered      bool      // used if the channel has to be created
	Partial      bool      // the client is subscribed to this partition alone
}

// Put is one forwarded put. On the wire, by position: append only.
type Put struct {
	Request    ident.RequestID
	Partition  ident.Partition
	Epoch      ident.Epoch
	Attempt    uint32
	Count      uint32
	CRC        uint32
	Length     uint32
	Identified bool // some messages have identities (queue.Identity)
}

const flagIdentified = 1 // a flag of a Put. On the wire: append only.

// AppendPut appends a record of PutSize bytes.
func AppendPut(b []byte, r Put) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, r.Request.Producer)
	b = le.AppendUint64(b, r.Request.N)
	b = le.AppendUint64(b, uint64(r.Partition.Topic))
	b = le.AppendUint64(b, uint64(r.Epoch))
	b = le.AppendUint32(b, r.Attempt)
	b = le.AppendUint32(b, r.Count)
	b = le.AppendUint32(b, r.CRC)
	b = le.AppendUint32(b, r.Length)
	b = le.AppendUint16(b, r.Partition.Number)
	var flags byte
	if r.Identified {
		flags = flagIdentified
	}
	return append(b, flags, 0)
}

// DecodePut reads a record of PutSize bytes.
func DecodePut(b []byte) Put {
	le := binary.LittleEndian
	return Put{
		Request:   ident.RequestID{Producer: le.Uint64(b), N: le.Uint64(b[8:])},
		Partition: ident.Partition{Topic: ident.TopicID(le.Uint64(b[16:])), Number: le.Uint16(b[48:])},
		Epoch:     ident.Epoch(le.Uint64(b[24:])),
		Attempt:   le.Uint32(b[32:]),
		Count:     le.Uint32(b[36:]),
		CRC:       le.Uint32(b[40:]),
		Length:    le.Uint32(b[44:]),

		Identified: b[50]&flagIdentified != 0,
	}
}

// Reply is the answer to one forwarded put. On the wire, by position: append only.
type Reply struct {
	Request   ident.RequestID
	Partition ident.Partition
	First     ident.Sequence // or the numbers of "not enough replicas": see ResultOf
	Attempt   uint32
	Outcome   outcome.Outcome
}

const shortageBits = 32 // the position of the minimum in the result of "not enough replicas"

// ResultOf is the result of a reply beside the outcome: the sequence of a stored put, or of "not enough replicas" the
// two numbers, the minimum in the upper half.
func ResultOf(c outcome.Completion) ident.Sequence {
	if c.Outcome == outcome.NotEnoughReplicas {
		return ident.Sequence(uint64(c.Minimum)<<shortageBits | uint64(uint32(c.InSync)))
	}
	return c.First
}

// Completion is the answer of the leader's machine.
func (r *Reply) Completion() outcome.Completion {
	if r.Outcome == outcome.NotEnoughReplicas {
		n := uint64(r.First)
		return outcome.Completion{Outcome: r.Outcome, InSync: int(uint32(n)), Minimum: int(n >> shortageBits)}
	}
	return outcome.Completion{Outcome: r.Outcome, First: r.First}
}

// AppendReply appends a record of ReplySize bytes.
func AppendReply(b []byte, r Reply) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, r.Request.Producer)
	b = le.AppendUint64(b, r.Request.N)
	b = le.AppendUint64(b, uint64(r.Partition.Topic))
	b = le.AppendUint64(b, uint64(r.First))
	b = le.AppendUint32(b, r.Attempt)
	b = le.AppendUint16(b, r.Partition.Number)
	return append(b, byte(r.Outcome), 0)
}

// DecodeReply reads a record of ReplySize bytes.
func DecodeReply(b []byte) Reply {
	le := binary.LittleEndian
	return Reply{
		Request:   ident.RequestID{Producer: le.Uint64(b), N: le.Uint64(b[8:])},
		Partition: ident.Partition{Topic: ident.TopicID(le.Uint64(b[16:])), Number: le.Uint16(b[36:])},
		First:     ident.Sequence(le.Uint64(b[24:])),
		Attempt:   le.Uint32(b[32:]),
		Outcome:   outcome.Outcome(b[38]),
	}
}

// VerbKind is the kind of a statement about one stream or one delivery. The numbers are on the wire.
type VerbKind uint8

// The verbs, each with its direction and its argument.
const (
	VerbFinish  VerbKind = 1  // edge → leader
	VerbRequeue VerbKind = 2  // edge → leader; argument: delay in ms, Unseen, Left or Kept
	VerbTouch   VerbKind = 3  // edge → leader
	VerbHeld    VerbKind = 4  // in an opening; argument: its remaining timeout in ms, 0: the whole timeout
	VerbCredit  VerbKind = 5  // edge → leader; argument: the credit
	VerbClose   VerbKind = 6  // edge → leader; argument: a Leaving
	VerbRevoked VerbKind = 7  // leader → edge: the message timed out or was emptied, and no longer belongs to the client
	VerbGone    VerbKind = 8  // leader → edge: the leader has no such stream; open it again
	VerbDeleted VerbKind = 9  // leader → edge: the channel was deleted
	VerbMissing VerbKind = 10 // leader → edge: the leader does not have the channel (not yet, or no longer)
	VerbRefused VerbKind = 16 // added to a finish, requeue or touch that was not possible
)

// Arguments of a requeue without a delay.
const (
	Unseen = -1 // the message was not sent to the client: the delivery does not count as an attempt
	Left   = -2 // the client has left
	Kept   = -3 // the client has left, and the message waits for its timeout
)

var verbNames = map[VerbKind]string{VerbFinish: "FIN", VerbRequeue: "REQ", VerbTouch: "TOUCH"}

// String is the verb of the protocol; "" for the verbs between brokers.
func (k VerbKind) String() string { return verbNames[k&^VerbRefused] }

// Leaving is the fate of the messages that a stream has in flight when it ends. The numbers are arguments of VerbClose
// on the wire.
type Leaving int64

// The ends of a stream.
const (
	LeaveHeld      Leaving = 0 // they wait for their timeouts
	LeaveRequeued  Leaving = 1 // the messages are requeued at once, because the client has left
	LeaveWithdrawn Leaving = 2 // as before, but the client is not the cause: no attempt is counted
)

// Verb is one statement about a stream. On the wire, by position: append only.
type Verb struct {
	Kind     VerbKind
	Stream   uint64
	Sequence ident.Sequence
	Epoch    ident.Epoch
	Argument int64
	Number   uint64 // together with the epoch it identifies the delivery
	Attempts uint16 // of the delivery; 0: unknown
}

// VerbOf is a verb about a delivery.
func VerbOf(kind VerbKind, stream uint64, d *api.Delivery) Verb {
	return Verb{Kind: kind, Stream: stream, Sequence: d.Message.Seq, Epoch: d.Epoch, Number: d.Number, Attempts: d.Message.Attempts}
}

// AppendVerb appends a record of VerbSize bytes.
func AppendVerb(b []byte, v Verb) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, v.Stream)
	b = le.AppendUint64(b, uint64(v.Sequence))
	b = le.AppendUint64(b, uint64(v.Argument))
	b = le.AppendUint32(b, uint32(v.Epoch))
	b = append(b, byte(v.Kind), 0)
	b = le.AppendUint16(b, v.Attempts)
	return le.AppendUint64(b, v.Number)
}

func decodeVerb(b []byte) Verb {
	le := binary.LittleEndian
	return Verb{
		Stream:   le.Uint64(b),
		Sequence: ident.Sequence(le.Uint64(b[8:])),
		Argument: int64(le.Uint64(b[16:])),
		Epoch:    ident.Epoch(le.Uint32(b[24:])),
		Kind:     VerbKind(b[28]),
		Attempts: le.Uint16(b[30:]),
		Number:   le.Uint64(b[32:]),
	}
}

// AppendDelivery appends a record of DeliverySize bytes. The caller sends the header and the body of the message.
func AppendDelivery(b []byte, stream uint64, d *api.Delivery) []byte {
	le, m := binary.LittleEndian, &d.Message
	b = le.AppendUint64(b, stream)
	b = le.AppendUint64(b, uint64(m.Seq))
	b = le.AppendUint64(b, uint64(d.Epoch))
	b = le.AppendUint64(b, uint64(m.Time))
	b = le.AppendUint64(b, m.Trace)
	b = le.AppendUint32(b, uint32(len(m.Header)))
	b = le.AppendUint32(b, uint32(len(m.Body)))
	b = le.AppendUint16(b, m.Attempts)
	b = append(b, 0, 0, 0, 0, 0, 0)
	return le.AppendUint64(b, d.Number)
}

// DecodeDelivery reads one record and cuts the message's bytes off the front of rest. The caller fills in the partition
// and the id from the stream.
func DecodeDelivery(b, rest []byte) (stream uint64, d api.Delivery, after []byte, err error) {
	le := binary.LittleEndian
	header, body := uint64(le.Uint32(b[40:])), uint64(le.Uint32(b[44:]))
	if header+body > uint64(len(rest)) {
		return 0, d, nil, fmt.Errorf("%w: a delivery is cut short", ErrFrame)
	}
	d.Epoch, d.Number = ident.Epoch(le.Uint64(b[16:])), le.Uint64(b[56:])
	d.Message = queue.Message{
		Seq:      ident.Sequence(le.Uint64(b[8:])),
		Time:     int64(le.Uint64(b[24:])),
		Trace:    le.Uint64(b[32:]),
		Attempts: le.Uint16(b[48:]),
		Header:   rest[:header:header],
		Body:     rest[header : header+body : header+body],
	}
	if header == 0 {
		d.Message.Header = nil
	}
	return le.Uint64(b), d, rest[header+body:], nil
}

// Table splits a payload into count records of the given size and the rest.
func Table(payload []byte, count, size int) (records, rest []byte, err error) {
	if count < 0 || count > len(payload)/size {
		return nil, nil, fmt.Errorf("%w: %d records of %d bytes in %d", ErrFrame, count, size, len(payload))
	}
	return payload[:count*size], payload[count*size:], nil
}

// DecodeVerbs decodes a whole table of verbs.
func DecodeVerbs(payload []byte, count int) ([]Verb, error) {
	records, rest, err := Table(payload, count, VerbSize)
	if err != nil {
		return nil, err
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes after the verbs", ErrFrame, len(rest))
	}
	out := make([]Verb, 0, count)
	for ; len(records) > 0; records = records[VerbSize:] {
		out = append(out, decodeVerb(records))
	}
	return out, nil
}
