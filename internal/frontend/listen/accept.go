package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// maxAcceptDelay bounds the pause after an accept that failed because file descriptors or memory ran out.
const maxAcceptDelay = time.Second

// acceptTCP accepts connections and serves each on its own goroutine, until the listener is closed.
func (s *Server) acceptTCP(ctx context.Context) {
	delay := time.Duration(0)
	for {
		conn, err := s.listeners[TCP].Accept()
		switch {
		case err == nil:
			delay = 0
			s.serveTCP(ctx, conn)
		case errors.Is(err, net.ErrClosed):
			return
		case transient(err):
			delay = min(max(2*delay, 5*time.Millisecond), maxAcceptDelay)
			s.opts.Log.WithError(err).Warn("cannot accept a client, retrying after a pause")
			if !concurrency.Sleep(ctx, delay) {
				return
			}
		default:
			s.fail(fmt.Errorf("listen: accept on %s: %w", s.Addr(TCP), err))
			return
		}
	}
}

func (s *Server) serveTCP(ctx context.Context, conn net.Conn) {
	seat, v := s.tcpSeats.take(conn)
	if v != admitted {
		s.refuseTCP(ctx, conn, v)
		return
	}
	s.wg.Go(func() {
		defer seat.leave()
		s.tcpHandler.Serve(api.WithSeat(ctx, seat.admit), conn)
	})
}

// refuseTCP tells a client why it is refused, on its own goroutine: the client may have sent bytes, and an immediate
// close would reset the connection before it has read the reason. While too many clients are being refused at the same
// time, the connection is closed without a reason.
func (s *Server) refuseTCP(ctx context.Context, conn net.Conn, v verdict) {
	why := "this broker has as many clients as it may; try another one"
	limit := s.tcpSeats.max
	if v == overAddress {
		why, limit = "this address has reached its connection limit", s.tcpSeats.perAddress
		s.opts.Metrics.Add(metrics.RefusedTCPAddress, 1)
	} else {
		s.opts.Metrics.Add(metrics.RefusedTCPConnections, 1)
	}
	s.opts.Log.WithFields(logrus.Fields{"limit": limit, "remote": conn.RemoteAddr(), api.LogStranger: true}).
		Warn("client refused, too many connections: see --max-connections, --max-connections-per-address and the limit of open files (ulimit -n, LimitNOFILE)")
	select {
	case s.farewells <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.farewells }()
		s.tcpHandler.Refuse(ctx, conn, why)
	})
}

func transient(err error) bool {
	errno, _ := errors.AsType[syscall.Errno](err)
	return slices.Contains([]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET,
	}, errno)
}

// listen binds host:port, or the path of a unix socket. It replaces the file of a socket that no process serves.
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
