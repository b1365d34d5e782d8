package dispatch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/liveness"
	"github.com/lockstepmq/lockstep/coordinator/maintenance"
	"github.com/lockstepmq/lockstep/coordinator/query"
	"github.com/lockstepmq/lockstep/coordinator/replicas"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// transport makes calls to other brokers; *rpc.Transport does.
type transport interface {
	Call(ctx context.Context, n ident.Node, method string, req, resp any) error
}

// Dispatcher is rpc.Handler and calls.Caller of one broker. Make it with New; Open gives it
// its components, Close ends what waits for them.
type Dispatcher struct {
	self      ident.Node
	transport transport // set before the first call is made
	table     atomic.Pointer[table]
	opened    chan struct{} // closed by Open or Close
	once      sync.Once
}

// New makes a dispatcher without components.
func New(self ident.Node) *Dispatcher {
	return &Dispatcher{self: self, opened: make(chan struct{})}
}

// Open admits incoming frames and calls, and outgoing calls.
func (d *Dispatcher) Open(t transport, r Components) {
	d.transport = t
	d.table.Store(newTable(r))
	d.once.Do(func() { close(d.opened) })
}

// Close drops the frames and calls that wait for Open.
func (d *Dispatcher) Close() { d.once.Do(func() { close(d.opened) }) }

// components waits for Open; nil if Close came first.
func (d *Dispatcher) components() *table {
	if t := d.table.Load(); t != nil {
		return t
	}
	<-d.opened
	return d.table.Load()
}

// Frame handles a frame of a peer (rpc.Handler).
func (d *Dispatcher) Frame(from ident.Node, inc ident.Incarnation, f rpc.Received) {
	t := d.components()
	if t == nil || int(f.Class) >= len(t.frames) || t.frames[f.Class] == nil {
		return
	}
	t.frames[f.Class](from, inc, f)
}

// Drained flushes the writes that the frames have queued (rpc.Handler).
func (d *Dispatcher) Drained() {
	if t := d.table.Load(); t != nil {
		t.drained()
	}
}

// Peer handles a change of a peer's connection (rpc.Handler).
func (d *Dispatcher) Peer(n ident.Node, inc ident.Incarnation, up, refused bool) {
	if t := d.components(); t != nil {
		t.peer(n, inc, up, refused)
	}
}

// Serve answers another broker's call (rpc.Handler).
func (d *Dispatcher) Serve(ctx context.Context, from ident.Node, method string, raw []byte) (any, error) {
	t := d.components()
	if t == nil {
		return nil, outcome.ErrExiting
	}
	h, ok := t.calls[method]
	if !ok {
		return nil, fmt.Errorf("%w: %q", rpc.ErrMethod, method)
	}
	return h(ctx, from, raw)
}

// Call makes a call to a broker; a call to this broker skips the network (calls.Caller).
func (d *Dispatcher) Call(ctx context.Context, n ident.Node, method string, req, resp any) error {
	if n != d.self {
		return d.transport.Call(ctx, n, method, req, resp)
	}
	raw, err := rpc.Marshal(req)
	if err != nil {
		return err
	}
	out, err := d.Serve(ctx, n, method, raw)
	if err != nil || out == nil {
		return err
	}
	if raw, err = rpc.Marshal(out); err != nil {
		return err
	}
	return rpc.Unmarshal(raw, resp)
}

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
	// Console answers a request of another broker's console.
	Console func(ctx context.Context, question []byte) ([]byte, error)
}

type table struct {
	peer    func(n ident.Node, inc ident.Incarnation, up, refused bool)
	frames  [rpc.ClassBulk + 1]func(from ident.Node, inc ident.Incarnation, f rpc.Received)
	drained func()
	calls   map[string]func(ctx context.Context, from ident.Node, raw []byte) (any, error)
}

