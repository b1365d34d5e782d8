package api

import (
	"context"
)

// Requester is the client that requested an operation, for quotas and the audit.
type Requester struct {
	// User is the user whose quota applies; "": none does.
	User     string
	Identity string // as in the audit; "": the broker itself
	Remote   string // host:port
	Action   string // method and path, or a command
	Audited  bool   // the request itself is in the audit
	// Topics, Partitions and Channels are the quota of the user; 0: no limit.
	Topics, Partitions, Channels int
}

type requesterKey struct{}

// WithRequester attaches the client to a context. The function is called by the goroutine of the request, and only if
// something is created.
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

// Seat admits the connection of a client to the seats of logged-in clients, or, if loggedIn is false, of clients that
// have rights without a login. Before that, another connection may displace it. It returns false if no seat is free.
type Seat func(loggedIn bool) bool

// LogStranger is the field of log lines that a client can cause before its login. Their rate is limited.
const LogStranger = "stranger"

type seatKey struct{}

// WithSeat attaches the seat of a connection to the context of its requests.
func WithSeat(ctx context.Context, s Seat) context.Context {
	return context.WithValue(ctx, seatKey{}, s)
}

// SeatOf is the seat of the connection of a request; the default admits every connection.
func SeatOf(ctx context.Context) Seat {
	if s, ok := ctx.Value(seatKey{}).(Seat); ok {
		return s
	}
	return func(bool) bool { return true }
}
