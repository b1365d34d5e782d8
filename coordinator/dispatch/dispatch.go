package dispatch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// transport makes calls to other brokers; *rpc.Transport does.
type transport interface {
	Call(ctx context.Context, n ident.Node, method string, req, resp any) error
}

// Dispatcher is rpc.Handler and calls.Caller of one broker. Make it with New; Open gives it
// its components, Close ends what waits for them.
type Dispatcher struct {
	self      ident.Node
	transport transport // set before the first call
	table     atomic.Pointer[table]
	opened    chan struct{} // closed by Open or Close
	once      sync.Once
}

// New makes a dispatcher without components.
func New(self ident.Node) *Dispatcher {
	return &Dispatcher{self: self, opened: make(chan struct{})}
}

// Open lets frames and calls in, and calls out.
func (d *Dispatcher) Open(t transport, r Components) {
	d.transport = t
	d.table.Store(newTable(r))
	d.once.Do(func() { close(d.opened) })
}

// Close lets go of frames and calls that wait for Open; they are dropped.
func (d *Dispatcher) Close() { d.once.Do(func() { close(d.opened) }) }

// components waits for Open; nil if Close came first.
func (d *Dispatcher) components() *table {
	if t := d.table.Load(); t != nil {
		return t
	}
	<-d.opened
	return d.table.Load()
}

// Frame takes a frame of a peer (rpc.Handler).
func (d *Dispatcher) Frame(from ident.Node, inc ident.Incarnation, f rpc.Received) {
	t := d.components()
	if t == nil || int(f.Class) >= len(t.frames) || t.frames[f.Class] == nil {
		return
	}
	t.frames[f.Class](from, inc, f)
}

// Drained has what frames left behind written (rpc.Handler).
func (d *Dispatcher) Drained() {
	if t := d.table.Load(); t != nil {
		t.drained()
	}
}

// Peer takes a change of a peer's connection (rpc.Handler).
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

// Call asks a broker, this one without a detour (calls.Caller).
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