func newTable(r Components) *table {
	t := &table{peer: r.Peers.Peer, drained: r.Engine.Flush, calls: map[string]func(context.Context, ident.Node, []byte) (any, error){}}

	t.frames[rpc.ClassReplica] = r.Engine.Receive
	t.frames[rpc.ClassBulk] = r.Engine.Receive
	t.frames[rpc.ClassForward] = r.Gateway.HandleFrame
	t.frames[rpc.ClassRelay] = r.Gateway.HandleFrame

	on(t, calls.Prepare, local(r.Replicas.Prepare))
	on(t, calls.Release, noReply(r.Replicas.Release))
	on(t, calls.Discard, noReply(r.Replicas.Discard))
	on(t, calls.Transfer, func(_ context.Context, req calls.TransferRequest) (calls.None, error) {
		return calls.None{}, r.Engine.TransferLeadership(req.Partition, req.To)
	})
	on(t, calls.ChangeQueue, noReply(r.Queues.Change))
	on(t, calls.ChangeQueues, func(ctx context.Context, ops calls.QueueOps) (calls.QueuesDone, error) {
		return r.Queues.ChangeMany(ctx, ops), nil
	})
	on(t, calls.Seek, r.Queues.Seek)
	on(t, calls.FinishElsewhere, r.Queues.FinishElsewhere)
	on(t, calls.Deferred, r.Queues.Deferred)
	on(t, calls.Positions, asJSON(r.Queues.Positions))
	on(t, calls.Trace, asJSON(r.Queues.Trace))
	on(t, calls.Settle, local(r.Gateway.SettleLed))
	on(t, calls.Ends, func(context.Context, calls.None) (calls.EndsReply, error) { return r.Inspector.Ends(), nil })
	on(t, calls.Busy, func(context.Context, calls.None) (calls.BusyReply, error) { return r.Inspector.Busy(), nil })
	on(t, calls.Digest, values(r.Inspector.Digest))
	on(t, calls.Peek, values(r.Inspector.PeekHere))
	on(t, calls.Batches, local(r.Repair.Batches))
	on(t, calls.Space, notice(r.Space.Notice))
	on(t, calls.Hide, notice(r.Directory.Hide))
	on(t, calls.Idle, func(_ context.Context, req calls.IdleRequest) (calls.IdleReply, error) {
		return r.Idleness.Measure(req), nil
	})
	t.calls[string(calls.Failed)] = func(_ context.Context, from ident.Node, _ []byte) (any, error) {
		r.Peers.Failed(from)
		r.Events.Add(events.Event{
			Kind: events.Alarm, Code: events.StoreFailed, State: "degraded", Broker: from, Where: []string{string(from)},
			Text: fmt.Sprintf("%s says that its disk or a core loop does not make progress, or that its store has failed; other brokers lead until it recovers", from),
			Do:   "docs/operations/alerts.md, LockstepDiskStalled",
		})
		return calls.None{}, nil
	}
	on(t, calls.Reaches, func(_ context.Context, req calls.ReachesRequest) (calls.ReachesReply, error) {
		inc, up := r.Peers.Reached(req.Node)
		return calls.ReachesReply{Reaches: up && inc == req.Incarnation}, nil
	})
	on(t, calls.Console, func(ctx context.Context, req calls.ConsoleJSON) (calls.ConsoleJSON, error) {
		answer, err := r.Console(ctx, req.JSON)
		return calls.ConsoleJSON{JSON: answer}, err
	})
	return t
}

func on[Req, Resp any](t *table, m calls.Method[Req, Resp], answer func(context.Context, Req) (Resp, error)) {
	t.calls[string(m)] = func(ctx context.Context, _ ident.Node, raw []byte) (any, error) {
		var req Req
		if _, none := any(req).(calls.None); !none {
			if err := rpc.Unmarshal(raw, &req); err != nil {
				return nil, fmt.Errorf("%w: %w", outcome.ErrInvalid, err)
			}
		}
		return answer(ctx, req)
	}
}

// local adapts a handler that does not block.
func local[Req, Resp any](answer func(Req) (Resp, error)) func(context.Context, Req) (Resp, error) {
	return func(_ context.Context, req Req) (Resp, error) { return answer(req) }
}

// asJSON adapts a handler whose reply is sent as JSON.
func asJSON[Req, Resp any](answer func(Req) (Resp, error)) func(context.Context, Req) (calls.JSON[Resp], error) {
	return func(_ context.Context, req Req) (calls.JSON[Resp], error) {
		v, err := answer(req)
		return calls.JSON[Resp]{Value: v}, err
	}
}

// values adapts a handler whose request is also sent as JSON.
func values[Req, Resp any](answer func(Req) (Resp, error)) func(context.Context, calls.JSON[Req]) (calls.JSON[Resp], error) {
	return func(ctx context.Context, req calls.JSON[Req]) (calls.JSON[Resp], error) {
		return asJSON(answer)(ctx, req.Value)
	}
}

// noReply adapts an operation that returns an error alone.
func noReply[Req any](do func(context.Context, Req) error) func(context.Context, Req) (calls.None, error) {
	return func(ctx context.Context, req Req) (calls.None, error) { return calls.None{}, do(ctx, req) }
}

// notice adapts a notification, which cannot fail.
func notice[Req any](take func(Req)) func(context.Context, Req) (calls.None, error) {
	return func(_ context.Context, req Req) (calls.None, error) {
		take(req)
		return calls.None{}, nil
	}
}
