package dispatch

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/liveness"
	"github.com/lockstepmq/lockstep/coordinator/maintenance"
	"github.com/lockstepmq/lockstep/coordinator/query"
	"github.com/lockstepmq/lockstep/coordinator/replicas"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Components are the parts of the broker that receive frames and answer calls.
type Components struct {
	Engine    *engine.Engine
	Gateway   *gateway.Gateway
	Peers     *liveness.Peers
	Replicas  *replicas.Local
	Queues    *admin.Queues
	Inspector *query.Inspector
	Directory *query.Directory
	Repair    *maintenance.Repair
	Space     *maintenance.Space
	Events    *events.Recorder // nil: none are kept
	Idleness  *maintenance.Idleness
	// Console answers a question of another broker's console.
	Console func(ctx context.Context, question []byte) ([]byte, error)
}

// table is the way in: a handler for each class of frames and each method.
type table struct {
	peer    func(n ident.Node, inc ident.Incarnation, up, refused bool)
	frames  [rpc.ClassBulk + 1]func(from ident.Node, inc ident.Incarnation, f rpc.Received)
	drained func()
	calls   map[string]handler
}

func newTable(r Components) *table {
	t := &table{peer: r.Peers.Peer, drained: r.Engine.Flush, calls: map[string]handler{}}

	t.frames[rpc.ClassReplica] = r.Engine.Receive
	t.frames[rpc.ClassBulk] = r.Engine.Receive
	t.frames[rpc.ClassForward] = r.Gateway.HandleFrame
	t.frames[rpc.ClassRelay] = r.Gateway.HandleFrame

	on(t, calls.Prepare, func(_ context.Context, _ ident.Node, req calls.PrepareRequest) (calls.Prepared, error) {
		return r.Replicas.Prepare(req)
	})
	on(t, calls.Release, func(ctx context.Context, _ ident.Node, req calls.PrepareRequest) (calls.None, error) {
		return calls.None{}, r.Replicas.Release(ctx, req)
	})
	on(t, calls.Transfer, func(_ context.Context, _ ident.Node, req calls.TransferRequest) (calls.None, error) {
		return calls.None{}, r.Engine.TransferLeadership(req.Partition, req.To)
	})
	on(t, calls.ChangeQueue, func(ctx context.Context, _ ident.Node, op calls.QueueOp) (calls.None, error) {
		return calls.None{}, r.Queues.Change(ctx, op)
	})
	on(t, calls.ChangeQueues, func(ctx context.Context, _ ident.Node, ops calls.QueueOps) (calls.QueuesDone, error) {
		return r.Queues.ChangeMany(ctx, ops), nil
	})
	on(t, calls.Seek, func(ctx context.Context, _ ident.Node, req calls.SeekRequest) (calls.SeekReply, error) {
		return r.Queues.Seek(ctx, req)
	})
	on(t, calls.FinishElsewhere, func(ctx context.Context, _ ident.Node, req calls.FinishRequest) (calls.FinishReply, error) {
		return r.Queues.FinishElsewhere(ctx, req)
	})
	on(t, calls.Deferred, func(ctx context.Context, _ ident.Node, req calls.DeferredRequest) (calls.DeferredReply, error) {
		return r.Queues.Deferred(ctx, req)
	})
	on(t, calls.Positions, func(_ context.Context, _ ident.Node, req calls.PositionsRequest) (calls.JSON[[]api.ChannelPosition], error) {
		all, err := r.Queues.Positions(req)
		return calls.JSON[[]api.ChannelPosition]{Value: all}, err
	})
	on(t, calls.Trace, func(_ context.Context, _ ident.Node, req calls.TraceRequest) (calls.JSON[api.MessageTrace], error) {
		m, err := r.Queues.Trace(req)
		return calls.JSON[api.MessageTrace]{Value: m}, err
	})
	on(t, calls.Settle, func(_ context.Context, _ ident.Node, req calls.SettleRequest) (calls.SettleReply, error) {
		return r.Gateway.SettleLed(req)
	})
	on(t, calls.Ends, func(context.Context, ident.Node, calls.None) (calls.EndsReply, error) {
		return r.Inspector.Ends(), nil
	})
	on(t, calls.Digest, func(_ context.Context, _ ident.Node, req calls.JSON[api.DigestRequest]) (calls.JSON[api.Digest], error) {
		d, err := r.Inspector.Digest(req.Value)
		return calls.JSON[api.Digest]{Value: d}, err
	})
	on(t, calls.Peek, func(_ context.Context, _ ident.Node, req calls.JSON[api.PeekRequest]) (calls.JSON[api.Peeked], error) {
		p, err := r.Inspector.PeekHere(req.Value)
		return calls.JSON[api.Peeked]{Value: p}, err
	})
	on(t, calls.Discard, func(ctx context.Context, _ ident.Node, req calls.DiscardRequest) (calls.None, error) {
		return calls.None{}, r.Replicas.Discard(ctx, req)
	})
	on(t, calls.Batches, func(_ context.Context, _ ident.Node, req calls.BatchesRequest) (calls.BatchesReply, error) {
		return r.Repair.Batches(req)
	})
	on(t, calls.Space, func(_ context.Context, _ ident.Node, n calls.SpaceNotice) (calls.None, error) {
		r.Space.Notice(n)
		return calls.None{}, nil
	})
	on(t, calls.Idle, func(_ context.Context, _ ident.Node, req calls.IdleRequest) (calls.IdleReply, error) {
		return r.Idleness.Measure(req), nil
	})
	on(t, calls.Hide, func(_ context.Context, _ ident.Node, n calls.HideNotice) (calls.None, error) {
		r.Directory.Hide(n)
		return calls.None{}, nil
	})
	on(t, calls.Failed, func(_ context.Context, from ident.Node, _ calls.None) (calls.None, error) {
		r.Peers.Failed(from)
		r.Events.Add(events.Event{
			Kind: events.Alarm, Code: events.StoreFailed, State: "degraded", Broker: from, Where: []string{string(from)},
			Text: fmt.Sprintf("%s says that its disk or a core loop does not make progress, or that its store has failed: other brokers lead until it recovers", from),
			Do:   "docs/operations/alerts.md, LockstepDiskStalled",
		})
		return calls.None{}, nil
	})
	on(t, calls.Reaches, func(_ context.Context, _ ident.Node, req calls.ReachesRequest) (calls.ReachesReply, error) {
		inc, up := r.Peers.Reached(req.Node)
		return calls.ReachesReply{Reaches: up && inc == req.Incarnation}, nil
	})
	on(t, calls.Busy, func(context.Context, ident.Node, calls.None) (calls.BusyReply, error) {
		return r.Inspector.Busy(), nil
	})
	on(t, calls.Console, func(ctx context.Context, _ ident.Node, req calls.ConsoleJSON) (calls.ConsoleJSON, error) {
		answer, err := r.Console(ctx, req.JSON)
		return calls.ConsoleJSON{JSON: answer}, err
	})
	return t
}
