package rpc

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// wire gives the bytes of frames as one connection to a peer of the build before
// checksums would write them.
func wire(t testing.TB, frames ...*outFrame) []byte {
	t.Helper()
	return written(t, &burst{}, frames)
}

// checkedWire gives them as they are written to a peer of this build.
func checkedWire(t testing.TB, frames ...*outFrame) []byte {
	t.Helper()
	return written(t, &burst{checked: true}, frames)
}

func written(t testing.TB, b *burst, frames []*outFrame) []byte {
	t.Helper()
	o := newOutbox(defaultWindows)
	var out bytes.Buffer
	for _, f := range frames {
		require.NoError(t, o.push(f))
	}
	for o.take(b) {
		b.sum()
		for _, part := range b.iov {
			out.Write(part)
		}
		b.reset()
	}
	return out.Bytes()
}

func frameOf(k kind, c Class, header string, payload ...[]byte) *outFrame {
	f := newOutFrame(k, c, payload)
	f.header = append(f.header, header...)
	return f
}

// The bytes brokers of other versions read and write.
func TestGoldenBytes(t *testing.T) {
	frame := wire(t, frameOf(kindFrame, ClassReplica, "head", []byte("pay"), []byte("load")))
	require.Equal(t, "4c46020101000000"+"04000000"+"07000000"+"07000000"+"db6d3b1f"+
		hex.EncodeToString([]byte("headpayload")), hex.EncodeToString(frame))

	hello, err := Marshal(helloHeader{Hello{"c", "n1", 300, 1, 5}, "n2", []byte{1, 2}, []byte{0}})
	require.NoError(t, err)
	require.Equal(t, "94"+"95"+"a163"+"a26e31"+"d1012c"+"01"+"05"+"a26e32"+"c4020102"+"c40100", hex.EncodeToString(hello))
}

func TestHeadersGrowAtTheEnd(t *testing.T) {
	type older struct{ A int }
	type newer struct {
		A int
		B string
		C []ident.Member
	}
	b, err := Marshal(newer{1, "x", []ident.Member{{Node: "n", Store: 3}}})
	require.NoError(t, err)
	var o older
	require.NoError(t, Unmarshal(b, &o))
	require.Equal(t, older{1}, o)
	b, err = Marshal(older{2})
	require.NoError(t, err)
	var n newer
	require.NoError(t, Unmarshal(b, &n))
	require.Equal(t, newer{A: 2}, n)
}

// TestMarshalUsesTheBuffer: a header is encoded into the memory of its frame.
func TestMarshalUsesTheBuffer(t *testing.T) {
	b := make([]byte, 0, 256)
	got, err := appendMarshal(b, Hello{Cluster: "c", Node: "n"})
	require.NoError(t, err)
	require.Same(t, &b[:1][0], &got[0])
}

func TestUnmarshalSharesNoMemory(t *testing.T) {
	b, err := Marshal([]byte("abc"))
	require.NoError(t, err)
	var got []byte
	require.NoError(t, Unmarshal(b, &got))
	clear(b)
	require.Equal(t, "abc", string(got))
}

func TestReaderRefuses(t *testing.T) {
	good := wire(t, frameOf(kindFrame, ClassReplica, "head", []byte("payload")))
	long := wire(t, frameOf(kindFrame, ClassBulk, "head", make([]byte, 2*pieceBytes)))
	first := preludeBytes + 4 + pieceBytes
	tests := map[string]func() []byte{
		"magic":             func() []byte { return edit(good, 0, 'X') },
		"format version":    func() []byte { return edit(good, 2, 9) },
		"unknown kind":      func() []byte { return edit(good, 3, 99) },
		"unknown class":     func() []byte { return edit(good, 4, 6) },
		"no class":          func() []byte { return edit(good, 4, 0) },
		"long header":       func() []byte { return edit(good, 11, 1) },
		"long payload":      func() []byte { return edit(good, 15, 0xff) },
		"piece differs":     func() []byte { return edit(good, 16, 1) },
		"crc of prelude":    func() []byte { return edit(good, 6, 1) },
		"checksum of none":  func() []byte { return edit(edit(edit(good, 5, flagChecked), 12, 0), 16, 0) },
		"crc of header":     func() []byte { return edit(good, preludeBytes, 'X') },
		"rest out of place": func() []byte { return long[first:] },
		"rest of another":   func() []byte { return edit(long, first+4, byte(ClassRelay)) },
		"frame in a frame":  func() []byte { return append(bytes.Clone(long[:first]), long...) },
		"rest too short":    func() []byte { return edit(long, first+16, 1) },
	}
	for name, bytesOf := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := newFrameReader(bytes.NewReader(bytesOf())).next()
			require.ErrorIs(t, err, errMalformed)
		})
	}
	_, err := newFrameReader(bytes.NewReader(nil)).next()
	require.Equal(t, io.EOF, err)
	_, err = newFrameReader(bytes.NewReader(long[:first+30])).next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestLimitsOfAFrame: the longest header, and a frame of exactly the reader's limit, are read.
