package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// magicV2 is the first four bytes of every connection.
const magicV2 = "  V2"

// stockOutputBufferTimeout is the output buffer timeout of a stock client and server without configuration. writer.settleLocked
// says how this broker uses it.
const stockOutputBufferTimeout = 250 * time.Millisecond

// maxClientTimeout is NSQ's fixed client timeout; the default heartbeat interval is half of it.
const maxClientTimeout = 60 * time.Second

// Options are the limits and features of the protocol.
type Options struct {
	Version string // in the IDENTIFY reply; clients parse it as semver

	config.Messages
	config.Connection

	TLS         *tls.Config        // nil = no TLS
	TLSRequired config.TLSRequired // whether commands other than IDENTIFY require TLS

	TopologyRegion, TopologyZone string

	// MaxPerUser bounds the connections of one user. 0: no limit.
	MaxPerUser int

	// A connection with more unanswered puts or bytes than this is not read until some of them are answered.
	MaxPendingAnswers int
	MaxPendingBytes   int
}

// DefaultOptions returns the options of a broker without settings.
func DefaultOptions() Options {
	d := config.Defaults()
	return Options{
		Version: api.Version, Messages: d.Messages, Connection: d.Connection, TLSRequired: d.TLSRequired,
		MaxPendingAnswers: 16384, MaxPendingBytes: 8 << 20,
	}
}

// Backend is the part of the broker that the protocol uses.
type Backend struct {
	Publisher   api.Publisher
	Subscribers api.Subscribers
	Guard       *guard.Guard      // nil = every client may do everything
	Metrics     *metrics.Recorder // nil = nothing is recorded
	Memory      *limits.Budget    // that clients share; nil = no limit
	// Await waits until the broker serves, for at most as long as a put that arrived at the given time would be held,
	// and reports whether it serves. Once true it stays true. nil = the broker serves.
	Await func(ctx context.Context, arrived time.Time) bool
	Log   logrus.FieldLogger // nil = nothing is logged
}

// Handler serves client connections. Its methods may be called by any goroutine.
type Handler struct {
	opts    Options
	backend Backend
	buffers buffers
	owed    concurrency.InFlight // unanswered puts of all clients

	mu struct {
		sync.Mutex
		conns    map[*conn]struct{}
		users    map[string]int // connections of each user
		stopping bool
	}
	idle concurrency.Edge // a connection ended while stopping
}

// New makes a handler.
func New(o Options, b Backend) *Handler {
	if b.Guard == nil {
		b.Guard = guard.New(guard.Options{})
	}
	if b.Log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		b.Log = silent
	}
	h := &Handler{opts: o, backend: b, idle: concurrency.NewEdge()}
	h.mu.conns, h.mu.users = map[*conn]struct{}{}, map[string]int{}
	return h
}

// Serve handles one client until the client closes, a command fails or ctx ends. It closes raw. Both goroutines of the
// connection have ended when it returns.
func (h *Handler) Serve(ctx context.Context, raw net.Conn) {
	defer closing(ctx, raw)()
	if !h.checkMagic(raw) {
		return
	}
	c := newConn(h, raw)
	c.seat = api.SeatOf(ctx)
	if !h.add(c) {
		return
	}
	defer h.remove(c)
	c.serve(ctx)
	c.logEnd()
}

func closing(ctx context.Context, raw net.Conn) func() {
	release := context.AfterFunc(ctx, func() { _ = raw.Close() })
	return func() {
		release()
		_ = raw.Close()
	}
}

func (h *Handler) checkMagic(raw net.Conn) bool {
	var magic [len(magicV2)]byte
	_ = raw.SetReadDeadline(time.Now().Add(h.opts.LoginTimeout)) // a closed socket fails at the read
	if _, err := io.ReadFull(raw, magic[:]); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			h.backend.Metrics.Add(metrics.RefusedTCPMagic, 1)
		}
		return false
	}
	if string(magic[:]) == magicV2 {
		return true
	}
	h.backend.Log.WithFields(logrus.Fields{"client": raw.RemoteAddr().String(), api.LogStranger: true}).
		Info("client refused: its first bytes are not those of the NSQ protocol")
	h.farewell(raw, "E_BAD_PROTOCOL")
	return false
}

// farewell sends one error frame to a client that is not served.
func (h *Handler) farewell(raw net.Conn, text string) {
	o := newOutput(raw, lingerTime, &h.buffers)
	if o.frameLocked(frameError, []byte(text)) == nil && o.flushLocked() == nil {
		o.closeWriteLocked()
		linger(raw)
	}
}

// Refuse notifies a client that there are too many connections, and closes raw within a few seconds.
func (h *Handler) Refuse(ctx context.Context, raw net.Conn, why string) {
	defer closing(ctx, raw)()
	h.farewell(raw, codeTooMany+" "+why)
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
	h.unseatLocked(c)
	h.mu.Unlock()
	h.idle.Notify()
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

// Connections returns the number of clients.
func (h *Handler) Connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.conns)
}

// Clients counts the clients: those that have subscribed, those that have only published, and the rest.
func (h *Handler) Clients() (consumers, producers, idle int) {
	for _, c := range h.snapshot() {
		switch {
		case c.attached.Load() != nil:
			consumers++
		case c.published.Load() != nil:
			producers++
		default:
			idle++
		}
	}
	return consumers, producers, idle
}

// Producers describes, for /stats, the connections that have published.
func (h *Handler) Producers() []api.ClientStats {
	var out []api.ClientStats
	for _, c := range h.snapshot() {
		if c.published.Load() != nil {
			out = append(out, c.stats())
		}
	}
	return out
}

// Consumers describes the connections here that have subscribed to a channel.
func (h *Handler) Consumers(topic, channel string) []api.ConsumerStats {
	var out []api.ConsumerStats
	for _, c := range h.snapshot() {
		if of := c.consumes.Load(); of != nil && of.topic == topic && of.channel == channel {
			x := api.ConsumerStats{ClientStats: c.stats(), LastActivity: time.Unix(0, c.active.Load())}
			if sub := c.attached.Load(); sub != nil {
				x.Oldest = (*sub).Oldest()
			}
			out = append(out, x)
		}
	}
	return out
}

// Stop ends all connections in order: new connections and further commands are refused, and every put that was read is
// answered. The consumers that understand CLOSE_WAIT receive it first, so that they finish their messages and close.
// Stop returns when no connection is left or when ctx ends. The end of the context of Serve closes the remaining ones
// at once.
func (h *Handler) Stop(ctx context.Context) {
	h.mu.Lock()
	h.mu.stopping = true
	h.mu.Unlock()
	for _, c := range h.snapshot() {
		if !c.announceClose() {
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
