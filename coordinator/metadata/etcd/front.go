package etcd

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/rpc/peertls"
)

const (
	reportPath      = "/lockstep/member" // of this member's report
	headerTimeout   = 5 * time.Second    // of the head of a request
	idleTimeout     = time.Minute        // ends a connection without a request; the other side dials again
	maxHeaderBytes  = 16 << 10
	maxSocketPath   = 100 // a length of a Unix socket's path that every system accepts
	etcdConnections = 16  // that stay open between the port and etcd
	// raftPath takes single raft messages, from members to which no stream is open.
	raftPath = "/raft"
	// raftTimeout bounds etcd's answer to such a message. etcd delays a forwarded proposal until there is a leader, and the
	// sender has only four connections for votes and proposals: the proposals would delay the votes for a leader.
	raftTimeout = 500 * time.Millisecond
)

// front is the member's peer port. It opens before the decision how the member starts is made, and closes after etcd
// has stopped, so that starting members can query each other in every state. It forwards all requests except reports to
// etcd, which listens on a Unix socket; while etcd does not run, it answers that there are no members.
type front struct {
	server *http.Server
	report func(from string) reportMessage
	etcd   atomic.Pointer[httputil.ReverseProxy] // nil while etcd does not run
	done   chan struct{}                         // closed when the port is closed
	port
}

// listenPeers opens the peer port.
func (o Options) listenPeers(report func(from string) reportMessage) (*front, error) {
	l, port, err := o.listen("other members", o.PeerAddress, "peer.sock")
	if err != nil {
		return nil, err
	}
	f := &front{report: report, done: make(chan struct{}), port: port}
	l = peertls.NewListener(l, f.gate)
	if o.identity != nil {
		l = tls.NewListener(l, o.serverTLS(f.refusals, "peer", true, "http/1.1"))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+reportPath, f.serveReport)
	mux.HandleFunc("/", f.forward)
	f.server = &http.Server{
		Handler: o.admitting(mux), ConnContext: withSeat, ErrorLog: log.New(io.Discard, "", 0),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	go func() { _ = f.server.Serve(l); close(f.done) }() // ends with close
	return f, nil
}

// port is the common part of a member's two ports: connection limits, and the socket of etcd behind the port.
type port struct {
	gate     *peertls.Gate
	refusals *peertls.Refusals
	socket   string // in the member's directory or, if that path would be too long, in dir
	dir      string // removed at the end; "" if the socket is in the member's directory
}

// listen opens a port for other brokers or members.
func (o Options) listen(others, address, socket string) (net.Listener, port, error) {
	p := port{gate: peertls.NewGate(o.Connections), refusals: peertls.NewRefusals(o.Log)}
	member, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, p, fmt.Errorf("etcd: the member's directory: %w", err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, p, fmt.Errorf("etcd: listen for %s: %w", others, err)
	}
	if p.socket = filepath.Join(member, socket); len(p.socket) <= maxSocketPath {
		return l, p, nil
	}
	if p.dir, err = os.MkdirTemp("", "lockstep-"); err != nil {
		_ = l.Close()
		return nil, p, fmt.Errorf("etcd: create the directory of etcd's socket: %w", err)
	}
	p.socket = filepath.Join(p.dir, socket)
	return l, p, nil
}

// dial connects to etcd.
func (p port) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", p.socket)
}

// listenURL returns the URL at which etcd listens.
func (p port) listenURL() url.URL { return url.URL{Scheme: "unix", Host: p.socket} }

// remove is called when the port is closed.
func (p port) remove() {
	p.refusals.Close()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir) // a temporary directory
	}
}

// seatKey is the key of a connection's seat in the contexts of its requests.
type seatKey struct{}

// withSeat is an http.Server's ConnContext.
func withSeat(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if seated, ok := c.(*peertls.Conn); ok {
		ctx = context.WithValue(ctx, seatKey{}, seated.Seat)
	}
	return ctx
}

// admitting admits a connection at its first request, after the handshake. If verifyBroker does not accept
// the other side, it refuses the request with the reason and ends the connection, which never counts as admitted. It
// checks each request, because invitations expire.
func (o Options) admitting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			if err := o.verifyBroker(*r.TLS); err != nil {
				w.Header().Set("Connection", "close")
				w.WriteHeader(http.StatusForbidden)
				if about, is := errors.AsType[*peertls.NotAdmitted](err); is {
					_, _ = io.WriteString(w, about.Advice) // the other side may have disconnected
				}
				return
			}
		}
		if seat, ok := r.Context().Value(seatKey{}).(*peertls.Seat); ok && !seat.Admit() {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// started makes the port forward requests to etcd.
func (f *front) started() {
	transport := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return f.dial(ctx) },
		MaxIdleConnsPerHost: etcdConnections, DisableCompression: true,
	}
	f.etcd.Store(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "etcd" },
		Transport:     transport,
		FlushInterval: -1, // raft's streams never end
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusServiceUnavailable) },
		ErrorLog:      log.New(io.Discard, "", 0),
	})
}

func (f *front) forward(w http.ResponseWriter, r *http.Request) {
	switch etcd := f.etcd.Load(); {
	case etcd != nil:
		if r.Method == http.MethodPost && r.URL.Path == raftPath {
			ctx, cancel := context.WithTimeout(r.Context(), raftTimeout)
			defer cancel()
			r = r.WithContext(ctx)
		}
		etcd.ServeHTTP(w, r)
	case r.URL.Path == membersPath:
		_, _ = w.Write([]byte("[]")) // a process answers at this address
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (f *front) serveReport(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(f.report(r.URL.Query().Get("from"))) // the other member may have disconnected
}

// close closes the port and all its connections.
func (f *front) close() {
	_ = f.server.Close() // a port that fails to close is closed
	<-f.done
	if etcd := f.etcd.Swap(nil); etcd != nil {
		etcd.Transport.(*http.Transport).CloseIdleConnections()
	}
	f.remove()
}