func TestLimitsOfAFrame(t *testing.T) {
	header := strings.Repeat("h", MaxHeader)
	a, err := newFrameReader(bytes.NewReader(wire(t, frameOf(kindFrame, ClassReplica, header, []byte("payload"))))).next()
	require.NoError(t, err)
	require.Equal(t, header, string(a.header))
	for limit, readable := range map[int]bool{11: true, 10: false} {
		r := newFrameReader(bytes.NewReader(wire(t, frameOf(kindFrame, ClassReplica, "head", []byte("payload")))))
		r.limit = limit
		_, err := r.next()
		require.Equal(t, readable, err == nil, "%d: %v", limit, err)
	}
}

func edit(b []byte, at int, value byte) []byte {
	b = bytes.Clone(b)
	b[at] = value
	return b
}

// FuzzReader: any bytes make frames or an error, never a panic; and frames that were read
// survive another trip. Frames of several pieces are long and so slow: TestReaderRefuses
// has them. sealed: the bytes that the fuzzer changed get the right checksums.
func FuzzReader(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(wire(f, frameOf(kindHeartbeat, 0, "")), true)
	f.Add(wire(f, frameOf(kindFrame, ClassReplica, "head", []byte("payload")), frameOf(kindRequest, ClassControl, "x")), true)
	f.Add(wire(f, frameOf(kindFrame, ClassBulk, "h", make([]byte, 300))), false)
	f.Add(checkedWire(f, frameOf(kindFrame, ClassForward, "head", []byte("payload")), frameOf(kindFrame, ClassBulk, "h", make([]byte, 300))), true)
	hello, _ := Marshal(helloHeader{Hello{"c", "n", 3, 1, 0}, "m", make([]byte, nonceBytes), nil})
	f.Add(appendPiece(nil, prelude{kind: kindHello}, hello), true)
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if sealed {
			b = reseal(bytes.Clone(b))
		}
		r := smallReader(b)
		for {
			a, err := r.next()
			if err != nil {
				require.True(t, errors.Is(err, errMalformed) || errors.Is(err, errChecksum) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
				return
			}
			decodeAll(a.header)
			again, err := smallReader(appendWhole(nil, a)).next()
			require.NoError(t, err)
			require.Equal(t, a, again)
		}
	})
}

// smallReader reads frames of one piece, from a buffer that is cheap to make.
func smallReader(b []byte) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(bytes.NewReader(b), 1<<10), limit: 4 << 10}
}

// appendWhole appends a frame of one piece without a checksum of its payload.
func appendWhole(b []byte, a arrival) []byte {
	p := prelude{kind: a.kind, class: a.class, whole: len(a.payload), here: len(a.payload)}
	return append(appendPiece(b, p, a.header), a.payload...)
}

// reseal writes the right checksum into each piece whose prelude and header are there.
func reseal(b []byte) []byte {
	for at := 0; at+preludeBytes <= len(b); {
		head := b[at:]
		sum, header := 0, int(binary.LittleEndian.Uint32(head[8:]))
		if head[5]&flagChecked != 0 {
			sum = checksumBytes
		}
		here := int(binary.LittleEndian.Uint32(head[16:]))
		end := preludeBytes + sum + header
		if header > MaxHeader || end > len(head) {
			break
		}
		if here > pieceBytes || end+here > len(head) {
			here = len(head) - end
		}
		if sum > 0 {
			binary.LittleEndian.PutUint32(head[preludeBytes:], crc32.Checksum(head[end:end+here], castagnoli))
		}
		crc := crc32.Update(crc32.Checksum(head[:preludeBytes-4], castagnoli), castagnoli, head[preludeBytes:end])
		binary.LittleEndian.PutUint32(head[preludeBytes-4:], crc)
		at += end + here
	}
	return b
}

// decodeAll tries a header as everything this package takes it for.
func decodeAll(header []byte) {
	var hello helloHeader
	_ = Unmarshal(header, &hello)
	var q requestHeader
	_ = Unmarshal(header, &q)
	var r responseHeader
	_ = Unmarshal(header, &r)
	var s string
	_ = Unmarshal(header, &s)
}

func FuzzUnmarshal(f *testing.F) {
	hello, _ := Marshal(helloHeader{Hello{"c", "n", 3, 1, 0}, "m", make([]byte, nonceBytes), nil})
	f.Add(hello)
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{0x91}, 200))
	f.Fuzz(func(_ *testing.T, b []byte) { decodeAll(b) })
}
