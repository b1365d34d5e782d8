package gateway

import (
	"encoding/hex"
	"io"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

var somewhere = ident.Partition{Topic: 0x0102030405060708, Number: 0x1112}

// The golden bytes of doc.go: a change of them is a change of the protocol.
func TestRecordsHaveTheirBytes(t *testing.T) {
	p := putRecord{
		Request: ident.RequestID{Producer: 0xa1, N: 0xa2}, Partition: somewhere, Epoch: 0xa3,
		Attempt: 0xa4, Count: 0xa5, CRC: 0xa6, Length: 0xa7,
	}
	require.Equal(t, "a100000000000000"+"a200000000000000"+"0807060504030201"+"a300000000000000"+
		"a4000000"+"a5000000"+"a6000000"+"a7000000"+"1211"+"0000", hex.EncodeToString(appendPut(nil, p)))
	require.Equal(t, p, decodePut(appendPut(nil, p)))

	r := reply{
		Request: ident.RequestID{Producer: 0xa1, N: 0xa2}, Partition: somewhere, First: 0xa3,
		Attempt: 0xa4, Outcome: replica.InDoubt,
	}
	require.Equal(t, "a100000000000000"+"a200000000000000"+"0807060504030201"+"a300000000000000"+
		"a4000000"+"1211"+"06"+"00", hex.EncodeToString(appendReply(nil, r)))
	require.Equal(t, r, decodeReply(appendReply(nil, r)))

	v := verb{Kind: verbRequeue, Stream: 0xa1, Sequence: 0xa2, Argument: 0xa3, Epoch: 0xa4}
	require.Equal(t, "a100000000000000"+"a200000000000000"+"a300000000000000"+"a4000000"+"02"+"000000",
		hex.EncodeToString(appendVerb(nil, v)))
	require.Equal(t, v, decodeVerb(appendVerb(nil, v)))

	d := edge.Delivery{Epoch: 0xa3, Message: queue.Message{
		Seq: 0xa2, Time: 0xa4, Trace: 0xa5, Header: []byte("h"), Body: []byte("bo"), Attempts: 0xa6,
	}}
	b := appendDelivery(nil, 0xa1, &d)
	require.Equal(t, "a100000000000000"+"a200000000000000"+"a300000000000000"+"a400000000000000"+
		"a500000000000000"+"01000000"+"02000000"+"a600"+"000000000000", hex.EncodeToString(b))
	stream, got, rest, err := decodeDelivery(b, []byte("hbo!"))
	require.NoError(t, err)
	require.EqualValues(t, 0xa1, stream)
	require.Equal(t, d, got)
	require.Equal(t, "!", string(rest))
	require.Len(t, b, deliverSize)
}

func TestSizesOfRecords(t *testing.T) {
	require.Len(t, appendPut(nil, putRecord{}), putSize)
	require.Len(t, appendReply(nil, reply{}), replySize)
	require.Len(t, appendVerb(nil, verb{}), verbSize)
}

func TestHeadersGoOverTheWireUnchanged(t *testing.T) {
	for _, want := range []forwardHeader{{Kind: framePuts, Count: 300}, {Kind: frameReplies, Count: 1, Hints: []hint{{Node: "n2", Epoch: 3}}}} {
		b, err := rpc.Marshal(want)
		require.NoError(t, err)
		var got forwardHeader
		require.NoError(t, got.decode(b))
		require.Equal(t, want, got)
	}
	open := relayHeader{Kind: frameOpen, Open: &opening{Stream: 1, Channel: "ch", Client: edge.ClientStats{Hostname: "h"}}}
	for _, want := range []relayHeader{{Kind: frameVerbs, Count: 2}, open} {
		b, err := rpc.Marshal(want)
		require.NoError(t, err)
		var got relayHeader
		require.NoError(t, got.decode(b))
		require.Equal(t, want, got)
	}
	for _, bad := range [][]byte{nil, {1}, {1, 0x80}, append(appendHeader(nil, frameReplies, 1), 0xc1), appendHeader(nil, framePuts, 1<<32)} {
		require.Error(t, new(forwardHeader).decode(bad), "%x", bad)
		require.Error(t, new(relayHeader).decode(bad), "%x", bad)
	}
}

// idle is a Core that takes nothing; only the frames' decoding is under test.
type idle struct{ *broker }

func (idle) Propose(_ ident.Partition, _ queue.Draft, c Completer) {
	c.Complete(replica.Completion{Outcome: replica.NotLeader})
}

type nowhere struct{}

func (nowhere) Send(ident.Node, rpc.Frame) error  { return rpc.ErrDown }
func (nowhere) Queue(ident.Node, rpc.Frame) error { return rpc.ErrDown }
func (nowhere) Flush(ident.Node)                  {}
func (nowhere) Up(ident.Node) bool                { return false }

// FuzzHandleFrame: no bytes of a peer make the gateway panic.
func FuzzHandleFrame(f *testing.F) {
	add := func(class rpc.Class, header any, payload []byte) {
		h, err := rpc.Marshal(header)
		require.NoError(f, err)
		f.Add(uint8(class), h, payload)
	}
	d := draft("x")
	rec := putRecord{Request: ident.RequestID{Producer: 1, N: 1}, Partition: somewhere, Count: 1, CRC: d.PayloadCRC, Length: uint32(len(d.Bytes) - queue.HeaderSize), Attempt: 1}
	add(rpc.ClassForward, forwardHeader{Kind: framePuts, Count: 1}, append(appendPut(nil, rec), d.Bytes...))
	add(rpc.ClassForward, forwardHeader{Kind: frameReplies, Count: 1, Hints: []hint{{Node: "n2", Epoch: 3}}}, appendReply(nil, reply{Attempt: 1, Outcome: 1}))
	add(rpc.ClassRelay, relayHeader{Kind: frameOpen, Count: 1, Open: &opening{Stream: 1, Channel: "ch"}}, appendVerb(nil, verb{Kind: verbHeld}))
	add(rpc.ClassRelay, relayHeader{Kind: frameDeliver, Count: 1}, append(appendDelivery(nil, 1, &edge.Delivery{Message: queue.Message{Body: []byte("b")}}), 'b'))
	add(rpc.ClassRelay, relayHeader{Kind: frameVerbs, Count: 1}, appendVerb(nil, verb{Kind: verbFinish}))
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	w := &world{leaders: map[ident.Partition]Leadership{}, topics: map[string]Topic{}, changed: make(chan struct{})}
	g := New(idle{&broker{w: w, name: "n1"}}, nowhere{}, Options{Log: quiet})
	f.Cleanup(func() { _ = g.Close() })
	f.Fuzz(func(t *testing.T, class uint8, header, payload []byte) {
		g.HandleFrame("n2", 1, rpc.Received{Class: rpc.Class(class), Header: header, Payload: payload})
	})
}

// TestReplyOfNoAttempt: 0 stands for a put's present attempt here, which the peer
// cannot know.
func TestReplyOfNoAttempt(t *testing.T) {
	g := &Gateway{}
	for _, r := range []reply{{Attempt: 0, Outcome: replica.Committed}, {Attempt: 1, Outcome: replica.Committed - 1}, {Attempt: 1, Outcome: replica.DiskFull + 1}} {
		require.ErrorIs(t, g.takeReplies(forwardHeader{Count: 1}, appendReply(nil, r)), errFrame, "%+v", r)
	}
	for _, o := range []replica.Outcome{replica.Committed, replica.DiskFull} {
		require.NoError(t, g.takeReplies(forwardHeader{Count: 1}, appendReply(nil, reply{Attempt: 1, Outcome: o})))
	}
}
