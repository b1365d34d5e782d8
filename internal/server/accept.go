package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/internal/sleep"
)

// maxAcceptDelay bounds the pause after an accept that failed because file descriptors or
// memory ran out.
const maxAcceptDelay = time.Second

// acceptTCP accepts connections and serves each on its own goroutine, until the listener is
// closed.
func (s *Server) acceptTCP(ctx context.Context) {
	delay := time.Duration(0)
	for {
		conn, err := s.tcp.Accept()
		switch {
		case err == nil:
			delay = 0
			s.serveTCP(ctx, conn)
		case errors.Is(err, net.ErrClosed):
			return
		case transient(err):
			delay = min(max(2*delay, 5*time.Millisecond), maxAcceptDelay)
			s.opts.Log.WithError(err).Warn("cannot accept a client; accepting again after a pause")
			if !sleep.For(ctx, delay) {
				return
			}
		default:
			s.fail(fmt.Errorf("server: accept on %s: %w", s.tcp.Addr(), err))
			return
		}
	}
}

// serveTCP serves one connection on its own goroutine, unless the limit is reached.
func (s *Server) serveTCP(ctx context.Context, conn net.Conn) {
	if !s.tcpLimit.acquire(conn) {
		_ = conn.Close()
		s.tcpLimit.release()
		return
	}
	s.wg.Go(func() {
		defer s.tcpLimit.release()
		s.tcpHandler.Serve(ctx, conn)
	})
}

// transient reports whether an accept may succeed later.
func transient(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// listen binds host:port, or the path of a unix socket. It replaces the file of a socket that
// no process serves.
func listen(address string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return net.Listen("tcp", address)
	}
	l, err := net.Listen("unix", address)
	if !errors.Is(err, syscall.EADDRINUSE) || !abandoned(address) {
		return l, err
	}
	if err := os.Remove(address); err != nil {
		return nil, err
	}
	return net.Listen("unix", address)
}

// abandoned reports whether the path is a unix socket that no process serves.
func abandoned(path string) bool {
	stat, err := os.Lstat(path)
	if err != nil || stat.Mode()&os.ModeSocket == 0 {
		return false
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
