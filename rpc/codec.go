package rpc

import (
	"encoding"
	"fmt"
	"sync"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// decodeDepth and decodeLength bound the memory that a decoder allocates for a length whose bytes have not arrived.
const (
	decodeDepth  = 64
	decodeLength = 4096
)

func newHandle() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.StructToArray = true // encode fields by position: compact, and new fields are appended
	h.MaxDepth = decodeDepth
	h.MaxInitLen = decodeLength
	return h
}

// handle is the one configuration of the codec; it never changes.
var handle = newHandle()

// Encoders and decoders are reused: making one costs more than most headers.
var (
	encoders = sync.Pool{New: func() any { return &encoder{codec: codec.NewEncoder(nil, handle)} }}
	decoders = sync.Pool{New: func() any { return codec.NewDecoderBytes(nil, handle) }}
)

// encoder has the slice that its codec writes to: otherwise each call would allocate one.
type encoder struct {
	codec *codec.Encoder
	out   []byte
}

// Marshal encodes v as msgpack: structs as arrays of their exported fields in order of declaration. A
// v that implements encoding.BinaryAppender encodes itself, and its receiver decodes it.
func Marshal(v any) ([]byte, error) { return appendMarshal(nil, v) }

// appendMarshal encodes v into the capacity of b, from its beginning.
func appendMarshal(b []byte, v any) ([]byte, error) {
	if own, ok := v.(encoding.BinaryAppender); ok {
		return own.AppendBinary(b[:0])
	}
	e := encoders.Get().(*encoder)
	e.out = b
	e.codec.ResetBytes(&e.out)
	err := e.codec.Encode(v)
	b, e.out = e.out, nil
	encoders.Put(e)
	if err != nil {
		return nil, fmt.Errorf("rpc: encode %T: %w", v, err)
	}
	return b, nil
}

// Unmarshal decodes the bytes of Marshal into v, a pointer. v shares no memory with b afterwards. Bytes
// of a bad peer cause an error, never a panic.
func Unmarshal(b []byte, v any) error {
	d := decoders.Get().(*codec.Decoder)
	d.ResetBytes(b)
	err := d.Decode(v)
	d.ResetBytes(nil)
	decoders.Put(d)
	if err != nil {
		return fmt.Errorf("rpc: decode %T: %w", v, err)
	}
	return nil
}

// Bytes is a byte string of a call's struct. On the wire it is the same as a []byte. The codec would decode a long
// []byte in steps of decodeLength, and copy all of it at each step: an answer of 2 MB would allocate 500 MB. The codec
// passes Bytes on in one piece, because all its bytes have arrived.
type Bytes []byte

// MarshalBinary returns b itself.
func (b Bytes) MarshalBinary() ([]byte, error) { return b, nil }

// UnmarshalBinary copies raw, which is a part of a frame.
func (b *Bytes) UnmarshalBinary(raw []byte) error {
	*b = append(make(Bytes, 0, len(raw)), raw...)
	return nil
}
