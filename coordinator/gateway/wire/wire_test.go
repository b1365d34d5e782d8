package wire

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wiretest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

var somewhere = ident.Partition{Topic: 0x0102030405060708, Number: 0x1112}

// The golden bytes of doc.go: a change of them is a change of the protocol.
func TestRecordsHaveTheirBytes(t *testing.T) {
	p := Put{
		Request: ident.RequestID{Producer: 0xa1, N: 0xa2}, Partition: somewhere, Epoch: 0xa3,
		Attempt: 0xa4, Count: 0xa5, CRC: 0xa6, Length: 0xa7,
	}
	require.Equal(t, "a100000000000000"+"a200000000000000"+"0807060504030201"+"a300000000000000"+
		"a4000000"+"a5000000"+"a6000000"+"a7000000"+"1211"+"0000", hex.EncodeToString(AppendPut(nil, p)))
	require.Equal(t, p, DecodePut(AppendPut(nil, p)))

	r := Reply{
		Request: ident.RequestID{Producer: 0xa1, N: 0xa2}, Partition: somewhere, First: 0xa3,
		Attempt: 0xa4, Outcome: outcome.InDoubt,
	}
	require.Equal(t, "a100000000000000"+"a200000000000000"+"0807060504030201"+"a300000000000000"+
		"a4000000"+"1211"+"06"+"00", hex.EncodeToString(AppendReply(nil, r)))
	require.Equal(t, r, DecodeReply(AppendReply(nil, r)))

	short := outcome.Completion{Outcome: outcome.NotEnoughReplicas, InSync: 1, Minimum: 2}
	r.First, r.Outcome = ResultOf(short), short.Outcome
	require.Equal(t, "a100000000000000"+"a200000000000000"+"0807060504030201"+"01000000"+"02000000"+
		"a4000000"+"1211"+"04"+"00", hex.EncodeToString(AppendReply(nil, r)))
	r = DecodeReply(AppendReply(nil, r))
	require.Equal(t, short, r.Completion())

	v := Verb{Kind: VerbRequeue, Stream: 0xa1, Sequence: 0xa2, Argument: 0xa3, Epoch: 0xa4, Number: 0xa5, Attempts: 0xa6}
	require.Equal(t, "a100000000000000"+"a200000000000000"+"a300000000000000"+"a4000000"+"02"+"00"+"a600"+"a500000000000000",
		hex.EncodeToString(AppendVerb(nil, v)))
	require.Equal(t, v, decodeVerb(AppendVerb(nil, v)))

	d := api.Delivery{Epoch: 0xa3, Number: 0xa7, Message: queue.Message{
		Seq: 0xa2, Time: 0xa4, Trace: 0xa5, Header: []byte("h"), Body: []byte("bo"), Attempts: 0xa6,
	}}
	b := AppendDelivery(nil, 0xa1, &d)
	require.Equal(t, "a100000000000000"+"a200000000000000"+"a300000000000000"+"a400000000000000"+
		"a500000000000000"+"01000000"+"02000000"+"a600"+"000000000000"+"a700000000000000", hex.EncodeToString(b))
	stream, got, rest, err := DecodeDelivery(b, []byte("hbo!"))
	require.NoError(t, err)
	require.EqualValues(t, 0xa1, stream)
	require.Equal(t, d, got)
	require.Equal(t, "!", string(rest))
	require.Len(t, b, DeliverySize)
}

// own is a codec of structs that encode themselves.
func own[T any](encode func([]byte, T) []byte, decode func([]byte) T) *wiretest.Codec {
	return &wiretest.Codec{
		Marshal:   func(v any) ([]byte, error) { return encode(nil, *v.(*T)), nil },
		Unmarshal: func(b []byte, v any) error { *v.(*T) = decode(b); return nil },
	}
}

// header is the codec of a header, which package rpc encodes as any other.
var header = &wiretest.Codec{Marshal: rpc.Marshal, Unmarshal: func(b []byte, v any) error { return v.(*Header).Decode(b) }}

func TestGoldenBytes(t *testing.T) {
	wiretest.Check(t, wiretest.Codec{Marshal: rpc.Marshal, Unmarshal: rpc.Unmarshal}, []wiretest.Struct{
		{Value: &Header{Kind: FrameReplies, Count: 2, Hints: []Hint{{Topic: 3, Partition: 4, Node: "s5", Incarnation: 6, Epoch: 7}}}, Golden: "020291950304a273350607", Own: header},
		{Value: &Header{Kind: FrameOpen, Count: 2, Open: &Opening{Stream: 1, Channel: "c"}}, Golden: "03029c010000a000a163000000c0c2c2", Own: header},
		{Value: &Hint{}, Golden: "950102a273330405"},
		{Value: &Opening{}, Golden: "9c010203a2733405a27336070809c4010ac3c3"},
		{Value: &Put{}, Golden: "01000000000000000200000000000000030000000000000005000000000000000600000007000000080000000900000004000100", Own: own(AppendPut, DecodePut)},
		{Value: &Reply{}, Golden: "01000000000000000200000000000000030000000000000005000000000000000600000004000700", Own: own(AppendReply, DecodeReply)},
		{Value: &Verb{}, Golden: "02000000000000000300000000000000050000000000000004000000010007000600000000000000", Own: own(AppendVerb, decodeVerb)},
	})
}

func TestSizesOfRecords(t *testing.T) {
	require.Len(t, AppendPut(nil, Put{}), PutSize)
	require.Len(t, AppendReply(nil, Reply{}), ReplySize)
	require.Len(t, AppendVerb(nil, Verb{}), VerbSize)
}

func TestHeadersGoOverTheWireUnchanged(t *testing.T) {
	for _, want := range []Header{
		{Kind: FramePuts, Count: 300}, {Kind: FrameVerbs, Count: 2}, {Kind: FrameReplies, Count: 1, Hints: []Hint{{Node: "n2", Epoch: 3}}},
		{Kind: FrameOpen, Open: &Opening{Stream: 1, Channel: "ch", Client: rpc.Bytes(`{"hostname":"h"}`)}},
	} {
		b, err := rpc.Marshal(want)
		require.NoError(t, err)
		var got Header
		require.NoError(t, got.Decode(b))
		require.Equal(t, want, got)
	}
	encoded := func(k frameKind, count int) []byte {
		b, err := Header{Kind: k, Count: count}.AppendBinary(nil)
		require.NoError(t, err)
		return b
	}
	for _, bad := range [][]byte{
		nil, {1}, {1, 0x80}, append(encoded(FrameReplies, 1), 0xc1), append(encoded(FrameOpen, 1), 0xc1), encoded(FramePuts, 1<<32),
	} {
		require.Error(t, new(Header).Decode(bad), "%x", bad)
	}
}
