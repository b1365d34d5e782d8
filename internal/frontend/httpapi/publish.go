package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

var (
	argsPut = []Argument{
		argNewTopic,
		{Name: "defer", Kind: Milliseconds, Help: "consumers receive the message this much later"},
		textArg("key", "all messages with one key go to one partition, in their order"),
		durationArg("ttl", "the time to live: consumers do not receive the message after it"),
	}
	argsAppend = []Argument{argNewTopic, argTopicID, argPartition}
	argBinary  = boolArg("binary", "the body is the number of messages, then each message after its size; numbers have 4 bytes, big-endian")
	putCodes   = []string{"INVALID_DEFER", "INVALID_TTL", "INVALID_HEADERS", "INVALID_MESSAGE_ID"}
)

var publishRoutes = []Route{
	ofPuts(post("/pub", access.Publish, (*endpoints).pub,
		"Publish a message. The header X-Nsq-Headers has the headers of the message: one JSON object of strings.",
		argsPut...).reads("the message").fails(append([]string{"MSG_EMPTY"}, putCodes...)...)),
	ofPuts(post("/mpub", access.Publish, (*endpoints).mpub,
		"Publish several messages: all of them are stored, or none. X-Nsq-Headers has the headers of each, as with /pub.",
		slices.Insert(slices.Clone(argsPut), 1, argBinary)...).
		reads("one message a line, or as binary says").fails(putCodes...)),
	post("/v1/topic/append", access.Publish, (*endpoints).appendBatch,
		"Store messages in one partition, each with its own header, delay and trace id: all of them, or none. The topic must "+
			"exist. A header with a field ##…, or a delay above --max-defer-timeout, requires the right to administer it.",
		argsAppend...).
		reads("message records of the export format (docs/reference/export-format.md)").
		replies(appended{}).fails("MSG_EMPTY").uses(outcome.OfPuts | outcome.OfRequests),
}

// ofPuts returns a publishing route that also exists in nsqd; its answers are the outcomes of puts.
func ofPuts(r Route) Route {
	r.Uses, r.Reply, r.bodyFirst = outcome.OfPuts, "OK", true
	return r
}

// waiter passes the result of one put to the request that waits for it.
type waiter chan api.PutResult

func (w waiter) Answer(r api.PutResult) { w <- r } // capacity 1, called once

// pub has its checks in NSQ's order.
func (a *endpoints) pub(q *request) (any, error) {
	limit := a.opts.MaxMsgSize
	if q.ContentLength > limit {
		return nil, fail(http.StatusRequestEntityTooLarge, "MSG_TOO_BIG")
	}
	release, err := a.reserve(q.Request, limit)
	if err != nil {
		return nil, err
	}
	defer release()
	body, err := readUpTo(q.Request, limit+1)
	switch {
	case err != nil:
		return nil, a.bodyFailed(q.Request, fail(http.StatusInternalServerError, "INTERNAL_ERROR"))
	case int64(len(body)) > limit:
		return nil, fail(http.StatusRequestEntityTooLarge, "MSG_TOO_BIG")
	case len(body) == 0:
		return nil, fail(http.StatusBadRequest, "MSG_EMPTY")
	}
	p, err := a.readPut(q)
	if err != nil {
		return nil, err
	}
	draft := queue.NewDraft(len(body))
	m := queue.Message{Header: p.header, Body: body, DeliverAt: p.deliverAt, Identity: p.identity}
	if err := draft.AddMessage(m); err != nil {
		return nil, err
	}
	return a.put(q, draft)
}

// putArguments are the arguments that apply to each message of a put.
type putArguments struct {
	deliverAt int64 // unix ns; 0 = at once
	header    []byte
	identity  queue.Identity
}

// readPut reads everything of a put except its body.
func (a *endpoints) readPut(q *request) (p putArguments, err error) {
	if err = q.checkNames(); err != nil {
		return p, err
	}
	if p.deliverAt, err = a.deliverAt(q.values); err != nil {
		return p, err
	}
	if p.header, err = messageHeader(q.Request, q.values); err != nil {
		return p, err
	}
	p.identity, p.header, err = messageID(q.Request, p.header)
	return p, err
}

func readUpTo(r *http.Request, n int64) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(int(min(max(0, r.ContentLength), maxHint)) + bytes.MinRead)
	_, err := body.ReadFrom(io.LimitReader(r.Body, n))
	return body.Bytes(), err
}

// maxHint bounds the memory that is allocated for an announced Content-Length, in bytes.
const maxHint = 256 << 10

func (a *endpoints) mpub(q *request) (any, error) {
	if q.ContentLength > a.opts.MaxBodySize {
		return nil, fail(http.StatusRequestEntityTooLarge, "BODY_TOO_BIG")
	}
	p, err := a.readPut(q)
	if err != nil {
		return nil, err
	}
	release, err := a.reserve(q.Request, a.opts.MaxBodySize)
	if err != nil {
		return nil, err
	}
	defer release()
	d := newDecoder(q.Body, queue.NewDraft(int(min(max(0, q.ContentLength), maxHint))), a.opts.MaxMsgSize, a.opts.MaxBodySize)
	d.putArguments = p
	if q.has("binary") && q.flag("binary", true) {
		err = d.binary()
	} else {
		err = d.lines()
	}
	if err != nil {
		return nil, a.bodyFailed(q.Request, err)
	}
	if d.draft.Count() == 0 {
		return "OK", nil
	}
	return a.put(q, d.draft)
}

