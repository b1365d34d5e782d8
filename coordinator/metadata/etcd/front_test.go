package etcd

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// holding is an etcd that holds a request back until its end, or for a time.
type holding struct{ by time.Duration }

func (h holding) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(h.by):
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestHeldProposalIsGivenUp: etcd holds a forwarded proposal until there is a leader. The front ends
// the request, so that its sender has a connection for the votes; a stream has no such bound.
func TestHeldProposalIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &front{}
		f.started()
		const held = 10 * raftTimeout
		f.etcd.Load().Transport = holding{held}
		for _, test := range []struct {
			method, path string
			status       int
			after        time.Duration
		}{
			{"POST", "/raft", http.StatusServiceUnavailable, raftTimeout},
			{"GET", "/raft/stream/message/1", http.StatusNoContent, held},
			{"POST", "/raft/snapshot", http.StatusNoContent, held},
		} {
			began, w := time.Now(), httptest.NewRecorder()
			f.forward(w, httptest.NewRequest(test.method, test.path, strings.NewReader("a message")))
			require.Equal(t, test.status, w.Code, test.path)
			require.Equal(t, test.after, time.Since(began), test.path)
		}
	})
}

// pipes is a listener of connections without sockets.
type pipes struct {
	net.Listener
	conns chan net.Conn
	ctx   context.Context
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error { return nil }

// TestOneByteTakesNoSeat: connections that send one plain byte, or a part of a request, are never
// admitted, their seats are free again after firstBytes, and a broker's client works.
func TestOneByteTakesNoSeat(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "client.sock")
			etcd, err := net.Listen("unix", socket)
			require.NoError(t, err)
			defer etcd.Close()
			synctest.Test(t, func(t *testing.T) { oneByteTakesNoSeat(t, secure, socket, etcd) })
		})
	}
}

func oneByteTakesNoSeat(t *testing.T, secure bool, socket string, etcd net.Listener) {
	const strangers = 100
	ctx, cancel := context.WithCancel(t.Context())
	log := logrus.New()
	log.SetOutput(io.Discard)
	conns := make(chan net.Conn)
	c := &clientFront{
		listener: pipes{conns: conns, ctx: ctx}, cancel: cancel,
		port: port{gate: peertls.NewGate(peertls.Limits{Admitted: 32, Waiting: 256}), refusals: peertls.NewRefusals(log), socket: socket},
	}
	openings := []string{"P", "PRI * HTTP/2.0\r\n"}
	var security *tls.Config
	if secure {
		ca := certs.New(t)
		ca.Issue("n1")
		names, err := peertls.NewNames("", "n1")
		require.NoError(t, err)
		o := Options{TLS: TLS{Cert: ca.File("n1.pem"), Key: ca.File("n1.key"), CA: ca.File("ca.pem")}, Names: names, Log: log}
		require.NoError(t, o.loadIdentity())
		c.security, security = o.serverTLS(c.refusals, "client", false, "h2"), ca.Client("n1")
		openings = []string{"P", "\x16\x03\x01"} // the head of a record; any other first record is refused at once
	}
	c.own.Go(func() { c.accept(ctx) })
	defer c.close()
	dial := func() net.Conn {
		near, far := net.Pipe()
		conns <- far
		return near
	}
	for i := range strangers {
		stranger := dial()
		defer stranger.Close()
		_, err := io.WriteString(stranger, openings[i%len(openings)])
		require.NoError(t, err)
	}
	synctest.Wait()
	require.Equal(t, peertls.Counts{Waiting: strangers}, c.gate.Counts())

	// A broker's client: etcd echoes what it sends.
	const request = "GET / HTTP/1.1\r\n\r\n"
	broker := dial()
	if secure {
		broker = tls.Client(broker, security)
	}
	go func() { _, _ = io.WriteString(broker, request) }()
	backend, err := etcd.Accept()
	require.NoError(t, err)
	got := make([]byte, len(request))
	_, err = io.ReadFull(backend, got)
	require.NoError(t, err)
	require.Equal(t, request, string(got))
	require.Equal(t, peertls.Counts{Admitted: 1, Waiting: strangers}, c.gate.Counts())
	require.NoError(t, backend.Close())
	_, _ = io.Copy(io.Discard, broker) // until the front has closed it
	_ = broker.Close()

	time.Sleep(firstBytes - 1)
	synctest.Wait()
	require.Equal(t, peertls.Counts{Waiting: strangers}, c.gate.Counts())
	time.Sleep(time.Nanosecond)
	synctest.Wait()
	require.Equal(t, peertls.Counts{}, c.gate.Counts())
}
