package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

const (
	firstBytes       = 5 * time.Second        // for the handshake and the head of the first request of a connection
	silentConnection = 10 * time.Minute       // without a byte in either direction end a connection
	acceptPause      = 100 * time.Millisecond // after a failed accept: probably no file descriptor is left
	relayBytes       = 16 << 10               // of the buffer of one direction
)

// clientFront is the member's client port. It terminates TLS, and passes the bytes of each broker's connection to etcd,
// which listens on a Unix socket: etcd itself would read the authority only once, would not limit connections, and
// would wait forever for silent connections when it stops.
type clientFront struct {
	listener net.Listener
	security *tls.Config // nil for plain text
	cancel   context.CancelFunc
	own      sync.WaitGroup // accept, and the goroutines of connections
	port
}

// listenClients opens the client port.
func (o Options) listenClients() (*clientFront, error) {
	l, port, err := o.listen("other brokers", o.ClientAddress, "client.sock")
	if err != nil {
		return nil, err
	}
	c := &clientFront{listener: l, port: port}
	if o.identity != nil {
		c.security = o.serverTLS(c.refusals, "client", false, "h2", "http/1.1")
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.own.Go(func() { c.accept(ctx) })
	return c, nil
}

// accept takes connections. Started by listenClients, ends with close.
func (c *clientFront) accept(ctx context.Context) {
	for {
		conn, err := c.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			concurrency.Sleep(ctx, acceptPause)
			continue
		}
		seat := c.gate.Enter(conn)
		c.own.Go(func() { // ends with the connection
			defer seat.Leave()
			defer func() { _ = conn.Close() }()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			c.serve(ctx, conn, seat)
		})
	}
}

// serve passes the bytes of one connection. It admits the connection, and connects to etcd, only when a request has begun: a
// silent connection takes one file descriptor, not three, and no broker's seat.
func (c *clientFront) serve(ctx context.Context, raw net.Conn, seat *peertls.Seat) {
	if raw.SetDeadline(time.Now().Add(firstBytes)) != nil {
		return
	}
	conn := raw
	if c.security != nil {
		conn = tls.Server(raw, c.security)
	}
	first := make([]byte, relayBytes)
	n, err := readHead(conn, first) // with the handshake
	if err != nil || !seat.Admit() || raw.SetDeadline(time.Time{}) != nil {
		return
	}
	etcd, err := c.dial(ctx)
	if err != nil {
		return // etcd does not run
	}
	defer func() { _ = etcd.Close() }()
	if _, err := etcd.Write(first[:n]); err != nil {
		return
	}
	var last atomic.Int64 // when bytes last arrived, in either direction
	last.Store(time.Now().UnixNano())
	done := make(chan struct{})
	go func() { // ends with either connection
		defer close(done)
		relay(conn, etcd, &last)
		_ = raw.Close()
	}()
	relay(etcd, conn, &last)
	_ = etcd.Close()
	_ = raw.Close()
	<-done
}

// readHead reads until the buffer has a whole request header, or HTTP/2's preface, which ends in the same way.
func readHead(conn net.Conn, into []byte) (n int, err error) {
	for {
		m, err := conn.Read(into[n:])
		n += m
		switch {
		case bytes.Contains(into[:n], []byte("\r\n\r\n")):
			return n, nil
		case err != nil:
			return n, err
		case n == len(into):
			return n, errLongHead
		}
	}
}

// errLongHead ends a connection that does not begin with a request.
var errLongHead = errors.New("etcd: the first bytes have no complete request header")

// relay copies until a side ends, or both directions are silent.
func relay(to, from net.Conn, last *atomic.Int64) {
	buffer := make([]byte, relayBytes)
	for {
		if from.SetReadDeadline(time.Now().Add(silentConnection)) != nil {
			return
		}
		n, err := from.Read(buffer)
		if n > 0 {
			last.Store(time.Now().UnixNano())
			if to.SetWriteDeadline(time.Now().Add(silentConnection)) != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Since(time.Unix(0, last.Load())) < silentConnection {
			continue
		}
		if err != nil {
			return
		}
	}
}

// close closes the port and all its connections. c may be nil.
func (c *clientFront) close() {
	if c == nil {
		return
	}
	c.cancel()
	_ = c.listener.Close() // a port that fails to close is closed
	c.own.Wait()
	c.remove()
}

// listeners collects the gRPC servers of etcd's client port. etcd would stop them gracefully, which lasts until every
// remote watch has ended, or five seconds. That is too long for the stop of a broker.
type listeners struct {
	mu struct {
		sync.Mutex
		servers []*grpc.Server
	}
}

// add is etcd's hook for further services on the server.
func (l *listeners) add(s *grpc.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.servers = append(l.mu.servers, s)
}

// stop closes all client connections.
func (l *listeners) stop() {
	l.mu.Lock()
	servers := l.mu.servers
	l.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
}
