package api

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Verb is the answer of a consumer to a delivery.
type Verb string

// The verbs, as FIN, REQ and TOUCH of the TCP protocol.
const (
	VerbFinish  Verb = "finish"
	VerbRequeue Verb = "requeue"
	VerbTouch   Verb = "touch"
)

// Settlement is a verb with its argument.
type Settlement struct {
	Verb    Verb
	DelayMS int64 // of a requeue
}

// Receipt names one delivery of a message on a channel (Delivery.Receipt).
type Receipt struct {
	ID     MessageID
	Epoch  ident.Epoch
	Number uint64
}

// Receipts settles deliveries of clients that have no connection.
type Receipts interface {
	// Settle carries out a verb at the leaders of the messages, whichever broker has delivered them. It returns an
	// error for each receipt: nil, ErrNotInFlight, ErrNotOwner, or one that wraps ErrTopicNotFound, ErrChannelNotFound
	// or ErrUnavailable.
	Settle(ctx context.Context, topic, channel string, do Settlement, list []Receipt) []error
}
