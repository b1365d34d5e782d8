package client

import (
	"context"
	"time"
)

// Observer receives the events of a client, for metrics and logs. Its methods must neither
// block nor call the client; several goroutines call them. Embed [NoObserver] to implement a part.
type Observer interface {
	// Published: a put was answered. err is nil, ErrNotStored or ErrInDoubt. messages is more
	// than 1 for PublishAll. took begins at Send.
	Published(topic string, messages, tries int, took time.Duration, err error)
	// Handled: a handler has returned, and with which error.
	Handled(d *Delivery, took time.Duration, err error)
	// Refused: the broker did not accept the finish, requeue or touch of a message, or its
	// connection had ended. The message will come again.
	Refused(messageID, reason string)
	// Connected: a connection to a broker is ready. Those that the client closes itself have no Disconnected.
	Connected(broker string)
	// Disconnected: a connection to a broker ended or could not be made.
	Disconnected(broker string, err error)
}

// NoObserver is an Observer that does nothing.
type NoObserver struct{}

// Published implements Observer.
func (NoObserver) Published(string, int, int, time.Duration, error) {}

// Handled implements Observer.
func (NoObserver) Handled(*Delivery, time.Duration, error) {}

// Refused implements Observer.
func (NoObserver) Refused(string, string) {}

// Connected implements Observer.
func (NoObserver) Connected(string) {}

// Disconnected implements Observer.
func (NoObserver) Disconnected(string, error) {}

// Tracer starts spans, for instance those of OpenTelemetry. [Headers] is a carrier for its
// propagators.
type Tracer interface {
	// Publish begins the span of a put. It may set headers, which travel with the message;
	// headers is nil for a message with a Delay, which cannot have any. end is called with the
	// put's error.
	Publish(ctx context.Context, topic string, headers Headers) (end func(error))
	// Handle begins the span of a handler and returns its context. end is called with the
	// handler's error.
	Handle(ctx context.Context, d *Delivery) (handler context.Context, end func(error))
}
