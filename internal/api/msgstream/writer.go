package msgstream

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"maps"
	"slices"
)

// digests counts the messages of a stream and hashes their bodies.
type digests struct {
	messages, bytes int64
	of              map[uint16]*digest
}

type digest struct {
	messages int64
	hash     hash.Hash
}

func (d *digests) add(m *Message) {
	d.messages++
	d.bytes += int64(len(m.Body))
	if o, ok := OriginOf(m.Header); m.DeferredOnly || ok && o.Channel != "" {
		return
	}
	if d.of == nil {
		d.of = map[uint16]*digest{}
	}
	x := d.of[m.Partition]
	if x == nil {
		x = &digest{hash: sha256.New()}
		d.of[m.Partition] = x
	}
	x.messages++
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(m.Body)))
	_, _ = x.hash.Write(size[:]) // a hash returns no error
	_, _ = x.hash.Write(m.Body)
}

func (d *digests) end() End {
	e := End{Messages: d.messages, BodyBytes: d.bytes, Partitions: []partitionEnd{}}
	for _, n := range slices.Sorted(maps.Keys(d.of)) {
		x := d.of[n]
		e.Partitions = append(e.Partitions, partitionEnd{Partition: int(n), Messages: x.messages, Digest: hex.EncodeToString(x.hash.Sum(nil))})
	}
	return e
}

// Writer writes one stream. Its methods are called in the order Info, Channel, Message, End.
type Writer struct {
	w      io.Writer
	crc    uint32
	buffer []byte
	seen   digests
}

// NewWriter returns the writer of a stream.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Info begins the stream.
func (w *Writer) Info(i Info) error {
	if _, err := io.WriteString(w.w, Magic); err != nil {
		return err
	}
	return w.json(kindInfo, i)
}

// Channel writes a channel.
func (w *Writer) Channel(c Channel) error { return w.json(kindChannel, c) }

// Message writes a message.
func (w *Writer) Message(m *Message) (err error) {
	if w.buffer, w.crc, err = AppendMessage(w.buffer[:0], w.crc, m); err != nil {
		return err
	}
	w.seen.add(m)
	_, err = w.w.Write(w.buffer)
	return err
}

// End ends the stream.
func (w *Writer) End() (End, error) {
	e := w.seen.end()
	return e, w.json(kindEnd, e)
}

func (w *Writer) json(k recordKind, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) > maxRecord {
		return errTooBig
	}
	b := append(w.buffer[:0], byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	w.crc = sum(w.crc, b[:headSize], b[headSize:])
	b = binary.BigEndian.AppendUint32(b, w.crc)
	w.buffer = b
	_, err = w.w.Write(b)
	return err
}
