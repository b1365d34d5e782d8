package msgstream

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// Damage is the position at which a stream is truncated or altered.
type Damage struct {
	Offset int64 // of the record, in bytes
	Record int64 // the first is 1; 0: before it
	Reason string
}

// Error implements error.
func (d *Damage) Error() string {
	return fmt.Sprintf("the stream is damaged at byte %d (record %d): %s", d.Offset, d.Record, d.Reason)
}

// Record is one record of a stream. Exactly one field is set, and it is valid until the next call of Next.
type Record struct {
	Info    *Info
	Channel *Channel
	Message *Message
	End     *End
}

// Reader reads a stream. Every error but those of its input is a Damage.
type Reader struct {
	in      io.Reader
	offset  int64 // of the next record
	record  int64 // its number
	crc     uint32
	payload bytes.Buffer
	last    recordKind
	info    Info
	next    map[uint16]uint64 // the lowest sequence that the next message of a partition may have
	seen    digests
	bare    bool // messages alone, without Magic, Info and End
}

// NewReader returns the reader of a stream.
func NewReader(in io.Reader) *Reader { return &Reader{in: in, next: map[uint16]uint64{}} }

// NewMessageReader returns the reader of message records alone, as AppendMessage makes them, the first one after the
// checksum 0. Next returns io.EOF after the last one.
func NewMessageReader(in io.Reader) *Reader {
	return &Reader{in: in, record: 1, bare: true, next: map[uint16]uint64{}}
}

func (r *Reader) damage(format string, args ...any) error {
	return &Damage{Offset: r.offset, Record: r.record, Reason: fmt.Sprintf(format, args...)}
}

// Next returns the next record. After End it returns io.EOF if nothing follows.
func (r *Reader) Next() (Record, error) {
	if r.record == 0 {
		if err := r.magic(); err != nil {
			return Record{}, err
		}
	}
	kind, size, err := r.raw()
	if err != nil {
		return Record{}, err
	}
	x, err := r.decode(kind)
	if err != nil {
		return Record{}, err
	}
	r.offset += size
	r.record++
	r.last = kind
	return x, nil
}

func (r *Reader) magic() error {
	var b [len(Magic)]byte
	switch _, err := io.ReadFull(r.in, b[:]); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil && string(b[:]) != Magic:
		return r.damage("it does not begin with %q: it is not the output of nsqctl export, or that of a newer build", Magic)
	case err != nil:
		return err
	}
	r.offset, r.record = int64(len(Magic)), 1
	return nil
}

// raw reads the bytes of a record and verifies its checksum.
func (r *Reader) raw() (kind recordKind, size int64, err error) {
	var head [headSize]byte
	n, err := io.ReadFull(r.in, head[:])
	switch {
	case errors.Is(err, io.EOF) && (r.last == kindEnd || r.bare):
		return 0, 0, io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, 0, r.damage("the stream ends after %d bytes of a record: it is torn", n)
	case err != nil:
		return 0, 0, err
	case r.last == kindEnd:
		return 0, 0, r.damage("bytes follow the end record")
	}
	length := int64(binary.BigEndian.Uint32(head[1:]))
	if length > maxRecord {
		return 0, 0, r.damage("a record of %d bytes: the longest have %d", length, maxRecord)
	}
	r.payload.Reset()
	copied, err := io.CopyN(&r.payload, r.in, length+sumSize)
	switch {
	case errors.Is(err, io.EOF):
		return 0, 0, r.damage("the stream ends after %d of %d bytes of a record: it is torn", headSize+copied, headSize+length+sumSize)
	case err != nil:
		return 0, 0, err
	}
	payload := r.payload.Bytes()
	want := binary.BigEndian.Uint32(payload[length:])
	if got := sum(r.crc, head[:], payload[:length]); got != want {
		return 0, 0, r.damage("its checksum is %08x and must be %08x: the record, or the one before it, is altered, missing or repeated", want, got)
	}
	r.crc = want
	r.payload.Truncate(int(length))
	return recordKind(head[0]), headSize + length + sumSize, nil
}

func (r *Reader) decode(kind recordKind) (x Record, err error) {
	payload := r.payload.Bytes()
	switch {
	case r.bare && kind != kindMessage:
		return x, r.damage("a record of kind %d among messages", kind)
	case !r.bare && (kind == kindInfo) != (r.last == 0), kind < r.last, kind > kindEnd:
		return x, r.damage("a record of kind %d after one of kind %d", kind, r.last)
	}
	switch kind {
	case kindInfo:
		x.Info = &Info{}
		if err = json.Unmarshal(payload, x.Info); err == nil && len(x.Info.Partitions) == 0 {
			err = errors.New("a topic without partitions")
		}
		r.info = *x.Info
	case kindChannel:
		x.Channel = &Channel{}
		err = json.Unmarshal(payload, x.Channel)
	case kindMessage:
		x.Message, err = r.message(payload)
	case kindEnd:
		x.End = &End{}
		if err = json.Unmarshal(payload, x.End); err == nil && !reflect.DeepEqual(*x.End, r.seen.end()) {
			err = errors.New("its counts or digests are not those of the messages before it")
		}
	}
	if err != nil {
		return Record{}, r.damage("%v", err)
	}
	return x, nil
}

func (r *Reader) message(payload []byte) (*Message, error) {
	m, err := decodeMessage(payload)
	if err != nil {
		return nil, err
	}
	if !r.bare && int(m.Partition) >= len(r.info.Partitions) {
		return nil, fmt.Errorf("a message of partition %d of %d", m.Partition, len(r.info.Partitions))
	}
	if !r.bare && m.Sequence < r.next[m.Partition] {
		return nil, fmt.Errorf("message %d of partition %d after message %d", m.Sequence, m.Partition, r.next[m.Partition]-1)
	}
	r.next[m.Partition] = m.Sequence + 1
	if !r.bare {
		r.seen.add(&m)
	}
	return &m, nil
}
