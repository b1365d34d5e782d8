package server

import (
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
)

// Limits of an HTTP client, beside bodyTimeout. NSQ has none; without them a client that sends
// half a request would hold a connection for ever.
const (
	readHeaderTimeout = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// Options say where to listen. An empty address opens no port; an address that is not
// host:port is the path of a unix socket.
type Options struct {
	TCPAddress        string
	HTTPAddress       string
	HTTPSAddress      string // requires TLS
	LookupHTTPAddress string
	TLS               *TLS // nil = no HTTPS
	// MaxTCP and MaxHTTP bound the open connections at the TCP port, and at all other ports
	// together. 0: no limit.
	MaxTCP, MaxHTTP int
	// Refused, if not nil, is called for each connection above a limit.
	Refused func(http bool)
	Log     logrus.FieldLogger
}

// TCPHandler serves the connections of the TCP port. *protocol.Handler implements it.
type TCPHandler interface {
	// Serve handles one client until the client closes or ctx ends, and closes conn.
	Serve(ctx context.Context, conn net.Conn)
	// Stop ends all connections in order; it returns at the end of ctx at the latest.
	Stop(ctx context.Context)
}

// Handlers serve the ports. A handler may be nil if its port is not open.
type Handlers struct {
	TCP                 TCPHandler
	HTTP, HTTPS, Lookup http.Handler
}

// Server owns a broker's client-facing sockets.
type Server struct {
	opts                     Options
	tcp, http, https, lookup net.Listener
	tcpHandler               TCPHandler
	httpServers              []*http.Server
	tcpLimit, httpLimit      connLimit
	failed                   chan error
	wg                       sync.WaitGroup
	cancel                   context.CancelFunc // closes the TCP connections at once
}

// Listen binds the addresses.
func Listen(o Options) (*Server, error) {
	s := &Server{opts: o, failed: make(chan error, 1), cancel: func() {}}
	s.tcpLimit.max, s.tcpLimit.log = int64(o.MaxTCP), o.Log
	s.httpLimit.max, s.httpLimit.log = int64(o.MaxHTTP), o.Log
	if o.Refused != nil {
		s.tcpLimit.refused = func() { o.Refused(false) }
		s.httpLimit.refused = func() { o.Refused(true) }
	}
	for _, port := range []struct {
		listener *net.Listener
		name     string
		address  string
	}{
		{&s.tcp, "TCP", o.TCPAddress},
		{&s.http, "HTTP", o.HTTPAddress},
		{&s.https, "HTTPS", httpsAddress(o)},
		{&s.lookup, "lookup HTTP", o.LookupHTTPAddress},
	} {
		if port.address == "" {
			continue
		}
		l, err := listen(port.address)
		if err != nil {
			s.closeListeners()
			return nil, fmt.Errorf("server: listen for %s: %w", port.name, err)
		}
		*port.listener = l
	}
	return s, nil
}

func httpsAddress(o Options) string {
	if o.TLS == nil {
		return ""
	}
	return o.HTTPSAddress
}

// TCPAddr returns the bound address of the TCP port, nil if it is not open. So do HTTPAddr and
// HTTPSAddr.
func (s *Server) TCPAddr() net.Addr { return address(s.tcp) }

// HTTPAddr returns the bound address of the HTTP port.
func (s *Server) HTTPAddr() net.Addr { return address(s.http) }

// HTTPSAddr returns the bound address of the HTTPS port.
func (s *Server) HTTPSAddr() net.Addr { return address(s.https) }

// LookupAddr returns the bound address of the additional port of the lookup API.
func (s *Server) LookupAddr() net.Addr { return address(s.lookup) }

func address(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// Port returns the port number of an address; -1 if it has none (a unix socket, or nil).
func Port(a net.Addr) int {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return -1
}

// Start begins to accept. It may be called once.
func (s *Server) Start(h Handlers) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.tcpHandler = cancel, h.TCP
	if s.tcp != nil {
		s.wg.Go(func() { s.acceptTCP(ctx) })
	}
	s.startHTTP(s.http, h.HTTP)
	s.startHTTP(s.lookup, h.Lookup)
	if s.https != nil {
		s.startHTTP(tls.NewListener(s.https, s.opts.TLS.Config()), h.HTTPS)
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

// startHTTP serves one HTTP port.
func (s *Server) startHTTP(l net.Listener, h http.Handler) {
	if l == nil {
		return
	}
	server := &http.Server{
		Handler: limitSilence(h), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: log.New(debugLog{s.opts.Log}, "", 0), ConnState: s.httpLimit.track,
	}
	s.httpServers = append(s.httpServers, server)
	s.wg.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("server: serve HTTP on %s: %w", l.Addr(), err))
		}
	})
}

// Connections returns the open connections at the TCP port, and at all HTTP ports together.
func (s *Server) Connections() (tcp, http int) {
	return int(s.tcpLimit.open.Load()), int(s.httpLimit.open.Load())
}

// Stop closes the listeners, waits for pending requests and puts, and closes the remaining
// connections when ctx ends. Before Start it only closes the listeners.
func (s *Server) Stop(ctx context.Context) {
	s.closeListeners()
	var orderly sync.WaitGroup
	if s.tcpHandler != nil {
		orderly.Go(func() { s.tcpHandler.Stop(ctx) })
	}
	for _, server := range s.httpServers {
		orderly.Go(func() {
			if server.Shutdown(ctx) != nil {
				_ = server.Close() // cuts off the remaining requests
			}
		})
	}
	orderly.Wait()
	s.cancel()
	s.wg.Wait()
}

func (s *Server) closeListeners() {
	for _, l := range []net.Listener{s.tcp, s.http, s.https, s.lookup} {
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
