package server

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// seats bounds the connections of one kind of client. One too many is closed at
// once and not left to wait: its client can go to another broker.
type seats struct {
	max   int64 // 0: no limit
	taken atomic.Int64
	told  atomic.Int64 // second of the last complaint
	log   logrus.FieldLogger
}

// take is called for every connection, and leave when it has ended, whether it
// got a seat or not.
func (s *seats) take(conn net.Conn) bool {
	if s.taken.Add(1) <= s.max || s.max == 0 {
		return true
	}
	if now := time.Now().Unix(); s.told.Swap(now) != now {
		s.log.WithFields(logrus.Fields{"limit": s.max, "remote": conn.RemoteAddr()}).
			Warn("too many clients for the files that this process may open, one refused")
	}
	return false
}

func (s *seats) leave() { s.taken.Add(-1) }

// follow is an http.Server's ConnState.
func (s *seats) follow(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if !s.take(conn) {
			_ = conn.Close() // the server finds it closed, and says so
		}
	case http.StateClosed, http.StateHijacked:
		s.leave()
	}
}
