package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// Transport is one broker's end of all its connections to the others.
type Transport struct {
	o     Options
	log   logrus.FieldLogger
	start time.Time // origin of the clock that now reads
	self  atomic.Pointer[Hello]
	peers atomic.Pointer[map[ident.Node]*peer] // immutable maps; replaced under book
	book  sync.Mutex
	gate  *peertls.Gate // accepted connections

	refusals *peertls.Refusals
	resumed  atomic.Int64 // when the watch last detected that this process had been suspended

	counts counts
	closed atomic.Bool        // Close sets it first
	cancel context.CancelFunc // ends accept, watch and the accepted connections
	own    sync.WaitGroup
}

// New starts a Transport on o.Listen. It dials no peer before SetPeers.
func New(o Options) *Transport {
	o = o.withDefaults()
	t := &Transport{o: o, log: o.Log, start: time.Now(), gate: peertls.NewGate(o.Connections)}
	t.refusals = peertls.NewRefusals(t.log)
	t.self.Store(&o.Self)
	t.peers.Store(&map[ident.Node]*peer{})
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.own.Go(func() { t.accept(ctx) })
	t.own.Go(func() { t.watch(ctx) })
	return t
}

// SetPeers replaces the address book: it dials new peers and changed addresses, and disconnects and
// refuses peers that are no longer in it. The broker's own entry is ignored.
func (t *Transport) SetPeers(addresses map[ident.Node]string) {
	t.book.Lock()
	defer t.book.Unlock()
	if t.closed.Load() {
		return
	}
	old, next := *t.peers.Load(), make(map[ident.Node]*peer, len(addresses))
	for node, address := range addresses {
		if node == t.self.Load().Node {
			continue
		}
		if p := old[node]; p != nil {
			p.readdress(address)
			next[node] = p
			continue
		}
		ctx, stop := context.WithCancel(context.Background()) // stopped by removal or Close
		p := newPeer(t, node, address, stop)
		next[node] = p
		t.own.Go(func() { p.runConnection(ctx) })
	}
	t.peers.Store(&next)
	for node, p := range old {
		if next[node] == nil {
			p.end(errRemoved)
			p.stop()
		}
	}
}

// SetIncarnation changes the incarnation of this broker. It replaces all connections, so that every
// peer receives the new one.
func (t *Transport) SetIncarnation(inc ident.Incarnation) {
	t.book.Lock()
	defer t.book.Unlock()
	self := *t.self.Load()
	if self.Incarnation == inc {
		return
	}
	self.Incarnation = inc
	t.self.Store(&self) // before the close, so that attach closes the connections of handshakes that used the old incarnation
	for _, p := range *t.peers.Load() {
		p.end(errIncarnation)
		p.redial.Notify()
	}
}

// Send queues one frame for a peer and never blocks. Without an error the frame arrives unless the
// connection breaks. With ErrDown, ErrWindow or errTooLarge it is dropped.
func (t *Transport) Send(to ident.Node, f Frame) error {
	c, err := t.queue(to, f)
	if err == nil {
		c.out.wake.Notify()
	}
	return err
}

// Queue is like Send, but the frame may wait for further frames: Flush must follow.
func (t *Transport) Queue(to ident.Node, f Frame) error {
	_, err := t.queue(to, f)
	return err
}

// queue is conn.queue for a peer, and counts the frame.
func (t *Transport) queue(to ident.Node, f Frame) (*conn, error) {
	if f.Class == 0 || f.Class >= classes {
		panic("rpc: frame of " + f.Class.String())
	}
	c := t.sender(to)
	err := c.queue(f)
	if err != nil {
		t.counts.dropped[f.Class].Add(1)
	} else {
		t.counts.sent[f.Class].Add(1)
	}
	return c, err
}

// queue puts a frame into the outbox. A nil c is no connection: ErrDown.
func (c *conn) queue(f Frame) (err error) {
	if c == nil {
		return ErrDown
	}
	out := newOutFrame(kindFrame, f.Class, f.Payload)
	if out.header, err = appendMarshal(out.header, f.Header); err != nil {
		out.free()
		return err
	}
	return c.out.add(out)
}

func (t *Transport) sender(n ident.Node) *conn {
	if p := (*t.peers.Load())[n]; p != nil {
		return p.sender.Load()
	}
	return nil
}

// Up reports whether the peer is connected both ways and not silent.
func (t *Transport) Up(n ident.Node) bool {
	p := (*t.peers.Load())[n]
	return p != nil && p.isUp.Load()
}

// Unanswered reports whether the address of a peer neither answers nor refuses connections: its process is suspended or
// hangs, or its host is off or unreachable.
func (t *Transport) Unanswered(n ident.Node) bool {
	p := (*t.peers.Load())[n]
	return p != nil && p.silent.Load()
}

// Peer is the hello of a connected peer; false while there is no connection to it.
func (t *Transport) Peer(n ident.Node) (Hello, bool) {
	if c := t.sender(n); c != nil {
		return c.peer, true
	}
	return Hello{}, false
}

// Close ends all connections and waits for all goroutines, including requests being served. Queued
// frames are dropped. The Handler is not called afterwards.
func (t *Transport) Close() error {
	t.book.Lock()
	t.closed.Store(true)
	t.cancel()
	err := t.o.Listen.Close()
	for _, p := range *t.peers.Load() {
		p.stop()
		p.end(errClosed)
	}
	t.book.Unlock()
	t.own.Wait()
	t.refusals.Close()
	return err
}

