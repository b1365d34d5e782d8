package listen

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

// one is a listener with one connection.
type one struct {
	net.Conn
	taken chan struct{} // capacity 1
	ctx   context.Context
}

func (o one) Addr() net.Addr { return o.LocalAddr() }
func (o one) Close() error   { return nil }

func (o one) Accept() (net.Conn, error) {
	select {
	case o.taken <- struct{}{}:
		return o.Conn, nil
	case <-o.ctx.Done():
		return nil, http.ErrServerClosed
	}
}

// TestBodies: the server cuts off a client that is silent within a body, whether the handler
// reads it or not. A slow client and a slow handler are not cut off.
func TestBodies(t *testing.T) {
	const half = "POST / HTTP/1.1\r\nHost: b\r\nContent-Length: 8\r\n\r\nhalf"
	reads := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Connection", "close")
	}
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		rest    string
		lasts   time.Duration
	}{
		{"silent", reads, "", bodyTimeout},
		{"silent, unread", func(http.ResponseWriter, *http.Request) {}, "", bodyTimeout},
		{"slow", reads, "rest", 4 * bodyTimeout / 2},
		{"slow handler", func(w http.ResponseWriter, r *http.Request) {
			reads(w, r)
			select {
			case <-r.Context().Done(): // the server took the deadline for the client's close
			case <-time.After(2 * bodyTimeout):
			}
		}, "rest", 4*bodyTimeout/2 + 2*bodyTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, conn := net.Pipe()
				s := &http.Server{Handler: limitSilence(test.handler)}
				go func() { _ = s.Serve(one{conn, make(chan struct{}, 1), t.Context()}) }()
				began := time.Now()
				_, err := io.WriteString(client, half)
				require.NoError(t, err)
				for i := range test.rest {
					<-time.After(bodyTimeout / 2)
					_, err := io.WriteString(client, test.rest[i:i+1])
					require.NoError(t, err)
				}
				_, _ = io.Copy(io.Discard, bufio.NewReader(client))
				require.Equal(t, test.lasts, time.Since(began))
			})
		})
	}
}

// TestASlowBodyEnds: a client that sends a byte occasionally is cut off, and with a large body sooner, because it keeps
// memory. A client that is slow at a sane rate is not cut off.
func TestASlowBodyEnds(t *testing.T) {
	const pause = bodyTimeout * 2 / 3
	rate := func(bytes int) int { return bytes * int(pause/time.Second) }
	for name, test := range map[string]struct {
		length, piece int
		after         time.Duration // 0 = it does not end
	}{
		"a byte now and then":          {20, 1, 5 * bodyTimeout},
		"slow":                         {limits.Free, rate(2 * minBodyRate), 0},
		"large, a byte now and then":   {1 << 20, 1, limits.Grace},
		"large, slow":                  {1 << 20, rate(limits.MinRate / 4), limits.Grace + 8*pause},
		"large, slow at a sane rate":   {1 << 20, rate(limits.MinRate * 2), 0},
		"of unknown size, a byte only": {-1, 1, limits.Grace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, conn := net.Pipe()
				failed := make(chan error, 1)
				s := &http.Server{Handler: limitSilence(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-time.After(2 * limits.Grace) // it waits for memory
					_, err := io.Copy(io.Discard, r.Body)
					failed <- err
					w.Header().Set("Connection", "close")
				}))}
				go func() { _ = s.Serve(one{conn, make(chan struct{}, 1), t.Context()}) }()
				size, head, tail := fmt.Sprintf("Content-Length: %d", test.length), "", ""
				if test.length < 0 {
					size, head, tail = "Transfer-Encoding: chunked", "1\r\n", "\r\n"
				}
				_, err := fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: b\r\n%s\r\n\r\n", size)
				require.NoError(t, err)
				defer func() { _ = client.Close(); <-time.After(time.Minute) }() // the server ends the connection
				go func() { _, _ = io.Copy(io.Discard, client) }()
				began := time.Now()
				go func() {
					var err error
					for left := test.length; left != 0 && err == nil; left -= min(left, test.piece) {
						piece := test.piece
						if left > 0 {
							piece = min(piece, left)
						}
						_, err = client.Write(append(append([]byte(head), make([]byte, piece)...), tail...))
						time.Sleep(pause)
					}
				}()
				if failure := <-failed; test.after == 0 {
					require.NoError(t, failure)
					return
				} else {
					require.ErrorIs(t, failure, os.ErrDeadlineExceeded)
				}
				require.LessOrEqual(t, time.Since(began), 2*limits.Grace+test.after+time.Second)
			})
		})
	}
}

// TestAnswers: the server cuts off a client that does not read its answer. A slow client is
// not cut off, however slow the handler was.
func TestAnswers(t *testing.T) {
	const length = 64 << 10
	for name, slow := range map[string]bool{"reads nothing": false, "slow": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, conn := net.Pipe()
				failed := make(chan error, 1)
				var took time.Duration
				s := &http.Server{Handler: limitSilence(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-time.After(2 * bodyTimeout)
					began := time.Now()
					_, err := w.Write(make([]byte, length))
					took = time.Since(began)
					failed <- err
				}))}
				go func() { _ = s.Serve(one{conn, make(chan struct{}, 1), t.Context()}) }()
				_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
				require.NoError(t, err)
				if !slow {
					require.Error(t, <-failed)
					require.Equal(t, bodyTimeout, took)
					return
				}
				got := 0
				for b := make([]byte, answerPiece); err == nil; <-time.After(bodyTimeout / 4) {
					var n int
					n, err = io.ReadFull(client, b)
					got += n
				}
				require.NoError(t, <-failed)
				require.Greater(t, took, 2*bodyTimeout)
				require.Greater(t, got, length, "with its header")
			})
		})
	}
}

// TestRefusedBodyIsNotAwaited: a refused client receives the answer at once, before it has
// sent its body.
func TestRefusedBodyIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		s := &http.Server{Handler: limitSilence(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "too big", http.StatusRequestEntityTooLarge)
		}))}
		go func() { _ = s.Serve(one{conn, make(chan struct{}, 1), t.Context()}) }()
		began := time.Now()
		_, err := fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n", int64(1)<<40)
		require.NoError(t, err)
		in := bufio.NewReader(client)
		answer, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, answer, "413")
		require.Zero(t, time.Since(began))
		_, _ = io.Copy(io.Discard, in)
	})
}

// TestHeadersAndHandshakesHaveATime: a silent connection ends, before a TLS handshake and before the
// headers.
func TestHeadersAndHandshakesHaveATime(t *testing.T) {
	for name, begins := range map[string]string{"headers": "GET /ping HTT", "handshake": "\x16\x03\x01"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, conn := net.Pipe()
				s := &Server{opts: Options{LoginTimeout: 3 * time.Second, Log: logrus.New()}, failed: make(chan error, 1)}
				var l net.Listener = one{conn, make(chan struct{}, 1), t.Context()}
				if name == "handshake" {
					l = tls.NewListener(l, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }})
				}
				s.startHTTP(l, http.NotFoundHandler())
				began := time.Now()
				_, err := io.WriteString(client, begins)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, client)
				require.NoError(t, err)
				require.Equal(t, s.opts.LoginTimeout, time.Since(began))
			})
		})
	}
}
