package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// errFrame means that a peer's frame is not what doc.go says.
var errFrame = errors.New("gateway: malformed frame")

const (
	putSize     = 52
	replySize   = 40
	deliverSize = 56
	verbSize    = 32

	// maxFrameItems and maxFrameBytes bound what is gathered into one frame.
	maxFrameItems = 512
	maxFrameBytes = 1 << 20
)

// frameKind says what the payload's table holds. The numbers are on the wire.
type frameKind uint8

const (
	framePuts     frameKind = 1
	frameReplies  frameKind = 2
	frameOpen     frameKind = 3
	frameDeliver  frameKind = 4
	frameVerbs    frameKind = 5
	maxStreamName           = 128 // longest topic or channel name a peer may send
)

// forwardHeader is the header of ClassForward; hints come with replies.
type forwardHeader struct {
	Kind  frameKind
	Count int
	Hints []hint
}

// AppendBinary implements encoding.BinaryAppender.
func (h forwardHeader) AppendBinary(b []byte) ([]byte, error) {
	b = appendHeader(b, h.Kind, h.Count)
	if len(h.Hints) == 0 {
		return b, nil
	}
	more, err := rpc.Marshal(h.Hints)
	return append(b, more...), err
}

func (h *forwardHeader) decode(b []byte) (err error) {
	if h.Kind, h.Count, b, err = cutHeader(b); err == nil && len(b) > 0 {
		err = rpc.Unmarshal(b, &h.Hints)
	}
	return err
}

// appendHeader begins every header: a byte for the kind, the count as uvarint.
// What few frames need beside it follows as msgpack, in structs whose fields are
// only ever added at the end.
func appendHeader(b []byte, k frameKind, count int) []byte {
	return binary.AppendUvarint(append(b, byte(k)), uint64(count))
}

func cutHeader(b []byte) (k frameKind, count int, rest []byte, err error) {
	if len(b) == 0 {
		return 0, 0, nil, fmt.Errorf("%w: no header", errFrame)
	}
	n, size := binary.Uvarint(b[1:])
	if size <= 0 || n > math.MaxInt32 {
		return 0, 0, nil, fmt.Errorf("%w: count of kind %d", errFrame, b[0])
	}
	return frameKind(b[0]), int(n), b[1+size:], nil
}

// hint is what the sender of a NotLeader knows of a partition's leader.
type hint struct {
	Topic       uint64
	Partition   uint16
	Node        string
	Incarnation int64
	Epoch       uint64
}

// relayHeader is the header of ClassRelay. Open is set with frameOpen; the
// table then lists what the subscription still holds.
type relayHeader struct {
	Kind  frameKind
	Count int
	Open  *opening
}

// AppendBinary implements encoding.BinaryAppender.
func (h relayHeader) AppendBinary(b []byte) ([]byte, error) {
	b = appendHeader(b, h.Kind, h.Count)
	if h.Open == nil {
		return b, nil
	}
	more, err := rpc.Marshal(h.Open)
	return append(b, more...), err
}

func (h *relayHeader) decode(b []byte) (err error) {
	if h.Kind, h.Count, b, err = cutHeader(b); err == nil && len(b) > 0 {
		err = rpc.Unmarshal(b, &h.Open)
	}
	return err
}

// opening asks a leader for a stream.
type opening struct {
	Stream       uint64
	Replaces     uint64 // the stream it takes the place of; 0 = none
	Topic        uint64
	TopicName    string
	Partition    uint16
	Channel      string
	MsgTimeoutMS int64
	SampleRate   int32
	Credit       int
	Client       edge.ClientStats
	Ordered      bool // if the channel has to be made
}

// putRecord is one forwarded put.
type putRecord struct {
	Request   ident.RequestID
	Partition ident.Partition
	Epoch     ident.Epoch
	Attempt   uint32
	Count     uint32
	CRC       uint32
	Length    uint32
}

func appendPut(b []byte, r putRecord) []byte {
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
	return append(b, 0, 0)
}

func decodePut(b []byte) putRecord {
	le := binary.LittleEndian
	return putRecord{
		Request:   ident.RequestID{Producer: le.Uint64(b), N: le.Uint64(b[8:])},
		Partition: ident.Partition{Topic: ident.TopicID(le.Uint64(b[16:])), Number: le.Uint16(b[48:])},
		Epoch:     ident.Epoch(le.Uint64(b[24:])),
		Attempt:   le.Uint32(b[32:]),
		Count:     le.Uint32(b[36:]),
		CRC:       le.Uint32(b[40:]),
		Length:    le.Uint32(b[44:]),
	}
}

// reply is the answer to one forwarded put.
type reply struct {
	Request   ident.RequestID
	Partition ident.Partition
	First     ident.Sequence
	Attempt   uint32
	Outcome   replica.Outcome
}

func appendReply(b []byte, r reply) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, r.Request.Producer)
	b = le.AppendUint64(b, r.Request.N)
	b = le.AppendUint64(b, uint64(r.Partition.Topic))
	b = le.AppendUint64(b, uint64(r.First))
	b = le.AppendUint32(b, r.Attempt)
	b = le.AppendUint16(b, r.Partition.Number)
	return append(b, byte(r.Outcome), 0)
}

