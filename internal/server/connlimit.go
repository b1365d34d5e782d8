package server

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// connLimit bounds the connections of one kind of client. A connection above the limit is
// closed at once instead of waiting: its client can connect to another broker.
type connLimit struct {
	max     int64 // 0 = no limit
	open    atomic.Int64
	lastLog atomic.Int64 // Unix second of the last warning
	log     logrus.FieldLogger
	refused func() // counts a refused connection
}

// acquire counts a new connection and reports whether it is within the limit. The caller
// releases every connection at its end, also a refused one.
func (s *connLimit) acquire(conn net.Conn) bool {
	if s.open.Add(1) <= s.max || s.max == 0 {
		return true
	}
	if s.refused != nil {
		s.refused()
	}
	if now := time.Now().Unix(); s.lastLog.Swap(now) != now {
		s.log.WithFields(logrus.Fields{"limit": s.max, "client": conn.RemoteAddr()}).
			Warn("refused a client: the limit of open files of this process leaves no room; raise it (ulimit -n, LimitNOFILE)")
	}
	return false
}

func (s *connLimit) release() { s.open.Add(-1) }

// track is an http.Server's ConnState.
func (s *connLimit) track(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if !s.acquire(conn) {
			_ = conn.Close() // the server reports the closed connection
		}
	case http.StateClosed, http.StateHijacked:
		s.release()
	}
}
