package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc"
)

// none is an empty answer.
type none struct{}

// The verbs of a queueOp.
const (
	verbChannelCreate  = "channel.create"
	verbChannelDelete  = "channel.delete"
	verbChannelEmpty   = "channel.empty"
	verbChannelPause   = "channel.pause"
	verbChannelUnpause = "channel.unpause"
	verbChannelSeek    = "channel.seek"
	verbChannelOrder   = "channel.order"
	verbTopicPause     = "topic.pause"
	verbTopicUnpause   = "topic.unpause"
	verbTopicEmpty     = "topic.empty"
)

// queueOp is one operation on the channels of one partition, carried out by its
// leader, idempotent.
type queueOp struct {
	Topic   uint64
	Number  uint16
	Verb    string
	Channel string
	ID      uint64 // create, delete: of the channel's key; 0 for an ephemeral one
	From    string
	First   bool
	Ordered bool
	Paused  bool
	Idle    bool // seek: only if nobody consumes
}

// queueOps is one operation on several partitions of its topic, which the broker that
// is asked leads; the answer names those where it is done.
type queueOps struct {
	Op      queueOp
	Numbers []uint16
}

type queueOpsResponse struct{ Done []uint16 }

// call asks a broker, this one without a detour. Requests and answers are plain
// structs of this package.
func (b *Broker) call(ctx context.Context, n ident.Node, method string, req, resp any) error {
	if n != b.self {
		return b.rpc.Call(ctx, n, method, req, resp)
	}
	raw, err := rpc.Marshal(req)
	if err != nil {
		return err
	}
	out, err := b.members.Serve(ctx, n, method, raw)
	if err != nil || out == nil {
		return err
	}
	if raw, err = rpc.Marshal(out); err != nil {
		return err
	}
	return rpc.Unmarshal(raw, resp)
}

// Serve answers another broker's Call (rpc.Handler).
func (m *membership) Serve(ctx context.Context, from ident.Node, method string, raw []byte) (any, error) {
	b := m.broker
	switch method {
	case methodPrepare:
		return serve(raw, func(req prepareRequest) (any, error) { return b.servePrepare(req) })
	case methodRelease:
		return serve(raw, func(req prepareRequest) (any, error) { return none{}, b.serveRelease(ctx, req) })
	case methodQueue:
		return serve(raw, func(op queueOp) (any, error) { return none{}, b.serveQueue(ctx, op) })
	case methodQueues:
		return serve(raw, func(ops queueOps) (any, error) { return b.serveQueues(ctx, ops), nil })
	case methodDeferred:
		return serve(raw, func(req deferredRequest) (any, error) { return b.serveDeferred(ctx, req) })
	case methodEnds:
		return b.serveEnds(), nil
	case methodTopics:
		return b.Stats().Topics("", "", false), nil
	case methodDigest:
		return serve(raw, func(req DigestRequest) (any, error) { return b.Digest(req) })
	case methodBatches:
		return serve(raw, func(req batchesRequest) (any, error) { return b.serveBatches(req) })
	case methodFailed:
		m.failedPeer(from)
		return none{}, nil
	case methodHide:
		return serve(raw, func(req hideNotice) (any, error) { b.hidden.add(req.Topic, req.Node); return none{}, nil })
	case methodSpace:
		return serve(raw, func(n spaceNotice) (any, error) { return none{}, b.serveSpace(n) })
	case methodHandOver:
		return serve(raw, func(req handOverRequest) (any, error) { return none{}, b.serveHandOver(req) })
	}
	return nil, fmt.Errorf("%w: %q", rpc.ErrMethod, method)
}

func serve[T any](raw []byte, f func(T) (any, error)) (any, error) {
	var req T
	if err := rpc.Unmarshal(raw, &req); err != nil {
		return nil, fmt.Errorf("%w: %w", edge.ErrInvalid, err)
	}
	return f(req)
}

// retryable reports whether another leader, or the same one later, may do it.
func retryable(err error) bool {
	if errors.Is(err, edge.ErrInvalid) {
		return false
	}
	c := rpc.ClassOf(err)
	return c == rpc.RetryHere || c == rpc.RetryElsewhere || c == rpc.LeaveISR || errors.Is(err, rpc.ErrBroken)
}

// serveQueue carries out an operation on a partition led here.
func (b *Broker) serveQueue(ctx context.Context, op queueOp) error {
	p := ident.Partition{Topic: ident.TopicID(op.Topic), Number: op.Number}
	h, ok := b.host(p)
	if !ok {
		return rpc.ErrNoPartition
	}
	if !h.Leading() {
		return rpc.ErrNotLeader
	}
	return queueError(b.queueVerb(ctx, h, op))
}

