package api

import (
	"context"
)

// Requester is the client that asked for an operation: quotas count for its user, and the audit names it.
type Requester struct {
	// User is a user of the cluster whose quota counts; "" = no quota of a user applies.
	User     string
	Identity string // as in the audit; "" = the broker itself
	Remote   string // host:port
	Action   string // method and path, or a command
	Audited  bool   // the request is in the audit anyway
	// Topics, Partitions and Channels are the quota of the user; 0 = no limit.
	Topics, Partitions, Channels int
}

type requesterKey struct{}

// WithRequester attaches the client to a context. The function is called by the goroutine of the request, and only when
// something is created: a put to a topic that exists costs nothing.
func WithRequester(ctx context.Context, who func() Requester) context.Context {
	return context.WithValue(ctx, requesterKey{}, who)
}

// RequesterOf is the client of a request; the zero Requester is the broker itself.
func RequesterOf(ctx context.Context) Requester {
	if who, ok := ctx.Value(requesterKey{}).(func() Requester); ok {
		return who()
	}
	return Requester{}
}

// Seat admits the connection of a client to the seats of those that have logged in, or, if loggedIn is false, of those
// that have rights without a login. Until then the connection may have to give way to another one. It reports false if
// there is no seat.
type Seat func(loggedIn bool) bool

// LogStranger is the field of log lines that a client can cause before its login. All of them together have a limit.
const LogStranger = "stranger"

type seatKey struct{}

// WithSeat attaches the seat of a connection to the context of its requests.
func WithSeat(ctx context.Context, s Seat) context.Context {
	return context.WithValue(ctx, seatKey{}, s)
}

// SeatOf is the seat of the connection of a request. Without one it admits everybody.
func SeatOf(ctx context.Context) Seat {
	if s, ok := ctx.Value(seatKey{}).(Seat); ok {
		return s
	}
	return func(bool) bool { return true }
}
