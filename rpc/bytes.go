package rpc

// Bytes is a byte string of a call's struct. On the wire it is the same as a []byte. The codec would
// decode a long []byte in steps of decodeLength, and copy all of it at each step: an answer of 2 MB
// would allocate 500 MB. It hands Bytes over in one piece, because its bytes have all come.
type Bytes []byte

// MarshalBinary returns b itself.
func (b Bytes) MarshalBinary() ([]byte, error) { return b, nil }

// UnmarshalBinary copies raw, which is a part of a frame.
func (b *Bytes) UnmarshalBinary(raw []byte) error {
	*b = append(make(Bytes, 0, len(raw)), raw...)
	return nil
}
