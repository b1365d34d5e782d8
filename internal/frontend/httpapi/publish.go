package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// waiter passes the result of one put to the request that waits for it.
type waiter chan api.PutResult

func (w waiter) Answer(r api.PutResult) { w <- r } // capacity 1, called once

// pub: POST /pub?topic=&defer=&key=&ttl=; the body is the message. The checks are in NSQ's
// order.
func (a *endpoints) pub(r *http.Request) (any, error) {
	limit := a.opts.MaxMsgSize
	if r.ContentLength > limit {
		return nil, fail(http.StatusRequestEntityTooLarge, "MSG_TOO_BIG")
	}
	release, err := a.reserve(r, limit)
	if err != nil {
		return nil, err
	}
	defer release()
	body, err := readUpTo(r, limit+1)
	switch {
	case err != nil:
		return nil, a.bodyFailed(r, fail(http.StatusInternalServerError, "INTERNAL_ERROR"))
	case int64(len(body)) > limit:
		return nil, fail(http.StatusRequestEntityTooLarge, "MSG_TOO_BIG")
	case len(body) == 0:
		return nil, fail(http.StatusBadRequest, "MSG_EMPTY")
	}
	p, err := a.readPut(r)
	if err != nil {
		return nil, err
	}
	draft := queue.NewDraft(len(body))
	if err := draft.AddMessage(queue.Message{Header: p.header, Body: body, DeliverAt: p.deliverAt, Identity: p.identity}); err != nil {
		return nil, err
	}
	return a.put(r, p, draft)
}

// putArguments are the topic and the arguments of a put; each of its messages gets the header, the time and the identity.
type putArguments struct {
	topic     string
	values    url.Values
	deliverAt int64 // unix ns; 0 = at once
	header    []byte
	identity  queue.Identity
}

// readPut reads all of a put but its body.
func (a *endpoints) readPut(r *http.Request) (p putArguments, err error) {
	if p.topic, p.values, err = putTopic(r); err != nil {
		return p, err
	}
	if p.deliverAt, err = a.deliverAt(p.values); err != nil {
		return p, err
	}
	if p.header, err = messageHeader(r, p.values); err != nil {
		return p, err
	}
	p.identity, p.header, err = messageID(r, p.header)
	return p, err
}

// readUpTo reads at most n bytes of the body.
func readUpTo(r *http.Request, n int64) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(int(min(max(0, r.ContentLength), maxHint)) + bytes.MinRead)
	_, err := body.ReadFrom(io.LimitReader(r.Body, n))
	return body.Bytes(), err
}

// maxHint bounds the memory that is allocated for an announced Content-Length, in bytes.
const maxHint = 256 << 10

// mpub: POST /mpub?topic=&binary=&defer=&key=&ttl=, one message per line or length-prefixed
// messages.
func (a *endpoints) mpub(r *http.Request) (any, error) {
	if r.ContentLength > a.opts.MaxBodySize {
		return nil, fail(http.StatusRequestEntityTooLarge, "BODY_TOO_BIG")
	}
	p, err := a.readPut(r)
	if err != nil {
		return nil, err
	}
	release, err := a.reserve(r, a.opts.MaxBodySize)
	if err != nil {
		return nil, err
	}
	defer release()
	draft := queue.NewDraft(int(min(max(0, r.ContentLength), maxHint)))
	o := MPubOptions{MaxMsgSize: a.opts.MaxMsgSize, MaxBodySize: a.opts.MaxBodySize, DeliverAt: p.deliverAt, Header: p.header, Identity: p.identity}
	if p.values.Has("binary") && flag(p.values, "binary", true) {
		err = Binary(r.Body, draft, o)
	} else {
		err = Lines(r.Body, draft, o)
	}
	if err != nil {
		return nil, a.bodyFailed(r, bodyFailure(err))
	}
	if draft.Count() == 0 {
		return "OK", nil
	}
	return a.put(r, p, draft)
}

// bodyFailure is the answer to a body that cannot be read.
func bodyFailure(err error) error {
	for _, known := range []error{ErrBodyTooBig, ErrMsgTooBig, ErrBadBody, ErrBadMessage} {
		if errors.Is(err, known) {
			return fail(http.StatusRequestEntityTooLarge, known.Error())
		}
	}
	if errors.Is(err, ErrEmpty) {
		return fail(http.StatusBadRequest, ErrEmpty.Error())
	}
	if errors.Is(err, ErrRead) {
		return fail(http.StatusInternalServerError, ErrRead.Error())
	}
	return err
}

