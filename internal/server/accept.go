package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/internal/pause"
)

// maxAcceptDelay bounds the pause after an accept that failed for want of file
// descriptors or memory.
const maxAcceptDelay = time.Second

// acceptTCP hands connections over, each on a goroutine of its own, until the
// listener is closed.
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
			s.opts.Log.WithError(err).Warn("cannot accept a client, trying again")
			if !pause.For(ctx, delay) {
				return
			}
		default:
			s.fail(fmt.Errorf("server: accept on %s: %w", s.tcp.Addr(), err))
			return
		}
	}
}

// serveTCP serves one connection on a goroutine of its own, if it gets a seat.
func (s *Server) serveTCP(ctx context.Context, conn net.Conn) {
	if !s.tcpSeats.take(conn) {
		_ = conn.Close()
		s.tcpSeats.leave()
		return
	}
	s.wg.Go(func() {
		defer s.tcpSeats.leave()
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

// listen binds host:port, or the path of a unix socket. The file of a socket
// that nobody serves any more is replaced.
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

// abandoned reports whether the path is a unix socket without a server.
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
