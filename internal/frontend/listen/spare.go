package listen

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// spareTime is how long a connection above the limits may take for its request and the answer.
const spareTime = 5 * time.Second

// httpSeats are the connections of all HTTP ports. A connection above the limits gets one of a few spare seats: there
// it is served one request, a probe, or the answer that there are too many connections. When the spare seats are taken,
// the oldest spare connection is closed, so that silent clients cannot lock a probe out.
type httpSeats struct {
	*seats
	spare   int
	metrics *metrics.Recorder
	mu      sync.Mutex
	above   *list.List // of *guest, the oldest first
}

// guest is a connection at an HTTP port. The server's goroutine of the connection and the listener use it.
type guest struct {
	net.Conn
	seats *httpSeats
	seat  *seat
	above verdict       // not admitted: it has a spare seat
	place *list.Element // list entry of the spare seat; nil = the guest was displaced
	once  sync.Once
}

// welcome counts a new connection.
func (h *httpSeats) welcome(conn net.Conn) net.Conn {
	g := &guest{Conn: conn, seats: h}
	if g.seat, g.above = h.take(conn); g.above == admitted {
		return g
	}
	if g.above == overAddress {
		h.metrics.Add(metrics.RefusedHTTPAddress, 1)
	} else {
		h.metrics.Add(metrics.RefusedHTTPConnections, 1)
	}
	_ = conn.SetDeadline(time.Now().Add(spareTime)) // a closed socket fails at the read
	if out := h.takeSpare(g); out != nil {
		_ = out.Conn.Close() // the server detects that and closes its end
	}
	return g
}

// takeSpare gives a connection a spare seat, and returns the connection to close for it; nil: a seat was free.
func (h *httpSeats) takeSpare(g *guest) (out *guest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if oldest := h.above.Front(); oldest != nil && h.above.Len() >= h.spare {
		out = h.above.Remove(oldest).(*guest)
		out.place = nil
	}
	g.place = h.above.PushBack(g)
	return out
}

// Close frees the seat.
func (g *guest) Close() error {
	g.once.Do(func() {
		if g.above == admitted {
			g.seat.leave()
			return
		}
		g.seats.mu.Lock()
		defer g.seats.mu.Unlock()
		if g.place != nil {
			g.seats.above.Remove(g.place)
			g.place = nil
		}
	})
	return g.Conn.Close()
}

// SetDeadline, SetReadDeadline and SetWriteDeadline have no effect on a spare seat: its time is limited from the start.
// The only deadline that is set is one long past, with which net/http interrupts a read.
func (g *guest) SetDeadline(t time.Time) error { return g.unlessSpare(g.Conn.SetDeadline, t) }

func (g *guest) SetWriteDeadline(t time.Time) error { return g.unlessSpare(g.Conn.SetWriteDeadline, t) }

func (g *guest) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now()) {
		return g.Conn.SetReadDeadline(t)
	}
	return g.unlessSpare(g.Conn.SetReadDeadline, t)
}

func (g *guest) unlessSpare(set func(time.Time) error, t time.Time) error {
	if g.above != admitted {
		return nil
	}
	return set(t)
}

// CloseWrite closes the sending direction, for the linger of net/http.
func (g *guest) CloseWrite() error {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// seated is a listener whose connections have seats.
type seated struct {
	net.Listener
	seats *httpSeats
}

func (l seated) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.seats.welcome(conn), nil
}

type guestKey struct{}

func connContext(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	g, ok := conn.(*guest)
	switch {
	case !ok:
		return ctx
	case g.above != admitted:
		return context.WithValue(ctx, guestKey{}, g.above)
	}
	return api.WithSeat(ctx, g.seat.admit)
}

// refuseGuests serves the requests of connections within the limits, and probes of the others. All other requests are
// answered with 503 before the broker reads them.
func refuseGuests(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		above, _ := r.Context().Value(guestKey{}).(verdict)
		if above == admitted {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		if api.IsProbe(r.URL.Path) {
			h.ServeHTTP(w, r)
			return
		}
		message, detail := "TOO_MANY_CONNECTIONS", "the broker has reached its connection limit: use another broker, or repeat the request later"
		if above == overAddress {
			message, detail = "TOO_MANY_CONNECTIONS_OF_ADDRESS", "this address has reached its connection limit (--max-connections-per-address): close some, or use another broker"
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("X-NSQ-Content-Type", "nsq; version=1.0")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"message":"` + message + `","detail":"` + detail + `"}`)) // the client may have disconnected
	})
}
