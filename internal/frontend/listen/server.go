package listen

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// Limits of an HTTP client, in addition to Options and bodyTimeout. NSQ has none; without them a client that sends half
// a request would occupy a connection forever.
const (
	defaultLoginTimeout = 10 * time.Second
	idleTimeout         = 2 * time.Minute
	maxHeaderBytes      = 64 << 10
)

// Port is one of the ports for clients.
type Port int

// The ports.
const (
	TCP Port = iota
	HTTP
	HTTPS
	Lookup
)

var portNames = [...]string{"TCP", "HTTP", "HTTPS", "lookup HTTP"}

// Options say where to listen.
type Options struct {
	// Addresses are those of the ports. An empty one opens no port; one that is not host:port is the path of a unix socket.
	Addresses [4]string
	TLS       *TLS // nil = no HTTPS
	// MaxTCP and MaxHTTP bound the open connections at the TCP port, and at all other ports together. 0: no limit.
	MaxTCP, MaxHTTP int
	// MaxTCPPerAddress and MaxHTTPPerAddress bound the connections of one address. 0: no limit.
	MaxTCPPerAddress, MaxHTTPPerAddress int
	// MaxTCPWaiting and MaxHTTPWaiting bound the connections without a login, while Open is false. A further one
	// displaces another. 0: no limit.
	MaxTCPWaiting, MaxHTTPWaiting int
	// Ready reports whether clients can log in; nil: yes. Before that MaxTCPWaiting and MaxHTTPWaiting are not enforced:
	// after a restart all clients connect at the same moment, and have to wait. Like Open it is not called before
	// Start.
	Ready func() bool
	// Open reports whether every client may do everything, without a login; nil: yes. It is not called before Start.
	Open func() bool
	// Farewells is how many refused TCP clients may read the reason at the same time; the others are closed without
	// one.
	Farewells int
	// SpareHTTP is how many connections above MaxHTTP and MaxHTTPPerAddress may ask for a probe.
	SpareHTTP int
	// LoginTimeout bounds a TLS handshake and the headers of a request; 0: 10 s.
	LoginTimeout time.Duration
	Metrics      *metrics.Recorder // nil = nothing is counted
	Log          logrus.FieldLogger
}

// tcpHandler serves the connections of the TCP port. *tcp.Handler implements it.
type tcpHandler interface {
	// Serve handles one client until the client closes or ctx ends, and closes conn.
	Serve(ctx context.Context, conn net.Conn)
	// Refuse sends one client the reason why it is not served, and closes conn.
	Refuse(ctx context.Context, conn net.Conn, why string)
	// Stop ends all connections in order; it returns when ctx ends at the latest.
	Stop(ctx context.Context)
}

// Handlers serve the ports. A handler may be nil if its port is not open.
type Handlers struct {
	TCP                 tcpHandler
	HTTP, HTTPS, Lookup http.Handler
}

// Server owns a broker's client-facing sockets.
type Server struct {
	opts        Options
	listeners   [4]net.Listener // by port; nil: it is not open
	tcpHandler  tcpHandler
	httpServers []*http.Server
	tcpSeats    *seats
	httpSeats   *httpSeats
	farewells   chan struct{} // a seat for each refused TCP client that reads the reason
	failed      chan error
	wg          sync.WaitGroup
	cancel      context.CancelFunc // closes the TCP connections at once
}

// Listen binds the addresses.
func Listen(o Options) (*Server, error) {
	displaced := func(c metrics.Count) func() { return func() { o.Metrics.Add(c, 1) } }
	s := &Server{
		opts: o, failed: make(chan error, 1), cancel: func() {}, farewells: make(chan struct{}, o.Farewells),
		tcpSeats: newSeats(o.MaxTCP, o.MaxTCPPerAddress, o.MaxTCPWaiting, o.Ready, o.Open, displaced(metrics.RefusedTCPWaiting)),
		httpSeats: &httpSeats{
			seats: newSeats(o.MaxHTTP, o.MaxHTTPPerAddress, o.MaxHTTPWaiting, o.Ready, o.Open, displaced(metrics.RefusedHTTPWaiting)),
			spare: o.SpareHTTP, metrics: o.Metrics, above: list.New(),
		},
	}
	for i, address := range o.Addresses {
		if address == "" || Port(i) == HTTPS && o.TLS == nil {
			continue
		}
		l, err := listen(address)
		if err != nil {
			s.closeListeners()
			return nil, fmt.Errorf("listen: listen for %s: %w", portNames[i], err)
		}
		s.listeners[i] = l
	}
	return s, nil
}

// Addr returns the bound address of a port; nil: it is not open.
func (s *Server) Addr(p Port) net.Addr {
	if l := s.listeners[p]; l != nil {
		return l.Addr()
	}
	return nil
}

// Number returns the number of a port; -1 if it has none (a unix socket), or is not open.
func (s *Server) Number(p Port) int {
	if tcp, ok := s.Addr(p).(*net.TCPAddr); ok {
		return tcp.Port
	}
	return -1
}

// Start begins to accept. It may be called once.
func (s *Server) Start(h Handlers) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.tcpHandler = cancel, h.TCP
	if s.listeners[TCP] != nil {
		s.wg.Go(func() { s.acceptTCP(ctx) })
	}
	for p, handler := range []http.Handler{HTTP: h.HTTP, HTTPS: h.HTTPS, Lookup: h.Lookup} {
		if s.listeners[p] == nil || Port(p) == TCP {
			continue
		}
		var l net.Listener = seated{s.listeners[p], s.httpSeats}
		if Port(p) == HTTPS {
			l = tls.NewListener(l, s.opts.TLS.Config())
		}
		s.startHTTP(l, handler)
	}
}

// Failed receives an error when a port stops being served.
func (s *Server) Failed() <-chan error { return s.failed }

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default: // one error is enough to end the broker
	}
}

func (s *Server) startHTTP(l net.Listener, h http.Handler) {
	server := &http.Server{
		Handler: refuseGuests(limitSilence(h)), ReadHeaderTimeout: cmp.Or(s.opts.LoginTimeout, defaultLoginTimeout), IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: log.New(debugLog{s.opts.Log}, "", 0), ConnContext: connContext,
	}
	s.httpServers = append(s.httpServers, server)
	s.wg.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("listen: serve HTTP on %s: %w", l.Addr(), err))
		}
	})
}

// Connections returns the open connections at the TCP port, and at all HTTP ports together.
func (s *Server) Connections() (tcp, http int) { return s.tcpSeats.count(), s.httpSeats.count() }

// Stop closes the listeners, waits for pending requests and puts, and closes the remaining connections when ctx ends.
// Before Start it only closes the listeners.
func (s *Server) Stop(ctx context.Context) {
	s.closeListeners()
	var orderly sync.WaitGroup
	if s.tcpHandler != nil {
		orderly.Go(func() { s.tcpHandler.Stop(ctx) })
	}
	for _, server := range s.httpServers {
		orderly.Go(func() {
			if server.Shutdown(ctx) != nil {
				_ = server.Close() // aborts the remaining requests
			}
		})
	}
	orderly.Wait()
	s.cancel()
	s.wg.Wait()
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		if l != nil {
			_ = l.Close() // an HTTP server's Shutdown has closed it already: harmless
		}
	}
}

// debugLog receives net/http's messages about clients that break off.
type debugLog struct{ log logrus.FieldLogger }

func (d debugLog) Write(p []byte) (int, error) {
	d.log.Debug(string(p))
	return len(p), nil
}
