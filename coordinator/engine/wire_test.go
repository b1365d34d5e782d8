package engine

import (
	"bytes"
	"testing"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wiretest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/stretchr/testify/require"
)

var wirePartition = ident.Partition{Topic: 0xfedcba9876543210, Number: 7}

func wireMessage() replica.Message {
	at := ident.Position{Offset: 100, Sequence: 5}
	b := queue.NewDraft(2)
	_ = b.AddMessage(queue.Message{Body: []byte("m0")})
	d := b.Draft(ident.RequestID{Producer: 9, N: 1})
	first := d.Seal(at, 3, 77, 1000)
	marker := queue.Marker()
	second := marker.Seal(first.End, 4, first.CRC, 1001)
	return replica.Message{
		Kind: replica.MsgAppend, Epoch: 4, To: 1 << 63, Store: 2, Prev: at, PrevCRC: 77,
		Committed: ident.Position{Offset: 90, Sequence: 4}, Durable: ident.Position{Offset: 95, Sequence: 4},
		StateVersion: 6, LastEpoch: 3, ClockMS: 70, Abandoned: 2, Forgotten: 3, Reject: true, Restart: true, NeedSnapshot: true,
		Epochs:  []commitlog.EpochEnd{{Epoch: 1, Start: ident.Position{}, End: at}},
		State:   queue.StateVersion{Epoch: 4, N: 2, Full: true, Delta: []byte("state")},
		Batches: []queue.Batch{first, second},
	}
}

// received is a frame as the other side gets it.
func received(t testing.TB, f rpc.Frame) rpc.Received {
	header, err := rpc.Marshal(f.Header)
	require.NoError(t, err)
	return rpc.Received{Class: f.Class, Header: header, Payload: bytes.Join(f.Payload, nil)}
}

func TestGoldenBytes(t *testing.T) {
	m := wireMessage()
	wiretest.Check(t, wiretest.Codec{}, []wiretest.Struct{{
		Value:  &messageHeader{id: wirePartition, msg: &m},
		Golden: "1790e4d0b287d3aeeefe0107010f04808080808080808080010264054d5a045f04060304020000460203050100006405057374617465",
		Own:    &wiretest.Codec{Marshal: rpc.Marshal},
	}})
}

func TestMessageGoesOverTheWireUnchanged(t *testing.T) {
	want := wireMessage()
	f := encodeMessage(wirePartition, &replica.Envelope{Msg: want, Bulk: true})
	require.Equal(t, rpc.ClassBulk, f.Class)
	p, got, err := decodeMessage(received(t, f))
	require.NoError(t, err)
	require.Equal(t, wirePartition, p)
	require.Equal(t, want, got)

	ack := replica.Message{Kind: replica.MsgAppendAck, Epoch: 1}
	f = encodeMessage(wirePartition, &replica.Envelope{Msg: ack})
	require.Equal(t, rpc.ClassReplica, f.Class)
	_, got, err = decodeMessage(received(t, f))
	require.NoError(t, err)
	require.Equal(t, ack, got)
}

// TestLongDeltaIsInThePayload: the header of a frame has a maximal length, the state of
// the channels has none. Damage of the payload is detected.
func TestLongDeltaIsInThePayload(t *testing.T) {
	want := wireMessage()
	want.State.Delta = bytes.Repeat([]byte("state"), rpc.MaxHeader/2)
	f := received(t, encodeMessage(wirePartition, &replica.Envelope{Msg: want}))
	require.Less(t, len(f.Header), 1<<10)
	_, got, err := decodeMessage(f)
	require.NoError(t, err)
	require.Equal(t, want, got)
	f.Payload[rpc.MaxHeader] ^= 1
	_, _, err = decodeMessage(f)
	require.ErrorIs(t, err, ErrFrame)
	f.Payload[rpc.MaxHeader] ^= 1
	f.Payload = f.Payload[:rpc.MaxHeader]
	_, _, err = decodeMessage(f)
	require.ErrorIs(t, err, ErrFrame)
}

func TestDamagedMessageIsRefused(t *testing.T) {
	whole := received(t, encodeMessage(wirePartition, &replica.Envelope{Msg: wireMessage()}))
	for i := range whole.Payload {
		damaged := whole
		damaged.Payload = bytes.Clone(whole.Payload)
		damaged.Payload[i] ^= 1
		_, _, err := decodeMessage(damaged)
		require.ErrorIs(t, err, ErrFrame, "byte %d", i)
	}
	for _, n := range []int{1, queue.HeaderSize, len(whole.Payload) - 1} {
		_, _, err := decodeMessage(rpc.Received{Header: whole.Header, Payload: whole.Payload[:n]})
		require.ErrorIs(t, err, ErrFrame, "%d bytes", n)
	}
	for n := range whole.Header {
		_, _, err := decodeMessage(rpc.Received{Header: whole.Header[:n], Payload: whole.Payload})
		require.ErrorIs(t, err, ErrFrame, "%d bytes of header", n)
	}
	unknown := received(t, encodeMessage(wirePartition, &replica.Envelope{Msg: replica.Message{Kind: 99}}))
	_, _, err := decodeMessage(unknown)
	require.ErrorIs(t, err, ErrFrame)
	numberless := wireMessage()
	numberless.State.N = 0
	_, _, err = decodeMessage(received(t, encodeMessage(wirePartition, &replica.Envelope{Msg: numberless})))
	require.ErrorIs(t, err, ErrFrame)
	for at, tooLarge := range map[int]uint64{1: 1 << 16, 2: 1 << 8, 9: 1 << 32} {
		list := make([]uint64, 18)
		list[2], list[at] = uint64(replica.MsgAppend), tooLarge
		_, _, err = decodeMessage(rpc.Received{Header: append(appendNumbers(nil, list...), 0, 0)})
		require.ErrorIs(t, err, ErrFrame, "number %d", at)
	}
}

// TestHeaderOfAnotherVersion: numbers that are missing at the end are zero, and
// those that are not known are skipped.
func TestHeaderOfAnotherVersion(t *testing.T) {
	list := []uint64{3, 2, uint64(replica.MsgAppendAck), 0, 9}
	want := replica.Message{Kind: replica.MsgAppendAck, Epoch: 9}
	for _, more := range []int{0, 13, 100} {
		header := append(appendNumbers(nil, append(list, make([]uint64, more)...)...), 0, 0)
		p, got, err := decodeMessage(rpc.Received{Header: header})
		require.NoError(t, err)
		require.Equal(t, ident.Partition{Topic: 3, Number: 2}, p)
		require.Equal(t, want, got)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	whole := received(f, encodeMessage(wirePartition, &replica.Envelope{Msg: wireMessage()}))
	f.Add(whole.Header, whole.Payload)
	f.Fuzz(func(t *testing.T, header, payload []byte) {
		p, m, err := decodeMessage(rpc.Received{Header: header, Payload: payload})
		if err != nil {
			return
		}
		again := received(t, encodeMessage(p, &replica.Envelope{Msg: m}))
		q, n, err := decodeMessage(again)
		require.NoError(t, err)
		require.Equal(t, p, q)
		require.Equal(t, m, n)
	})
}
