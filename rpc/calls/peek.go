package calls

import (
	"encoding/json"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// PeekRequest is an api.PeekRequest.
// On the wire, by place: append only.
type PeekRequest struct {
	Topic       string
	Partition   uint16
	From        string
	Limit       int
	Node        ident.Node
	Uncommitted bool
	Leader      bool
}

// PeekReply is an api.Peeked.
// On the wire, by place: append only.
type PeekReply struct {
	Start, End, Next ident.Sequence
	Messages         []PeekedMessage
	Mark, NextMark   string
}

// PeekedMessage is an api.PeekedMessage.
// On the wire, by place: append only.
type PeekedMessage struct {
	ID        string
	Partition uint16
	Sequence  ident.Sequence
	Time      int64
	DeliverAt int64
	Header    rpc.Bytes
	Body      string
	Bytes     rpc.Bytes
	Trace     uint64
	// HeaderBytes is the header if Header is not what is stored.
	HeaderBytes rpc.Bytes
}

// PeekReplyOf is the answer that carries messages.
func PeekReplyOf(p api.Peeked) PeekReply {
	r := PeekReply{Start: p.Start, End: p.End, Next: p.Next, Mark: p.Mark, NextMark: p.NextMark, Messages: make([]PeekedMessage, len(p.Messages))}
	for i, m := range p.Messages {
		r.Messages[i] = PeekedMessage{
			ID: m.ID, Partition: m.Partition, Sequence: m.Sequence, Time: m.Time, DeliverAt: m.DeliverAt,
			Header: rpc.Bytes(m.Header), Body: m.Body, Bytes: m.Bytes, Trace: m.Trace, HeaderBytes: m.HeaderBytes,
		}
	}
	return r
}

// Edge are the messages as the edges have them.
func (r PeekReply) Edge() api.Peeked {
	p := api.Peeked{Start: r.Start, End: r.End, Next: r.Next, Mark: r.Mark, NextMark: r.NextMark, Messages: make([]api.PeekedMessage, len(r.Messages))}
	for i, m := range r.Messages {
		p.Messages[i] = api.PeekedMessage{
			ID: m.ID, Partition: m.Partition, Sequence: m.Sequence, Time: m.Time, DeliverAt: m.DeliverAt,
			Header: json.RawMessage(m.Header), Body: m.Body, Bytes: m.Bytes, Trace: m.Trace, HeaderBytes: m.HeaderBytes,
		}
	}
	return p
}
