package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrNotStored: the put is not stored and never will be.
	ErrNotStored = errors.New("not stored")
	// ErrInDoubt: the put may be stored.
	ErrInDoubt = errors.New("in doubt, may be stored")
	// ErrTooBig: a message or a batch is larger than the broker accepts.
	ErrTooBig = errors.New("too big")
	// ErrUnauthorized: the token is unknown, or its user lacks the right.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrRateLimited: the broker accepts no puts now.
	ErrRateLimited = errors.New("rate limited")
	// ErrInvalid: the request itself is wrong; a retry cannot succeed.
	ErrInvalid = errors.New("invalid")
	// ErrUnreachable: no broker could be reached.
	ErrUnreachable = errors.New("no broker can be reached")
	// ErrClosed: the client or the producer is closed.
	ErrClosed = errors.New("closed")
	// ErrLeaseLost is the cause of a handler's context (context.Cause) when the message may
	// be delivered to another consumer.
	ErrLeaseLost = errors.New("the message's lease is over")
	// ErrNotDrained: the outcome of some messages was not sent when Consume ended; they come
	// again.
	ErrNotDrained = errors.New("the outcome of some messages was not sent")
)

// Error is the error of a request to the cluster. errors.Is finds the classes above and the
// cause, such as the error of a context.
type Error struct {
	Op     string // publish, consume, connect, discover
	Topic  string // "" of connect
	Broker string // the address of the last broker; "" if none was reached
	Text   string // the broker's answer, or the reason
	Tries  int    // the number of attempts that reached a broker
	kinds  []error
	cause  error
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("lockstep: " + e.Op)
	if e.Topic != "" {
		fmt.Fprintf(&b, " %s", e.Topic)
	}
	if e.Broker != "" {
		fmt.Fprintf(&b, " (broker %s)", e.Broker)
	}
	if len(e.kinds) > 0 {
		b.WriteString(": " + e.kinds[0].Error())
	}
	if e.Text != "" {
		b.WriteString(": " + e.Text)
	}
	if e.cause != nil {
		b.WriteString(": " + e.cause.Error())
	}
	return b.String()
}

// Is reports whether target is one of the error's classes.
func (e *Error) Is(target error) bool { return slices.Contains(e.kinds, target) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// verdict is the meaning of a broker's error frame for the command that it answers.
type verdict struct {
	kinds     []error // the first is ErrNotStored or ErrInDoubt
	retry     bool    // a repeat may succeed and cannot store twice
	elsewhere bool    // the next attempt goes to another broker
	fatal     bool    // the broker ran no command behind this one, and closes the connection
}

// judge reads an error frame. A client without a token has none for another broker
// either.
func (o *Options) judge(text string) verdict {
	v := judge(text)
	if o.Token == "" && strings.HasPrefix(text, "E_AUTH_FIRST ") {
		v.retry, v.elsewhere = false, false
	}
	return v
}

// judge reads an error frame. A text that is unknown leaves the put in doubt.
func judge(text string) verdict {
	code, rest, _ := strings.Cut(text, " ")
	switch code {
	case "E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED":
		_, reason, _ := strings.Cut(rest, " failed ")
		return judgePut(reason)
	case "E_UNAUTHORIZED":
		return verdict{kinds: []error{ErrNotStored, ErrUnauthorized}, fatal: true}
	case "E_AUTH_FIRST", "E_AUTH_FAILED":
		// A broker that does not know its users yet also refuses the token. A connection from
		// before the first user has sent none.
		return verdict{kinds: []error{ErrNotStored, ErrUnauthorized}, retry: true, elsewhere: true, fatal: true}
	case "E_BAD_MESSAGE", "E_BAD_BODY":
		if strings.Contains(rest, "too big") {
			return verdict{kinds: []error{ErrNotStored, ErrTooBig}, fatal: true}
		}
		return verdict{kinds: []error{ErrNotStored, ErrInvalid}, fatal: true}
	case "E_INVALID", "E_BAD_TOPIC", "E_BAD_CHANNEL", "E_BAD_PARTITION", "E_INVALID_JSON_HEADER",
		"E_EXT_NOT_SUPPORT", "INVALID_TRACE_ID", "E_AUTH_DISABLED", "E_BAD_PROTOCOL", "E_IDENTIFY_FAILED":
		return verdict{kinds: []error{ErrNotStored, ErrInvalid}, fatal: true}
	}
	return verdict{kinds: []error{ErrInDoubt}}
}

// definite are the reasons of refusals without the words "not stored": their puts are not
// stored either.
var definite = []string{"exiting", "topic not found", "not ready", "the cluster cannot do this now", "quota reached"}

// judgePut reads the reason of a put that the cluster did not store.
func judgePut(reason string) verdict {
	has := func(text string) bool { return strings.Contains(reason, text) }
	stored := !has("not stored") && !slices.ContainsFunc(definite, func(d string) bool { return strings.HasPrefix(reason, d) })
	switch {
	case has("in doubt"), stored:
		return verdict{kinds: []error{ErrInDoubt}}
	case has("too big"):
		return verdict{kinds: []error{ErrNotStored, ErrTooBig}}
	case has("too many puts"), has("rate limited"):
		return verdict{kinds: []error{ErrNotStored, ErrRateLimited}, retry: true}
	case has("topic not found"), has("quota reached"):
		return verdict{kinds: []error{ErrNotStored}}
	case has("topic is full"), has("disk reserve"):
		return verdict{kinds: []error{ErrNotStored}, retry: true}
	}
	return verdict{kinds: []error{ErrNotStored}, retry: true, elsewhere: true}
}

// invalid is the error of a request that is refused before it is sent.
func invalid(op, topic, text string) *Error {
	kinds := []error{ErrInvalid}
	if op == "publish" {
		kinds = []error{ErrNotStored, ErrInvalid}
	}
	return &Error{Op: op, Topic: topic, Text: text, kinds: kinds}
}