func decodeReply(b []byte) reply {
	le := binary.LittleEndian
	return reply{
		Request:   ident.RequestID{Producer: le.Uint64(b), N: le.Uint64(b[8:])},
		Partition: ident.Partition{Topic: ident.TopicID(le.Uint64(b[16:])), Number: le.Uint16(b[36:])},
		First:     ident.Sequence(le.Uint64(b[24:])),
		Attempt:   le.Uint32(b[32:]),
		Outcome:   replica.Outcome(b[38]),
	}
}

// verbKind numbers what is said about one stream or one delivery. The numbers
// are on the wire.
type verbKind uint8

const (
	verbFinish  verbKind = 1  // edge → leader
	verbRequeue verbKind = 2  // edge → leader; argument: delay in ms, or unseen, left or kept
	verbTouch   verbKind = 3  // edge → leader
	verbHeld    verbKind = 4  // in an opening; argument: attempts, 0: not known here
	verbCredit  verbKind = 5  // edge → leader; argument: the credit
	verbClose   verbKind = 6  // edge → leader; argument: a leaving
	verbTaken   verbKind = 7  // leader → edge: timed out or emptied, no longer the client's
	verbGone    verbKind = 8  // leader → edge: no such stream here; open it again
	verbDeleted verbKind = 9  // leader → edge: the channel was deleted
	verbMissing verbKind = 10 // leader → edge: the channel is not known here (yet, or any more)
	// verbRefused is added to a finish, requeue or touch that was not possible.
	verbRefused verbKind = 16
)

// unseen as the argument of a requeue: the client has not seen the message, so
// this delivery does not count as an attempt.
const unseen = -1

// left as the argument of a requeue: the client that was sent the message has left.
const left = -2

// kept as the argument of a requeue: likewise, and it waits for its timeout.
const kept = -3

// String is the verb as clients know it.
func (k verbKind) String() string {
	switch k &^ verbRefused {
	case verbFinish:
		return "FIN"
	case verbRequeue:
		return "REQ"
	case verbTouch:
		return "TOUCH"
	}
	return fmt.Sprintf("verb(%d)", uint8(k))
}

// leaving says what becomes of what a stream has in flight when it ends. The
// numbers are arguments of verbClose on the wire.
type leaving int64

const (
	leaveHeld leaving = 0 // it waits for its timeout
	requeued  leaving = 1 // it goes back at once: the client has left
	withdrawn leaving = 2 // likewise, but not by the client's doing: no attempt is counted
)

// detach ends a subscriber's attachment.
func (l leaving) detach(c *nsqd.Channel, s *nsqd.Subscriber) {
	if l == withdrawn {
		c.Withdraw(s)
		return
	}
	c.Detach(s, l == requeued)
}

// verb is one statement about a stream.
type verb struct {
	Kind     verbKind
	Stream   uint64
	Sequence ident.Sequence
	Epoch    ident.Epoch
	Argument int64
}

func appendVerb(b []byte, v verb) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, v.Stream)
	b = le.AppendUint64(b, uint64(v.Sequence))
	b = le.AppendUint64(b, uint64(v.Argument))
	b = le.AppendUint32(b, uint32(v.Epoch))
	return append(b, byte(v.Kind), 0, 0, 0)
}

func decodeVerb(b []byte) verb {
	le := binary.LittleEndian
	return verb{
		Stream:   le.Uint64(b),
		Sequence: ident.Sequence(le.Uint64(b[8:])),
		Argument: int64(le.Uint64(b[16:])),
		Epoch:    ident.Epoch(le.Uint32(b[24:])),
		Kind:     verbKind(b[28]),
	}
}

func appendDelivery(b []byte, stream uint64, d *edge.Delivery) []byte {
	le, m := binary.LittleEndian, &d.Message
	b = le.AppendUint64(b, stream)
	b = le.AppendUint64(b, uint64(m.Seq))
	b = le.AppendUint64(b, uint64(d.Epoch))
	b = le.AppendUint64(b, uint64(m.Time))
	b = le.AppendUint64(b, m.Trace)
	b = le.AppendUint32(b, uint32(len(m.Header)))
	b = le.AppendUint32(b, uint32(len(m.Body)))
	b = le.AppendUint16(b, m.Attempts)
	return append(b, 0, 0, 0, 0, 0, 0)
}

// decodeDelivery reads one record and cuts its bytes off the front of rest.
// The partition and the id are the stream's to fill in.
func decodeDelivery(b, rest []byte) (stream uint64, d edge.Delivery, after []byte, err error) {
	le := binary.LittleEndian
	header, body := uint64(le.Uint32(b[40:])), uint64(le.Uint32(b[44:]))
	if header+body > uint64(len(rest)) {
		return 0, d, nil, fmt.Errorf("%w: a delivery is cut short", errFrame)
	}
	d.Epoch = ident.Epoch(le.Uint64(b[16:]))
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

// table splits a payload into Count records of the given size and the rest.
func table(payload []byte, count, size int) (records, rest []byte, err error) {
	if count < 0 || count > len(payload)/size {
		return nil, nil, fmt.Errorf("%w: %d records of %d bytes in %d", errFrame, count, size, len(payload))
	}
	return payload[:count*size], payload[count*size:], nil
}

// verbs decodes a whole table of verbs.
func verbs(payload []byte, count int) ([]verb, error) {
	records, rest, err := table(payload, count, verbSize)
	if err != nil {
		return nil, err
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes after the verbs", errFrame, len(rest))
	}
	out := make([]verb, 0, count)
	for ; len(records) > 0; records = records[verbSize:] {
		out = append(out, decodeVerb(records))
	}
	return out, nil
}