// serveQueues carries out an operation on several partitions at once: they share the
// syncs.
func (b *Broker) serveQueues(ctx context.Context, ops queueOps) (resp queueOpsResponse) {
	done := make([]bool, len(ops.Numbers))
	parallel(len(done), nsqd.MaxPartitions, func(i int) {
		op := ops.Op
		op.Number = ops.Numbers[i]
		done[i] = b.serveQueue(ctx, op) == nil
	})
	for i, n := range ops.Numbers {
		if done[i] {
			resp.Done = append(resp.Done, n)
		}
	}
	return resp
}

// queueError says in the cluster's terms what a queue answered.
func queueError(err error) error {
	switch {
	case errors.Is(err, nsqd.ErrNotLeader), errors.Is(err, nsqd.ErrNotReplicated):
		return fmt.Errorf("%w: %w", rpc.ErrNotLeader, err) // idempotent: whoever leads next does it again
	case errors.Is(err, nsqd.ErrDeleted):
		return fmt.Errorf("%w: %w", edge.ErrChannelNotFound, err)
	}
	return err
}

func (b *Broker) queueVerb(ctx context.Context, h *hosted, op queueOp) error {
	q := h.queue
	switch op.Verb {
	case verbChannelCreate:
		return b.serveCreate(ctx, h, op)
	case verbChannelDelete:
		return b.serveDelete(ctx, h, op)
	case verbChannelEmpty:
		return q.EmptyChannel(ctx, op.Channel)
	case verbChannelSeek:
		if c, ok := q.Channel(op.Channel); ok && op.Idle && c.Consumers() > 0 {
			return nil
		}
		o, err := channelOptions(h, op)
		if err != nil {
			return err
		}
		return q.MoveChannel(ctx, op.Channel, o)
	case verbChannelOrder:
		return q.OrderChannel(ctx, op.Channel, op.Ordered)
	case verbChannelPause, verbChannelUnpause:
		leave, err := b.oneByOne(ctx, h, op.Channel)
		if err != nil {
			return err
		}
		defer leave()
		if op.Verb == verbChannelPause {
			return q.PauseChannel(ctx, op.Channel)
		}
		return q.UnpauseChannel(ctx, op.Channel)
	case verbTopicPause:
		return q.PauseTopic(ctx)
	case verbTopicUnpause:
		return q.UnpauseTopic(ctx)
	case verbTopicEmpty:
		return q.EmptyTopic(ctx)
	}
	return fmt.Errorf("%w: verb %q", edge.ErrInvalid, op.Verb)
}

// earliestTimeNS separates the two numbers that From may be: a sequence, or a
// time since 1970 in nanoseconds (this one is in January 1970 + 11 days).
const earliestTimeNS = 1_000_000_000_000_000

// placeOf reads a time (RFC 3339, or unix ns) or a sequence.
func placeOf(from string) (uint64, error) {
	if at, err := time.Parse(time.RFC3339Nano, from); err == nil && at.UnixNano() >= earliestTimeNS {
		return uint64(at.UnixNano()), nil
	}
	n, err := strconv.ParseUint(from, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not earliest, latest, a time or a sequence", edge.ErrInvalid, from)
	}
	return n, nil
}

// checkOrigin refuses what no leader would understand, before anybody is told.
func checkOrigin(from string) error {
	switch from {
	case "", "latest", "earliest":
		return nil
	}
	_, err := placeOf(from)
	return err
}

// channelOptions turns From into the place where a channel begins.
func channelOptions(h *hosted, op queueOp) (nsqd.ChannelOptions, error) {
	o := nsqd.ChannelOptions{Ordered: op.Ordered}
	switch op.From {
	case "":
		if op.First {
			o.Origin = nsqd.FromBacklog
		}
		return o, nil
	case "latest":
		return o, nil
	case "earliest":
		o.Origin = nsqd.FromEarliest
		return o, nil
	}
	n, err := placeOf(op.From)
	if err != nil {
		return o, err
	}
	o.Origin, o.Sequence = nsqd.FromSequence, ident.Sequence(n)
	if n < earliestTimeNS {
		return o, nil
	}
	if r, ok := h.store.Index().AtTime(int64(n) / 1e6); ok {
		o.Sequence = r.First
		return o, nil
	}
	o.Origin = nsqd.FromLatest
	return o, nil
}
