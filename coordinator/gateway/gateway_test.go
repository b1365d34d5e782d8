package gateway

import (
	"io"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

var somewhere = ident.Partition{Topic: 0x0102030405060708, Number: 0x1112}

// idle is a Core that takes nothing; only the frames' decoding is under test.
type idle struct{ *broker }

func (idle) Propose(_ ident.Partition, _ queue.Draft, c outcome.Completer) {
	c.Complete(outcome.Completion{Outcome: outcome.NotLeader})
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
	rec := wire.Put{Request: ident.RequestID{Producer: 1, N: 1}, Partition: somewhere, Count: 1, CRC: d.PayloadCRC, Length: uint32(len(d.Bytes) - queue.HeaderSize), Attempt: 1}
	add(rpc.ClassForward, wire.Header{Kind: wire.FramePuts, Count: 1}, append(wire.AppendPut(nil, rec), d.Bytes...))
	add(rpc.ClassForward, wire.Header{Kind: wire.FrameReplies, Count: 1, Hints: []wire.Hint{{Node: "n2", Epoch: 3}}}, wire.AppendReply(nil, wire.Reply{Attempt: 1, Outcome: 1}))
	add(rpc.ClassRelay, wire.Header{Kind: wire.FrameOpen, Count: 1, Open: &wire.Opening{Stream: 1, Channel: "ch"}}, wire.AppendVerb(nil, wire.Verb{Kind: wire.VerbHeld}))
	add(rpc.ClassRelay, wire.Header{Kind: wire.FrameDeliver, Count: 1}, append(wire.AppendDelivery(nil, 1, &api.Delivery{Message: queue.Message{Body: []byte("b")}}), 'b'))
	add(rpc.ClassRelay, wire.Header{Kind: wire.FrameVerbs, Count: 1}, wire.AppendVerb(nil, wire.Verb{Kind: wire.VerbFinish}))
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	w := &world{leaders: map[ident.Partition]Leadership{}, topics: map[string]metadata.TopicState{}, changed: make(chan struct{})}
	g := New(idle{&broker{w: w, name: "n1"}}, nowhere{}, Options{Log: quiet})
	f.Cleanup(func() { _ = g.Close() })
	f.Fuzz(func(t *testing.T, class uint8, header, payload []byte) {
		g.HandleFrame("n2", 1, rpc.Received{Class: rpc.Class(class), Header: header, Payload: payload})
	})
}

// TestReplyOfNoAttempt: 0 stands for a put's present attempt here; no peer sends it.
func TestReplyOfNoAttempt(t *testing.T) {
	g := &Gateway{}
	for _, r := range []wire.Reply{{Attempt: 0, Outcome: outcome.Committed}, {Attempt: 1, Outcome: outcome.Committed - 1}, {Attempt: 1, Outcome: 255}} {
		require.ErrorIs(t, g.takeReplies(wire.Header{Count: 1}, wire.AppendReply(nil, r)), wire.ErrFrame, "%+v", r)
	}
	for _, o := range []outcome.Outcome{outcome.Committed, outcome.DiskFull} {
		require.NoError(t, g.takeReplies(wire.Header{Count: 1}, wire.AppendReply(nil, wire.Reply{Attempt: 1, Outcome: o})))
	}
}
