package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Handler processes one message. nil finishes the message; an error brings it again, after the
// delay of [RetryAfter] if the error has one, else after ConsumeOptions.RetryDelay. ctx ends with
// the lease of the message: then another consumer may have it, and the outcome is dropped.
type Handler func(ctx context.Context, d *Delivery) error

// RetryAfter returns an error for a handler: the message comes again after d. A d of 0 or less
// means at once, or as the channel's policy says.
func RetryAfter(err error, d time.Duration) error { return &retryAfter{err, d} }

type retryAfter struct {
	error
	after time.Duration
}

func (r *retryAfter) Unwrap() error { return r.error }

// Position is a place in a topic at which a channel begins.
type Position struct{ start string }

// Latest is the end of the topic: the channel receives what is published from now on.
func Latest() Position { return Position{"special:-1"} }

// FromSequence is a sequence of each partition; 0 is the oldest message that is kept.
func FromSequence(n uint64) Position { return Position{"msgcount:" + strconv.FormatUint(n, 10)} }

// FromTime is the first message since a time, in whole seconds.
func FromTime(t time.Time) Position {
	return Position{"timestamp:" + strconv.FormatInt(max(0, t.Unix()), 10)}
}

// ConsumeOptions of a consumer. The zero value is ready for use.
type ConsumeOptions struct {
	// MaxInFlight bounds the messages in progress, and so the handlers that run at the same time.
	// By default 64; at most the broker's --max-rdy-count, 2,500.
	MaxInFlight int
	// Ordered consumes an ordered channel: of each partition one message is in progress at a
	// time, and Delivery.Token is set.
	Ordered bool
	// From moves the channel before the first message, if it has no other consumer. The zero
	// value leaves it where it is. It is not for ordered channels.
	From Position
	// Lease is the message timeout: how long the broker waits for the outcome of a message
	// before it delivers it again. By default the broker's, 1 min; at least 1 s.
	Lease time.Duration
	// NoTouch ends the lease of a message after Lease. By default the lease is extended while the
	// handler runs, up to the broker's --max-msg-timeout (15 min) since the delivery.
	NoTouch bool
	// RetryDelay is the delay of a message whose handler returned an error without one. By
	// default 1 s; negative: at once, or as the channel's policy says.
	RetryDelay time.Duration
	// DrainTimeout bounds the wait for the handlers at the end; by default 30 s.
	DrainTimeout time.Duration
	// GiveUpAfter ends Consume when all brokers have refused the token for this long; a broker that
	// starts refuses it too. By default 10 s. A missing right ends it at once.
	GiveUpAfter time.Duration
}

func (o *ConsumeOptions) complete() error {
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 64
	}
	if o.RetryDelay == 0 {
		o.RetryDelay = time.Second
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 30 * time.Second
	}
	if o.GiveUpAfter <= 0 {
		o.GiveUpAfter = 10 * time.Second
	}
	switch {
	case o.MaxInFlight < 0:
		return errors.New("negative MaxInFlight")
	case o.Lease != 0 && o.Lease < time.Second:
		return errors.New("less than 1s of Lease")
	case o.Ordered && o.From != Position{}:
		return errors.New("an ordered channel takes no From")
	}
	return nil
}

// consumer is one call of Consume.
type consumer struct {
	c              *Client
	topic, channel string
	o              ConsumeOptions
	handle         Handler
	handlers       sync.WaitGroup
	leaving        sync.WaitGroup // connections to brokers that stop
	undrained      atomic.Bool    // one of them lost leases at the end
	moved          bool           // From was applied

	mu struct {
		sync.Mutex
		running int           // handlers, of all connections
		current *subscription // nil between connections
	}
}

