package protocol

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/auth"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/lone"
	"github.com/lockstepmq/lockstep/internal/metrics"
)

// magicV2 is what a client sends first.
const magicV2 = "  V2"

// Authorizer asks the auth service what a client may do.
type Authorizer interface {
	Query(ctx context.Context, r auth.Request) (*auth.State, error)
}

// Backend is what the protocol works on.
type Backend struct {
	Publisher   edge.Publisher
	Subscribers edge.Subscribers
	Auth        Authorizer        // nil = AUTH is disabled
	Metrics     *metrics.Recorder // nil = nothing is recorded
	Log         logrus.FieldLogger
}

// Handler serves client connections. Its methods may be called by any
// goroutine.
type Handler struct {
	opts    Options
	backend Backend
	buffers buffers
	owed    lone.Count // puts of all clients that have no answer yet

	mu struct {
		sync.Mutex
		conns    map[*conn]struct{}
		stopping bool
	}
	idle chan struct{} // capacity 1: a connection ended while stopping
}

// New makes a handler.
func New(o Options, b Backend) *Handler {
	h := &Handler{opts: o, backend: b, idle: make(chan struct{}, 1)}
	h.mu.conns = map[*conn]struct{}{}
	return h
}

// Serve speaks to one client until it leaves, errs or the context ends, and
// closes raw. Both goroutines of the connection have ended when it returns.
func (h *Handler) Serve(ctx context.Context, raw net.Conn) {
	defer func() { _ = raw.Close() }()
	release := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer release()
	if !h.checkMagic(raw) {
		return
	}
	c := newConn(h, raw)
	if !h.add(c) {
		return
	}
	defer h.remove(c)
	c.serve(ctx)
}

// checkMagic reads the four bytes that choose the protocol.
func (h *Handler) checkMagic(raw net.Conn) bool {
	var magic [len(magicV2)]byte
	if _, err := io.ReadFull(raw, magic[:]); err != nil {
		return false
	}
	if string(magic[:]) == magicV2 {
		return true
	}
	o := newOutput(raw, maxClientTimeout/2, &h.buffers)
	if o.frameLocked(frameError, []byte("E_BAD_PROTOCOL")) == nil && o.flushLocked() == nil {
		o.closeWriteLocked()
		linger(raw)
	}
	return false
}

func (h *Handler) add(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.stopping {
		return false
	}
	h.mu.conns[c] = struct{}{}
	return true
}

func (h *Handler) remove(c *conn) {
	h.mu.Lock()
	delete(h.mu.conns, c)
	h.mu.Unlock()
	signal(h.idle)
}

func (h *Handler) snapshot() []*conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	conns := make([]*conn, 0, len(h.mu.conns))
	for c := range h.mu.conns {
		conns = append(conns, c)
	}
	return conns
}

// Connections is the number of clients.
func (h *Handler) Connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.conns)
}

// Producers describes the connections that have published, for /stats.
func (h *Handler) Producers() []edge.ClientStats {
	var out []edge.ClientStats
	for _, c := range h.snapshot() {
		if c.published.Load() != nil {
			out = append(out, c.stats())
		}
	}
	return out
}

// Stop ends all connections in an orderly way: no new ones, no further
// commands, every put that was read is answered. go-nsq consumers are told
// CLOSE_WAIT first, so that they still finish what they have and then go by
// themselves. Stop returns when all are gone or ctx ends; what is left is closed
// hard by ending the context given to Serve.
func (h *Handler) Stop(ctx context.Context) {
	h.mu.Lock()
	h.mu.stopping = true
	h.mu.Unlock()
	for _, c := range h.snapshot() {
		if !c.handOver() {
			c.stop()
		}
	}
	for h.Connections() > 0 {
		select {
		case <-h.idle:
		case <-ctx.Done():
			return
		}
	}
}
