package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/peertls"
	"github.com/sirupsen/logrus"
)

// Version is the protocol version of this build. Brokers whose versions differ by at most 1 work together.
const Version = 1

// Hello is the identity of a broker; the handshake proves it. On the wire, by position: append only.
type Hello struct {
	Cluster     string
	Node        ident.Node
	Incarnation ident.Incarnation // 0 = not registered: refused
	Version     uint16            // 0 in Options = Version
	Features    uint64            // bits; this package adds its own
}

// featurePayloadCRC: payloads are sent with a checksum if both sides have this bit.
const featurePayloadCRC = 1 << 63

// Options of a Transport. Zero values take the defaults below.
type Options struct {
	Self    Hello
	Listen  net.Listener // owned by the Transport from New on
	Handler Handler
	TLS     Identity // nil = plain TCP
	Token   []byte   // cluster token; empty = none
	Log     logrus.FieldLogger
	Times   Times
	// Connections bounds the accepted connections: 1024 of brokers, 256 in their handshake.
	Connections peertls.Limits
	// Registered returns the incarnation under which a broker is registered, or 0; an earlier incarnation is refused.
	// nil = no check.
	Registered func(ident.Node) ident.Incarnation
	// Limits returns the limits of a method; nil = MaxPayload for all.
	Limits func(method string) CallLimits
	// Dial opens connections; nil = net.Dialer.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	maxServe int     // requests served at once per connection, 64; more are answered ErrBusy
	windows  windows // see defaultWindows
}

// Identity is this broker's certificate, and checks the certificates of other brokers.
type Identity interface {
	// Config returns the configuration of the next connection, for either end. For mutual TLS it requests client
	// certificates.
	Config() *tls.Config
	// Check returns an error unless the certificate belongs to the broker of this name.
	Check(cert *x509.Certificate, node string) error
}

// CallLimits bound the encoded request and response of a method, in bytes.
type CallLimits struct{ Request, Response int }

// windows bounds the bytes queued for one peer, per class; a frame beyond the bound is refused with ErrWindow. A frame
// always fits an empty queue. Class 0 is the connection's own and unbounded.
type windows [classes]int

var defaultWindows = windows{ClassReplica: 64 << 20, ClassForward: 64 << 20, ClassRelay: 32 << 20, ClassControl: 16 << 20, ClassBulk: 16 << 20}

// Times of a connection; for the times of the protocol see coordinator/replica/DESIGN.md 4.7.
type Times struct {
	Heartbeat  time.Duration // 50 ms: sent after this time if nothing else was
	Silent     time.Duration // 500 ms: after this silence the peer is reported down
	Dead       time.Duration // 1 s: after this silence the connection is closed
	Dial       time.Duration // 500 ms for the TCP connection
	Handshake  time.Duration // 1 s
	BackoffMin time.Duration // 20 ms between redials, doubled, with jitter
	BackoffMax time.Duration // 500 ms
}

// Handler receives frames, changes of peers, and requests. Peer and Frame are called in order per peer, from goroutines
// that read sockets: they do not block, and never call SetPeers, SetIncarnation or Close.
type Handler interface {
	// Frame receives one frame of a peer that was reported up.
	Frame(from ident.Node, inc ident.Incarnation, f Received)
	// Drained follows each Frame, in its goroutine, without the transport's locks. It may block. That delays only this
	// connection, which is closed and dialled again after too long a silence.
	Drained()
	// Peer is called when a peer comes up, goes silent or is gone. refused: the process of that incarnation is dead
	// (its connections have ended and its address refuses new ones); it may follow an earlier up=false.
	Peer(n ident.Node, inc ident.Incarnation, up, refused bool)
	// Serve answers a Call, on its own goroutine. ctx ends with the caller's deadline or connection.
	Serve(ctx context.Context, from ident.Node, method string, req []byte) (resp any, err error)
}

func (o Options) withDefaults() Options {
	def(&o.Self.Version, Version)
	o.Self.Features |= featurePayloadCRC
	def(&o.maxServe, 64)
	def(&o.windows, defaultWindows)
	def(&o.Connections, peertls.Limits{Admitted: 1024, Waiting: 256})
	if o.Registered == nil {
		o.Registered = func(ident.Node) ident.Incarnation { return 0 }
	}
	if o.Limits == nil {
		o.Limits = func(string) CallLimits { return CallLimits{Request: MaxPayload, Response: MaxPayload} }
	}
	def(&o.Times.Heartbeat, 50*time.Millisecond)
	def(&o.Times.Silent, 500*time.Millisecond)
	def(&o.Times.Dead, time.Second)
	def(&o.Times.Dial, 500*time.Millisecond)
	def(&o.Times.Handshake, time.Second)
	def(&o.Times.BackoffMin, 20*time.Millisecond)
	def(&o.Times.BackoffMax, 500*time.Millisecond)
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	return o
}

// def sets *v if it is zero.
func def[T comparable](v *T, value T) {
	*v = cmp.Or(*v, value)
}