// Consume delivers the messages of a channel to the handler until ctx ends. It makes the topic
// and the channel if they are missing. At the end it stops taking messages and waits for the
// handlers, up to DrainTimeout; then their contexts end. nil means that the outcome of each
// message was sent; otherwise the error is ErrNotDrained. A handler is always waited for.
//
// Consume continues through failures of brokers and of the cluster. It returns early only if the
// request is wrong (ErrInvalid) or not allowed (ErrUnauthorized).
func (c *Client) Consume(ctx context.Context, topic, channel string, o ConsumeOptions, h Handler) error {
	err := o.complete()
	switch {
	case err != nil:
		return invalid("consume", topic, err.Error())
	case !validName(topic) || !validName(channel):
		return invalid("consume", topic, fmt.Sprintf("the names %q and %q are not both valid", topic, channel))
	}
	r := &consumer{c: c, topic: topic, channel: channel, o: o, handle: h}
	err = r.run(ctx)
	r.handlers.Wait()
	r.leaving.Wait()
	if err == nil && r.undrained.Load() {
		err = &Error{Op: "consume", Topic: topic, kinds: []error{ErrNotDrained}}
	}
	return err
}

// run makes one subscription after the other.
func (r *consumer) run(ctx context.Context) error {
	var refused time.Time // since when every broker refuses the token
	for {
		began := time.Now()
		s, err := r.subscribe(ctx)
		if err == nil {
			refused = time.Time{}
			err = s.serve(ctx)
			if r.o.Ordered {
				r.handlers.Wait() // of each partition one handler runs at a time
				r.leaving.Wait()  // and its outcome is known
			}
		}
		switch {
		case errors.Is(err, ErrNotDrained):
			return err
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errDenied), errors.Is(err, ErrInvalid):
			return err
		case !errors.Is(err, ErrUnauthorized):
			refused = time.Time{}
		case refused.IsZero():
			refused = began
		case time.Since(refused) > r.o.GiveUpAfter:
			return err
		}
	}
}

// errDenied marks a right that is missing, in contrast to a token that may be known later.
var errDenied = errors.New("the right is missing")

// subscribe connects to a broker and subscribes.
func (r *consumer) subscribe(ctx context.Context) (*subscription, error) {
	n, err := r.c.connect(ctx, r.topic, r.o.Lease, 2*longestPause) // the whole pause: it is at most 1.5 times that
	if err != nil {
		return nil, err
	}
	line := "SUB_ADVANCED " + r.topic + " " + r.channel
	switch {
	case r.o.Ordered:
		line = "SUB_ORDERED " + r.topic + " " + r.channel
	case !r.moved && r.o.From != Position{}:
		line += " " + r.o.From.start
	}
	stop := context.AfterFunc(ctx, func() { n.fail(ctx.Err()) })
	defer stop()
	_ = n.raw.SetReadDeadline(time.Now().Add(subscribeTimeout)) // a closed socket fails at the read
	if err = n.write([]byte(line + "\n")); err == nil {
		err = n.expectOK()
	}
	if err != nil {
		n.fail(err)
		r.c.failed(n.addr, err)
		return nil, r.failure(n.addr, err)
	}
	r.moved = true
	r.c.succeeded(n.addr)
	return newSubscription(ctx, r, n), nil
}

// failure is the error of a subscription that was refused or has ended.
func (r *consumer) failure(broker string, err error) error {
	e := &Error{Op: "consume", Topic: r.topic, Broker: broker, cause: err}
	if answered := (*Error)(nil); errors.As(err, &answered) {
		e.Text, e.kinds, e.cause = answered.Text, answered.kinds, nil
		if v := r.c.o.judge(answered.Text); errors.Is(err, ErrUnauthorized) && !v.retry {
			e.cause = errDenied
		}
	}
	return e
}

// begin counts a handler.
func (r *consumer) begin() {
	r.handlers.Add(1)
	r.mu.Lock()
	r.mu.running++
	r.mu.Unlock()
}

// ended counts a handler that has returned. A handler of an earlier connection has taken credit
// from the current one, which gets it back.
func (r *consumer) ended(of *subscription) {
	r.mu.Lock()
	r.mu.running--
	current := r.mu.current
	if current != nil && current != of {
		current.strays--
		current.grant(r.o.MaxInFlight - current.strays)
	}
	r.mu.Unlock()
	r.handlers.Done()
}
