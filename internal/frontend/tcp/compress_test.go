package tcp

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
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

func shareOf(b *limits.Budget) *atomic.Pointer[limits.Share] {
	share := b.Share("a")
	p := &atomic.Pointer[limits.Share]{}
	p.Store(&share)
	return p
}

// TestSnappy: the library's reader reads the stream, whatever is written.
func TestSnappy(t *testing.T) {
	var stream, want bytes.Buffer
	w := &snappyWriter{to: &stream}
	for _, text := range texts() {
		before := stream.Len()
		n, err := w.Write(text)
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		require.NoError(t, w.Flush())
		want.Write(text)
		chunks := (len(text) + snappyBlock - 1) / snappyBlock
		require.LessOrEqual(t, stream.Len()-before, len(snappyStart)+len(text)+chunks*snappyHead, "noise is not compressed")
	}
	compressed := stream.Len()
	got, err := io.ReadAll(s2.NewReader(&stream, s2.ReaderMaxBlockSize(snappyBlock)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want.Bytes(), got))
	require.Less(t, compressed, want.Len()*6/10)
}

// TestDeflateParks: one stream of several compressors, of which none refers to another.
func TestDeflateParks(t *testing.T) {
	for level := 1; level <= 9; level++ {
		var stream, want bytes.Buffer
		w := &deflateWriter{to: &stream, level: level, share: shareOf(nil)}
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

// TestDeflateWithoutMemory: a connection that finds no memory for a compressor continues, with one stream, and has one
// when there is memory again.
func TestDeflateWithoutMemory(t *testing.T) {
	b := limits.New(deflateBytes)
	var stream, want bytes.Buffer
	w := &deflateWriter{to: &stream, level: 6, share: shareOf(b)}
	for i, text := range texts() {
		full := i%3 > 0
		if full {
			require.True(t, b.Share("other").Try(limits.Bodies, deflateBytes))
		}
		n, err := w.Write(text)
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		require.NoError(t, w.Flush())
		want.Write(text)
		if full {
			require.Nil(t, w.z)
			b.Share("other").Release(limits.Bodies, deflateBytes)
		} else {
			require.EqualValues(t, deflateBytes, b.Held(limits.Compressors))
		}
		w.park()
		require.Zero(t, b.Used())
	}
	require.Less(t, stream.Len(), want.Len()*6/10, "it compresses without memory, too")
	got := make([]byte, want.Len())
	_, err := io.ReadFull(flate.NewReader(&stream), got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want.Bytes(), got))
}
