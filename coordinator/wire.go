package coordinator

import (
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// errFrame means that a peer sent what is no replica message; it is dropped.
var errFrame = errors.New("coordinator: not a replica message")

// Flags of a message header.
const (
	flagReject   = 1
	flagNeedFull = 2
	flagFull     = 4
	flagRestart  = 8
)

// messageHeader is a replica.Message on the wire, without its batches: a
// msgpack array of its fields in this order; new ones go to the end. The batches
// follow as the frame's payload, one after the other, byte for byte as they lie
// in the log. The sender's incarnation is the connection's.
type messageHeader struct {
	Topic     uint64
	Number    uint16
	Kind      uint8
	Flags     uint8
	Epoch     uint64
	To        uint64
	Store     uint64
	PrevCRC   uint32
	Prev      wirePosition
	Committed wirePosition
	Durable   wirePosition
	ConfirmN  uint64
	LastEpoch uint64
	Epochs    []wireEpoch
	Confirm   *wireConfirm
}

// wirePosition is {offset, sequence}.
type wirePosition [2]uint64

// wireEpoch is {epoch, start offset, start sequence, end offset, end sequence}.
type wireEpoch [5]uint64

type wireConfirm struct {
	Epoch uint64
	N     uint64
	Delta []byte
}

// encodeMessage makes the frame of one envelope. The batches' bytes are shared,
// not copied.
func encodeMessage(p ident.Partition, env *replica.Envelope) rpc.Frame {
	m := &env.Msg
	h := &messageHeader{
		Topic: uint64(p.Topic), Number: p.Number, Kind: uint8(m.Kind), Epoch: uint64(m.Epoch),
		To: uint64(m.To), Store: uint64(m.Store), PrevCRC: m.PrevCRC,
		Prev: toWire(m.Prev), Committed: toWire(m.Committed), Durable: toWire(m.Durable),
		ConfirmN: m.ConfirmN, LastEpoch: uint64(m.LastEpoch), Flags: flagsOf(m),
	}
	for _, e := range m.Epochs {
		h.Epochs = append(h.Epochs, wireEpoch{uint64(e.Epoch), uint64(e.Start.Offset), uint64(e.Start.Sequence),
			uint64(e.End.Offset), uint64(e.End.Sequence)})
	}
	if m.Confirm.N != 0 {
		h.Confirm = &wireConfirm{Epoch: uint64(m.Confirm.Epoch), N: m.Confirm.N, Delta: m.Confirm.Delta}
	}
	f := rpc.Frame{Class: rpc.ClassReplica, Header: h}
	if env.Bulk {
		f.Class = rpc.ClassBulk
	}
	if len(m.Batches) > 0 {
		f.Payload = make([][]byte, len(m.Batches))
		for i := range m.Batches {
			f.Payload[i] = m.Batches[i].Bytes
		}
	}
	return f
}

func flagsOf(m *replica.Message) (flags uint8) {
	if m.Reject {
		flags |= flagReject
	}
	if m.NeedFull {
		flags |= flagNeedFull
	}
	if m.Confirm.Full {
		flags |= flagFull
	}
	if m.Restart {
		flags |= flagRestart
	}
	return flags
}

// decodeMessage reads a frame and checks each batch whole, so that no machine
// ever sees bytes whose checksums do not hold. Errors wrap errFrame.
func decodeMessage(f rpc.Received) (ident.Partition, replica.Message, error) {
	var h messageHeader
	if err := rpc.Unmarshal(f.Header, &h); err != nil {
		return ident.Partition{}, replica.Message{}, fmt.Errorf("%w: header: %v", errFrame, err)
	}
	p := ident.Partition{Topic: ident.TopicID(h.Topic), Number: h.Number}
	m := replica.Message{
		Kind: replica.Kind(h.Kind), Epoch: ident.Epoch(h.Epoch),
		To: ident.StoreID(h.To), Store: ident.StoreID(h.Store), PrevCRC: h.PrevCRC,
		Prev: h.Prev.position(), Committed: h.Committed.position(), Durable: h.Durable.position(),
		ConfirmN: h.ConfirmN, LastEpoch: ident.Epoch(h.LastEpoch),
		Reject: h.Flags&flagReject != 0, NeedFull: h.Flags&flagNeedFull != 0, Restart: h.Flags&flagRestart != 0,
	}
	if m.Kind < replica.MsgAppend || m.Kind > replica.MsgProbeReply {
		return p, m, fmt.Errorf("%w: kind %d", errFrame, h.Kind)
	}
	for _, e := range h.Epochs {
		m.Epochs = append(m.Epochs, commitlog.EpochEnd{Epoch: ident.Epoch(e[0]),
			Start: wirePosition{e[1], e[2]}.position(), End: wirePosition{e[3], e[4]}.position()})
	}
	if c := h.Confirm; c != nil {
		if c.N == 0 {
			return p, m, fmt.Errorf("%w: a confirmation without a number", errFrame)
		}
		m.Confirm = queue.Confirm{Epoch: ident.Epoch(c.Epoch), N: c.N, Full: h.Flags&flagFull != 0, Delta: c.Delta}
	}
	var err error
	m.Batches, err = decodeBatches(f.Payload)
	return p, m, err
}

// decodeBatches reads batches to the end of b, which they alias.
func decodeBatches(b []byte) ([]queue.Batch, error) {
	var out []queue.Batch
	for len(b) > 0 {
		batch, n, err := queue.Decode(b)
		if err != nil {
			return nil, fmt.Errorf("%w: batch %d: %w", errFrame, len(out), err)
		}
		out = append(out, batch)
		b = b[n:]
	}
	return out, nil
}

func toWire(p ident.Position) wirePosition {
	return wirePosition{uint64(p.Offset), uint64(p.Sequence)}
}

func (p wirePosition) position() ident.Position {
	return ident.Position{Offset: ident.Offset(p[0]), Sequence: ident.Sequence(p[1])}
}
