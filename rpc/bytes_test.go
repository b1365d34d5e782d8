package rpc

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLongBytesAreCopiedOnce: the memory that an answer takes grows with its length, not with the square of it.
func TestLongBytesAreCopiedOnce(t *testing.T) {
	type answer struct{ Bytes Bytes }
	type plain struct{ Bytes []byte }
	long := bytes.Repeat([]byte("bytes of an answer "), 100_000)
	raw, err := Marshal(answer{long})
	require.NoError(t, err)
	same, err := Marshal(plain{long})
	require.NoError(t, err)
	require.Equal(t, same, raw, "the bytes on the wire are those of a []byte")

	var got answer
	allocations := testing.AllocsPerRun(3, func() {
		got = answer{}
		err = Unmarshal(raw, &got)
	})
	require.NoError(t, err)
	require.Equal(t, long, []byte(got.Bytes))
	require.Less(t, allocations, 10.0, "steps of decodeLength would be 464")

	clear(raw)
	require.Equal(t, long, []byte(got.Bytes), "shares no memory with the frame")
}

// TestBytesThatAreMissing: nil stays nil, and a length beyond the frame is an error.
func TestBytesThatAreMissing(t *testing.T) {
	type answer struct{ Bytes Bytes }
	raw, err := Marshal(answer{})
	require.NoError(t, err)
	var got answer
	require.NoError(t, Unmarshal(raw, &got))
	require.Nil(t, got.Bytes)
	require.Error(t, Unmarshal([]byte{0x91, 0xc6, 0x7f, 0xff, 0xff, 0xff, 1}, &got), "2 GiB of which one byte has come")
}