// deliverAt converts ?defer= (a duration, or milliseconds, which are NSQ's contract) into a deadline; 0 = at once.
func (a *endpoints) deliverAt(values url.Values) (unixNS int64, err error) {
	if !values.Has("defer") {
		return 0, nil
	}
	delay, ok := span(values.Get("defer"))
	if most := a.opts.MaxDefer(); !ok || delay > most {
		return 0, explain(http.StatusBadRequest, "INVALID_DEFER",
			"defer must be a duration such as 90s, or a number of milliseconds, from 0 to %v (--max-defer-timeout)", most)
	}
	if delay == 0 {
		return 0, nil
	}
	return time.Now().Add(delay).UnixNano(), nil
}

// ttlHeader converts ?ttl= into the header with the time to live of a message; nil = no limit. A number without a unit
// is refused, because seconds read as milliseconds would lose the message.
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

// headerMessageID identifies a put: a put that is published again with the same id within the dedupe window is not
// stored again. headerDuplicate marks the answer to such a repeat.
const (
	headerMessageID = "X-Nsq-Message-Id"
	headerDuplicate = "X-Nsq-Duplicate"
)

// duplicate is the reply to a put that was stored before.
type duplicate struct{}

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

// put publishes to the partition of ?key=, or to any, and waits for the result; the Publisher bounds the wait.
func (a *endpoints) put(q *request, draft *queue.DraftBuilder) (any, error) {
	var key []byte
	if q.has("key") {
		key = []byte(q.text("key"))
	}
	result, err := a.publish(q, draft, func(d queue.Draft, w waiter) { a.b.Publisher.Publish(q.topic(), api.AnyPartition, key, d, w) })
	switch {
	case err != nil:
		return nil, putFailure(err)
	case result.Duplicate:
		return duplicate{}, nil
	}
	return "OK", nil
}

// publish waits for the admission of a put, and for its result.
func (a *endpoints) publish(q *request, draft *queue.DraftBuilder, send func(queue.Draft, waiter)) (api.PutResult, error) {
	if s := identityOf(q.Request); s != nil {
		if err := s.AllowPut(draft.Count(), draft.Size()); err != nil {
			return api.PutResult{}, err
		}
	}
	if err := a.b.Publisher.Admit(q.Context(), q.topic(), draft.Size()); err != nil {
		return api.PutResult{}, err
	}
	w := make(waiter, 1)
	send(draft.Draft(ident.RequestID{}), w)
	result := <-w
	return result, result.Err
}

// putFailure is the answer according to the table of outcomes: 503 if nothing is stored and a retry may succeed, 404 if
// the topic does not exist and may not be created, 504 if the put may be stored. An error without a row is answered
// 503.
func putFailure(err error) error {
	row, ok := outcome.Find(err, outcome.OfPuts)
	if !ok {
		return unavailable(err.Error())
	}
	return failureOf(row, err)
}

// appended is the answer of POST /v1/topic/append: the messages are Sequence to Sequence+Count−1 of the partition.
type appended struct {
	Partition int            `json:"partition"`
	Sequence  ident.Sequence `json:"sequence"`
	Count     int            `json:"count"`
	// Duplicate: a put that began with the same copy (##origin) is already stored, beginning at Sequence, perhaps with
	// fewer or more messages. Nothing of this put is stored.
	Duplicate bool `json:"duplicate,omitempty"`
}

// appendBatch stores messages as a whole, in their order, in one partition. If the first message is a copy (##origin),
// a repeat within the dedupe window is recognised.
func (a *endpoints) appendBatch(q *request) (any, error) {
	partition, id := q.partition(), q.topicID("topic_id")
	// A message of the largest size fits with the longest header.
	limit := max(a.opts.MaxBodySize, a.opts.MaxMsgSize+queue.MaxMessageHeader+msgstream.MessageOverhead)
	if q.err != nil {
		return nil, q.err
	}
	if err := a.isTopic(q.topic(), id); err != nil {
		return nil, err
	}
	if q.ContentLength > limit {
		return nil, fail(http.StatusRequestEntityTooLarge, "BODY_TOO_BIG")
	}
	release, err := a.reserve(q.Request, limit)
	if err != nil {
		return nil, err
	}
	defer release()
	draft := queue.NewDraft(int(min(max(0, q.ContentLength), maxHint)))
	special, err := records(q.Body, draft, a.opts.MaxMsgSize, limit, time.Now().Add(a.opts.MaxDefer()).UnixNano())
	if err != nil {
		return nil, a.bodyFailed(q.Request, err)
	}
	// The right to administer the topic is required to set what only copies have: a header that begins with ##, or a
	// delay longer than ?defer= permits. Otherwise a client could withhold a message from all channels but one, or pass
	// it off as a copy.
	if special {
		if err := allow(q.Request, guard.Need{Right: access.Administer, Topic: q.topic()}); err != nil {
			return nil, err
		}
	}
	result, err := a.publish(q, draft, func(d queue.Draft, w waiter) { a.b.Publisher.Publish(q.topic(), partition, nil, d, w) })
	switch {
	case errors.Is(err, outcome.ErrInvalid):
		return nil, err
	case err != nil:
		return nil, putFailure(err)
	}
	return appended{partition, result.Sequence, draft.Count(), result.Duplicate}, nil
}

// isTopic returns an error unless a topic of that name exists and has that id (0: any id). A topic that is deleted and
// created again has another id.
func (a *endpoints) isTopic(name string, id ident.TopicID) error {
	if settings, ok := a.b.Directory.TopicSettings(name); !ok || id != 0 && settings.ID != id {
		return outcome.ErrTopicNotFound
	}
	return nil
}
