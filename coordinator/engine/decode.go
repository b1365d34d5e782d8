package engine

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// decodeMessage reads a frame, whose bytes the message shares. It verifies the checksums of each batch, so that no
// machine sees damaged bytes. Errors wrap ErrFrame.
func decodeMessage(f rpc.Received) (p ident.Partition, m replica.Message, err error) {
	r := numbers{b: f.Header}
	r.open()
	p = ident.Partition{Topic: ident.TopicID(r.next()), Number: uint16(r.upTo(math.MaxUint16))}
	m.Kind = replica.Kind(r.upTo(math.MaxUint8))
	flags := r.next()
	m.Reject, m.NeedSnapshot, m.Restart = flags&flagReject != 0, flags&flagNeedFull != 0, flags&flagRestart != 0
	m.Epoch, m.To, m.Store = ident.Epoch(r.next()), ident.StoreID(r.next()), ident.StoreID(r.next())
	m.Prev, m.PrevCRC = r.position(), uint32(r.upTo(math.MaxUint32))
	m.Committed, m.Durable = r.position(), r.position()
	m.StateVersion, m.LastEpoch = r.next(), ident.Epoch(r.next())
	m.State = queue.StateVersion{Epoch: ident.Epoch(r.next()), N: r.next(), Full: flags&flagFull != 0}
	apart, crc := r.upTo(uint64(len(f.Payload))), r.next()
	m.ClockMS, m.Abandoned, m.Forgotten = int64(r.upTo(math.MaxInt64)), ident.Epoch(r.next()), queue.Clock(r.upTo(math.MaxUint32))
	r.close()
	r.open()
	r.bad = r.bad || r.left%epochNumbers != 0
	for r.left > 0 && !r.bad {
		m.Epochs = append(m.Epochs, commitlog.EpochEnd{Epoch: ident.Epoch(r.next()), Start: r.position(), End: r.position()})
	}
	if r.open(); r.left > 0 {
		m.State.Delta = r.b[:r.left:r.left]
	}
	batches := f.Payload
	if apart > 0 && !r.bad {
		m.State.Delta, batches = batches[:apart:apart], batches[apart:]
		r.bad = uint64(queue.Checksum(m.State.Delta)) != crc
	}
	switch {
	case r.bad:
		return p, m, fmt.Errorf("%w: header of %d bytes", ErrFrame, len(f.Header))
	case m.Kind < replica.MsgAppend || m.Kind > replica.MsgProbeReply:
		return p, m, fmt.Errorf("%w: kind %d", ErrFrame, m.Kind)
	case m.State.N == 0 && (m.State.Full || m.State.Epoch != 0 || m.State.Delta != nil):
		return p, m, fmt.Errorf("%w: a channel-state version without a number", ErrFrame)
	}
	m.Batches, err = DecodeBatches(batches)
	return p, m, err
}

// DecodeBatches reads batches to the end of b, which they alias. Errors wrap ErrFrame.
func DecodeBatches(b []byte) ([]queue.Batch, error) {
	var out []queue.Batch
	for len(b) > 0 {
		batch, n, err := queue.Decode(b)
		if err != nil {
			return nil, fmt.Errorf("%w: batch %d: %w", ErrFrame, len(out), err)
		}
		out = append(out, batch)
		b = b[n:]
	}
	return out, nil
}

// numbers reads lists of numbers. After a malformed one, all are 0.
type numbers struct {
	b    []byte
	left int // in the list
	bad  bool
}

// open begins the next list.
func (r *numbers) open() {
	r.left = 1
	n := r.next()
	if r.bad = r.bad || n > uint64(len(r.b)); r.bad {
		n = 0
	}
	r.left = int(n)
}

// next is 0 beyond the end of the list.
func (r *numbers) next() uint64 {
	if r.left == 0 || r.bad {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.left--
	r.b = r.b[n:]
	return v
}

// upTo refuses a number that its field cannot hold.
func (r *numbers) upTo(largest uint64) uint64 {
	v := r.next()
	r.bad = r.bad || v > largest
	return v
}

// close skips the rest of the list.
func (r *numbers) close() {
	for r.left > 0 && !r.bad {
		r.next()
	}
}

func (r *numbers) position() ident.Position {
	return ident.Position{Offset: ident.Offset(r.next()), Sequence: ident.Sequence(r.next())}
}
