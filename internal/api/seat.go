package api

import "context"

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