// putTopic reads and checks the topic of a put.
func putTopic(r *http.Request) (string, url.Values, error) {
	topic, values, err := topicOf(r)
	if err != nil {
		return "", nil, err
	}
	if !api.ValidName(topic) {
		return "", nil, explain(http.StatusBadRequest, "INVALID_TOPIC", "%q is no name of a topic: %s", clipped(topic), invalidName)
	}
	return topic, values, nil
}

// deliverAt converts ?defer= (a duration, or milliseconds, which are NSQ's contract) into a deadline; 0 = at once.
func (a *endpoints) deliverAt(values url.Values) (unixNS int64, err error) {
	if !values.Has("defer") {
		return 0, nil
	}
	delay, ok := span(values.Get("defer"))
	if most := a.opts.MaxDefer(); !ok || delay > most {
		return 0, explain(http.StatusBadRequest, "INVALID_DEFER", "defer must be a duration such as 90s, or a number of milliseconds, from 0 to %v (--max-defer-timeout)", most)
	}
	if delay == 0 {
		return 0, nil
	}
	return time.Now().Add(delay).UnixNano(), nil
}

// span reads a duration: 90s, or a number of milliseconds, as NSQ has it. Neither is negative, and
// beyond 292 years it is the longest one.
func span(text string) (time.Duration, bool) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, ms >= 0
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// ttlHeader converts ?ttl= into the header that limits the life of a message; nil = no limit. A number
// without a unit is refused: seconds that were read as milliseconds would lose the message.
func ttlHeader(values url.Values) ([]byte, error) {
	if !values.Has("ttl") {
		return nil, nil
	}
	ttl, err := time.ParseDuration(values.Get("ttl"))
	ms := ttl.Milliseconds()
	if err != nil || ms < 1 || ms > queue.MaxTTLMS {
		return nil, fail(http.StatusBadRequest, "INVALID_TTL")
	}
	return fmt.Appendf(nil, `{%q:%d}`, queue.HeaderTTL, ms), nil
}

// headerMessageID names a put: one that is published again with the same id is not stored again
// within the dedupe window. headerDuplicate says so in the answer.
const (
	headerMessageID = "X-Nsq-Message-Id"
	headerDuplicate = "X-Nsq-Duplicate"
)

// duplicate is the reply to a put that was stored before.
type duplicate struct{}

// messageID reads X-Nsq-Message-Id. The id also stands in the header of the message. Without one,
// header comes back as it is.
func messageID(r *http.Request, header []byte) (queue.Identity, []byte, error) {
	given, there := r.Header[headerMessageID]
	if !there {
		return queue.Identity{}, header, nil
	}
	if len(given) != 1 || !queue.ValidID(given[0]) {
		return queue.Identity{}, nil, fail(http.StatusBadRequest, "INVALID_MESSAGE_ID")
	}
	return queue.IdentityOf([]byte(given[0])), queue.WithID(header, given[0]), nil
}

// keyOf returns ?key=: all puts of one key go to the same partition. nil = any partition.
func keyOf(values url.Values) []byte {
	if !values.Has("key") {
		return nil
	}
	return []byte(values.Get("key"))
}

// put publishes and waits for the result; the Publisher bounds the wait.
func (a *endpoints) put(r *http.Request, p putArguments, draft *queue.DraftBuilder) (any, error) {
	if s := identityOf(r); s != nil {
		if err := s.AllowPut(draft.Count(), draft.Size()); err != nil {
			return nil, putFailure(err)
		}
	}
	if err := a.b.Publisher.Admit(r.Context(), p.topic, draft.Size()); err != nil {
		return nil, putFailure(err)
	}
	w := make(waiter, 1)
	a.b.Publisher.Publish(p.topic, keyOf(p.values), draft.Draft(ident.RequestID{}), w)
	result := <-w
	if result.Err != nil {
		return nil, putFailure(result.Err)
	}
	if result.Duplicate {
		return duplicate{}, nil
	}
	return "OK", nil
}

// putFailure is the answer of the table of outcomes: 503 if nothing is stored and a retry may
// succeed, 404 if the topic does not exist and may not be created, 504 if the put may be
// stored. Without a row of its own, an error is answered 503.
func putFailure(err error) error {
	row, ok := outcome.Find(err, outcome.OfPuts)
	if !ok {
		return &failure{status: http.StatusServiceUnavailable, message: err.Error(), retryAfter: true}
	}
	return failureOf(row, err)
}
