package rpc

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// waiting gives the bytes queued of a class.
func (o *outbox) waiting(c Class) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.queued[c]
}

// bursts takes all frames and returns, per burst, the classes of its pieces.
func bursts(o *outbox, b *burst) (out [][]Class) {
	for o.take(b) {
		var all bytes.Buffer
		for _, part := range b.iov {
			all.Write(part)
		}
		out = append(out, piecesOf(all.Bytes()))
		b.reset()
	}
	return out
}

func piecesOf(b []byte) (out []Class) {
	for len(b) > 0 {
		p, err := parsePrelude((*[preludeBytes]byte)(b))
		if err != nil {
			panic(err)
		}
		out = append(out, p.class)
		b = b[preludeBytes+p.header+p.here:]
	}
	return out
}

func TestTakeByPriority(t *testing.T) {
	o := newOutbox(defaultWindows)
	for _, c := range []Class{ClassBulk, ClassRelay, ClassControl, ClassForward, ClassReplica} {
		require.NoError(t, o.push(frameOf(kindFrame, c, "h", []byte("x"))))
	}
	var b burst
	require.Equal(t, [][]Class{{ClassControl, ClassReplica, ClassForward, ClassRelay, ClassBulk}}, bursts(o, &b))
	require.Zero(t, o.waiting(ClassBulk))
}

func TestBulkIsSlowedNotStarved(t *testing.T) {
	o := newOutbox(defaultWindows)
	require.NoError(t, o.push(frameOf(kindFrame, ClassBulk, "h", make([]byte, 3*pieceBytes))))
	var b burst
	for range 3 { // live traffic before each burst
		require.NoError(t, o.push(frameOf(kindFrame, ClassReplica, "h", []byte("x"))))
		require.True(t, o.take(&b))
		var all bytes.Buffer
		for _, part := range b.iov {
			all.Write(part)
		}
		require.Equal(t, []Class{ClassReplica, ClassBulk}, piecesOf(all.Bytes()))
		b.reset()
	}
	require.False(t, o.take(&b))
}

func TestLowerPriorityWaitsForAllOfTheHigher(t *testing.T) {
	o := newOutbox(defaultWindows)
	require.NoError(t, o.push(frameOf(kindFrame, ClassForward, "h", []byte("x"))))
	for range 12 {
		require.NoError(t, o.push(frameOf(kindFrame, ClassReplica, "h", make([]byte, 200<<10))))
	}
	var b burst
	all := bursts(o, &b)
	require.Len(t, all, 3)
	require.NotContains(t, all[0], ClassForward)
	require.NotContains(t, all[1], ClassForward)
	require.Equal(t, ClassForward, all[2][len(all[2])-1])
}

func TestPayloadIsNotCopied(t *testing.T) {
	o := newOutbox(defaultWindows)
	payload := []byte("these very bytes")
	require.NoError(t, o.push(frameOf(kindFrame, ClassReplica, "h", payload)))
	var b burst
	require.True(t, o.take(&b))
	require.Len(t, b.iov, 2)
	require.Same(t, &payload[0], &b.iov[1][0])
	b.reset()
	require.Nil(t, b.iov[:2][1], "a written payload is not held")
}

func TestScratchMayGrowWithinABurst(t *testing.T) {
	o := newOutbox(defaultWindows)
	for i := range 300 {
		require.NoError(t, o.push(frameOf(kindFrame, ClassReplica, string(rune('a'+i%26)), []byte{byte(i)})))
	}
	var b burst
	var all bytes.Buffer
	for o.take(&b) {
		for _, part := range b.iov {
			all.Write(part)
		}
		b.reset()
	}
	r := newFrameReader(&all)
	for i := range 300 {
		a, err := r.next()
		require.NoError(t, err)
		require.Equal(t, string(rune('a'+i%26)), string(a.header))
		require.Equal(t, []byte{byte(i)}, a.payload)
	}
}

func TestClosedOutbox(t *testing.T) {
	o := newOutbox(defaultWindows)
	require.NoError(t, o.push(frameOf(kindFrame, ClassReplica, "h")))
	o.close()
	var b burst
	require.False(t, o.take(&b))
	require.ErrorIs(t, o.push(frameOf(kindFrame, ClassReplica, "h")), ErrDown)
}
