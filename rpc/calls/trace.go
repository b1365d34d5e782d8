package calls

import (
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// Trace gives the state of one message at the leader of its partition.
const Trace Method[TraceRequest, TraceReply] = "queue.trace"

// TraceRequest names the message.
// On the wire, by place: append only.
type TraceRequest struct {
	Topic    uint64
	Number   uint16
	Sequence ident.Sequence
}

// Partition names the partition.
func (r TraceRequest) Partition() ident.Partition {
	return partition(r.Topic, r.Number)
}

// TraceReply is the part of an api.MessageTrace that the leader has.
// On the wire, by place: append only.
type TraceReply struct {
	State     string
	Time      int64
	DeliverAt int64
	Bytes     int
	Header    rpc.Bytes
	Committed ident.Sequence
	Channels  []ChannelTrace
}

// ChannelTrace is an api.ChannelTrace.
// On the wire, by place: append only.
type ChannelTrace struct {
	Channel  string
	State    string
	Attempts uint16
	Deadline int64
	Clients  []string
}

// ChannelTracesOf are the states that the answer carries.
func ChannelTracesOf(list []api.ChannelTrace) (out []ChannelTrace) {
	for _, c := range list {
		out = append(out, ChannelTrace(c))
	}
	return out
}

// Edge are the states as the edges have them.
func (r TraceReply) Edge() []api.ChannelTrace {
	out := []api.ChannelTrace{}
	for _, c := range r.Channels {
		out = append(out, api.ChannelTrace(c))
	}
	return out
}