// accept takes connections. Started by New, ends when Close closes the listener.
func (t *Transport) accept(ctx context.Context) {
	for {
		raw, err := t.o.Listen.Accept()
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			if err == nil {
				_ = raw.Close()
			}
			return
		}
		if err != nil {
			t.log.WithError(err).Error("cannot accept connections")
			concurrency.Sleep(ctx, t.o.Times.BackoffMax) // probably out of file descriptors
			continue
		}
		seat := t.gate.Enter(raw)
		t.own.Go(func() {
			defer seat.Leave()
			t.serve(ctx, raw, seat)
		})
	}
}

// errFull refuses a broker beyond the limit.
var errFull = errors.New("too many connections of brokers")

// serve performs the handshake of an accepted connection and reads it to its end.
func (t *Transport) serve(ctx context.Context, raw net.Conn, seat *peertls.Seat) {
	tune(raw)
	c := t.newConn(raw, false)
	if t.o.TLS != nil {
		c.nc = tls.Server(raw, t.tls())
	}
	stop := context.AfterFunc(ctx, func() { c.close(errClosed) })
	defer stop()
	var p *peer
	err := c.shake(func(h handshake) (Hello, error) {
		return h.accept(func(peer Hello) (err error) {
			if p, err = t.admit(peer); err == nil && !seat.Admit() {
				err = errFull
			}
			return err
		})
	})
	if err != nil {
		t.logRefused(c, err)
		c.close(err)
		return
	}
	cause := c.run(ctx, p)
	if errors.Is(cause, errMalformed) && !errors.Is(cause, errChecksum) {
		p.log.WithError(cause).Warn("peer sent a malformed frame, connection closed")
	}
}

// admit finds the peer in the address book.
func (t *Transport) admit(h Hello) (*peer, error) {
	p := (*t.peers.Load())[h.Node]
	if p == nil {
		return nil, fmt.Errorf("node %q %s", h.Node, notYet)
	}
	if now := t.o.Registered(h.Node); h.Incarnation < now {
		return nil, fmt.Errorf("incarnation %d is over, %d is registered", h.Incarnation, now)
	}
	return p, p.admits(h)
}

func (t *Transport) logRefused(c *conn, err error) {
	if t.closed.Load() || errors.Is(err, io.EOF) {
		return // a probe that connects and sends nothing
	}
	fields := logrus.Fields{logrus.ErrorKey: err, "remote": c.raw.RemoteAddr(), "node": clip(string(c.peer.Node))}
	if levelOf(err) == logrus.DebugLevel {
		t.log.WithFields(fields).Debug("connection refused")
		return
	}
	t.refusals.Warn(string(c.peer.Node)+reason(err), fields, "connection refused")
}

// tls returns the configuration of the next connection.
func (t *Transport) tls() *tls.Config {
	c := t.o.TLS.Config().Clone()
	c.MinVersion = tls.VersionTLS13 // the proof requires the exporter of TLS 1.3
	return c
}

// watch checks all peers often enough to notice a silent one in time. Started by New, ends with Close.
func (t *Transport) watch(ctx context.Context) {
	last := t.now()
	concurrency.Every(ctx, t.o.Times.Silent/10, func() {
		now := t.now()
		if now-last > int64(t.o.Times.Silent/2) {
			t.resumed.Store(now) // this process was suspended, and frames that have arrived since are unread
		}
		last = now
		for _, p := range *t.peers.Load() {
			p.check()
		}
	})
}

// now is the time in nanoseconds since New, monotonic.
func (t *Transport) now() int64 { return int64(time.Since(t.start)) }

// silence is the time since the last byte on c, without the time for which this process was suspended.
func (t *Transport) silence(c *conn) time.Duration {
	return time.Duration(t.now() - max(c.lastRead.Load(), t.resumed.Load()))
}

// Counters of a Transport since it was made; the arrays are indexed by Class.
type Counters struct {
	Sent     [classes]uint64 // frames that Send took
	Dropped  [classes]uint64 // frames that Send refused
	Connects uint64          // connections dialled with success
	Corrupt  uint64          // connections closed because of a checksum

	Accepted peertls.Counts // accepted connections, also those that have not proved to be from a broker
}

// counts is the source of Counters. Any goroutine adds.
type counts struct {
	sent, dropped [classes]atomic.Uint64
	connects      atomic.Uint64
	corrupt       atomic.Uint64
}

// Counters reads the counters. They are not read at one instant.
func (t *Transport) Counters() Counters {
	c := Counters{Connects: t.counts.connects.Load(), Corrupt: t.counts.corrupt.Load(), Accepted: t.gate.Counts()}
	for i := range classes {
		c.Sent[i], c.Dropped[i] = t.counts.sent[i].Load(), t.counts.dropped[i].Load()
	}
	return c
}

// traffic counts the bytes of one peer's connections.
type traffic struct{ sent, received atomic.Uint64 }

type peerTraffic struct {
	Node           ident.Node
	Up             bool
	Queued         int    // bytes in the send queue
	Sent, Received uint64 // bytes since the Transport was made
}

// Traffic lists the peers of the address book, sorted. It takes no lock that a Handler may hold.
func (t *Transport) Traffic() []peerTraffic {
	book := *t.peers.Load()
	out := make([]peerTraffic, 0, len(book))
	for n, p := range book {
		row := peerTraffic{Node: n, Up: p.isUp.Load(), Sent: p.traffic.sent.Load(), Received: p.traffic.received.Load()}
		if c := p.sender.Load(); c != nil {
			row.Queued = c.out.queuedBytes()
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b peerTraffic) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// queuedBytes is the number of bytes in the queues.
func (o *outbox) queuedBytes() (bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.mu.queued {
		bytes += n
	}
	return bytes
}
