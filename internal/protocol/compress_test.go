package protocol

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
)

// texts are writes of many sizes, some of which cannot be compressed.
func texts() (all [][]byte) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 7, 100, 5_000, 64 << 10, 64<<10 + 1, 300_000} {
		noise := make([]byte, size)
		for i := range noise {
			noise[i] = byte(random.Uint32())
		}
		all = append(all, noise, bytes.Repeat([]byte("message "), size/8+1))
	}
	return all
}

// TestSnappyWriter: the library's reader reads the stream, whatever is written.
func TestSnappyWriter(t *testing.T) {
	var stream, want bytes.Buffer
	w := &snappyWriter{to: &stream}
	for _, text := range texts() {
		n, err := w.Write(text)
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		require.NoError(t, w.Flush())
		want.Write(text)
	}
	compressed := stream.Len()
	got, err := io.ReadAll(s2.NewReader(&stream, s2.ReaderMaxBlockSize(snappyBlock)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want.Bytes(), got))
	require.Less(t, compressed, want.Len()*6/10)
}

// TestDeflateWriterParks: one stream of several compressors, of which none refers to another.
func TestDeflateWriterParks(t *testing.T) {
	for level := 1; level <= 9; level++ {
		var stream, want bytes.Buffer
		w := &deflateWriter{to: &stream, level: level}
		for i, text := range texts() {
			_, err := w.Write(text)
			require.NoError(t, err)
			require.NoError(t, w.Flush())
			want.Write(text)
			if i%2 == 0 {
				w.park()
				require.Nil(t, w.z)
				require.NoError(t, w.Flush(), "nothing is there to flush")
			}
		}
		got := make([]byte, want.Len())
		_, err := io.ReadFull(flate.NewReader(&stream), got)
		require.NoError(t, err, "level %d", level)
		require.True(t, bytes.Equal(want.Bytes(), got), "level %d", level)
	}
}
