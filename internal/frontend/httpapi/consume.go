package httpapi

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
)

const (
	// maxPollWait bounds ?wait=.
	maxPollWait = 5 * time.Minute
	// aliveEvery is how often a stream without messages sends a comment.
	aliveEvery = 15 * time.Second
	// maxReceipts bounds the receipts of one request, and their bytes.
	maxReceipts     = 10_000
	maxReceiptBytes = 1 << 20
)

const helpReceipts = "a receipt a line, or a JSON list of receipts"

var (
	argsConsume = []Argument{
		argTopicName, argChannel, numberArg("max", "the most messages of the answer (1)"),
		durationArg("wait", "how long the request waits for a first message"),
		numberArg("max_in_flight", "the most messages in flight of this client (--max-rdy-count)"),
		durationArg("msg_timeout", "the message timeout (--msg-timeout)"),
		textArg("client", "a name that distinguishes clients of one address"), textArg("encoding", "base64: also bodies that are text"),
	}
	argsReceipts = []Argument{argTopicName, argChannel, {
		Name: "receipt", Kind: kindText, Help: "of a message, from /v1/consume; otherwise receipts are in the body", Repeats: true,
		invalid: "INVALID_ARG_RECEIPT",
	}}
)

var consumerRoutes = []Route{
	post("/v1/consume", access.Consume, (*endpoints).consume,
		"Take messages from a channel, each with a receipt. Accept: application/json, multipart/mixed, or text/event-stream "+
			"for a stream. Guide: docs/guide/consume-with-curl.md.", argsConsume...).
		replies(messagesReply{}).fails("BODY_NOT_EMPTY"),
	post("/v1/finish", access.Consume, settle(api.VerbFinish, func(n int) any { return finishedReply{n} }),
		"Finish messages by their receipts, at any broker. 409 names the receipts that are refused; the others are done.",
		argsReceipts...).
		reads(helpReceipts).replies(finishedReply{}).fails("MISSING_ARG_RECEIPT", "BAD_BODY"),
	post("/v1/requeue", access.Consume, settle(api.VerbRequeue, func(n int) any { return requeuedReply{n} }),
		"Requeue messages by their receipts. Answers as /v1/finish.",
		append(slices.Clone(argsReceipts), durationArg("delay", "they are delivered again after this time"))...).
		reads(helpReceipts).replies(requeuedReply{}).fails("MISSING_ARG_RECEIPT", "BAD_BODY"),
	post("/v1/touch", access.Consume, settle(api.VerbTouch, func(n int) any { return touchedReply{n} }),
		"Restart the timeouts of messages by their receipts. Answers as /v1/finish.", argsReceipts...).
		reads(helpReceipts).replies(touchedReply{}).fails("MISSING_ARG_RECEIPT", "BAD_BODY"),
}

type (
	finishedReply struct {
		Finished int `json:"finished"`
	}
	requeuedReply struct {
		Requeued int `json:"requeued"`
	}
	touchedReply struct {
		Touched int `json:"touched"`
	}
)

type consumption struct {
	consume.Request
	most      int
	wait      time.Duration
	mediaType string
	base64    bool // base64 even for bodies that are text
}

func (a *endpoints) consume(q *request) (any, error) {
	c, err := a.readConsumption(q)
	if err != nil {
		return nil, err
	}
	if c.mediaType == mediaEvents {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.stream(w, r, c) }), nil
	}
	ctx, end := identityOf(q.Request).While(q.Context(), needOf(c))
	b, err := a.b.Consumers.Poll(ctx, c.Request, c.most, c.wait)
	if err == nil {
		err = allow(q.Request, needOf(c)) // again, after the wait
	}
	err = guard.Lost(ctx, err)
	end()
	if err != nil && b != nil {
		b.Close(false)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err != nil {
			a.refuseConsumer(w, r, err)
		} else {
			answerBatch(w, r, c, b)
		}
	}), nil
}

// answerBatch writes the messages, and requeues them if that fails.
func answerBatch(w http.ResponseWriter, r *http.Request, c consumption, b *consume.Batch) {
	var err error
	h := w.Header()
	h.Set("X-NSQ-Content-Type", "nsq; version=1.0")
	h.Set("Cache-Control", "no-store")
	out := bufio.NewWriterSize(w, 16<<10)
	if c.mediaType == mediaMixed {
		err = writeParts(h, out, b)
	} else {
		h.Set("Content-Type", mediaJSON+"; charset=utf-8")
		err = writeList(out, b, c.base64)
	}
	b.Close(errors.Join(err, out.Flush(), r.Context().Err()) == nil)
}

func (a *endpoints) readConsumption(q *request) (c consumption, err error) {
	// The body is read to its end, so that the server detects when the client disconnects.
	if n, _ := io.Copy(io.Discard, io.LimitReader(q.Body, 1)); n > 0 {
		return c, fail(http.StatusBadRequest, "BODY_NOT_EMPTY")
	}
	var ok bool
	if c.mediaType, ok = accepted(q.Header); !ok {
		return c, fail(http.StatusNotAcceptable, "NOT_ACCEPTABLE")
	}
	o := &a.opts
	c.Topic, c.Channel, c.Client.Name = q.topic(), q.channel(), q.text("client")
	c.MaxInFlight = q.between("max_in_flight", int(o.MaxRdyCount), 1, int(o.MaxRdyCount))
	c.most = q.between("max", 1, 1, int(o.MaxRdyCount))
	c.wait = q.duration("wait", 0, 0, maxPollWait)
	c.MsgTimeout = q.duration("msg_timeout", o.MsgTimeout, time.Millisecond, o.MaxMsgTimeout)
	if c.Client.Name != "" && !api.ValidName(c.Client.Name) {
		q.reject("client", "must have 1 to 64 letters, digits, dots, underscores and hyphens")
	}
	switch q.text("encoding") {
	case "":
	case "base64":
		c.base64 = true
	default:
		q.reject("encoding", "must be base64, or missing")
	}
	if c.mediaType == mediaEvents && (q.has("max") || q.has("wait")) {
		q.fail("a stream has neither max nor wait, but max_in_flight")
	}
	a.describe(q.Request, &c)
	return c, q.err
}

func (a *endpoints) describe(r *http.Request, c *consumption) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr // a unix socket
	}
	c.Client.Host, c.Client.Network = host, guard.Network(host)
	c.About = api.ClientStats{
		ClientID: cmp.Or(c.Client.Name, host), Hostname: host, Version: api.OverHTTP, RemoteAddress: r.RemoteAddr,
		UserAgent: strings.ToValidUTF8(r.UserAgent()[:min(len(r.UserAgent()), maxAgent)], ""), TLS: r.TLS != nil,
	}
	if s := identityOf(r); s != nil {
		c.Client.Identity = s.Identity()
		c.About.Authed, c.About.AuthIdentity = s.LoggedIn(), s.Identity()
	}
}

const maxAgent = 256

func needOf(c consumption) guard.Need {
	return guard.Need{Right: access.Consume, Topic: c.Topic, Channel: c.Channel}
}

func (a *endpoints) refuseConsumer(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil:
		return // the client has left
	case errors.Is(err, outcome.ErrTooManyClients):
		err = &failure{status: http.StatusTooManyRequests, message: err.Error(), retryAfter: true}
	case errors.Is(err, consume.ErrBusy), errors.Is(err, outcome.ErrNotReady):
		err = unavailable(err.Error())
	}
	a.refuse(w, r, err)
}

func (a *endpoints) stream(w http.ResponseWriter, r *http.Request, c consumption) {
	conn := http.NewResponseController(w)
	out := bufio.NewWriterSize(w, 16<<10)
	begun := false
	begin := func() {
		if !begun {
			begun = true
			h := w.Header()
			h.Set("X-NSQ-Content-Type", "nsq; version=1.0")
			h.Set("Content-Type", mediaEvents)
			h.Set("Cache-Control", "no-store")
			h.Set("X-Accel-Buffering", "no") // of a reverse proxy
			w.WriteHeader(http.StatusOK)
		}
	}
	ctx, end := identityOf(r).While(r.Context(), needOf(c))
	defer end()
	err := a.b.Consumers.Stream(ctx, c.Request, aliveEvery, func(b *consume.Batch) error {
		if err := allow(r, needOf(c)); err != nil {
			return err
		}
		begin()
		if err := writeEvents(out, b, c.base64); err != nil {
			return err
		}
		return errors.Join(out.Flush(), conn.Flush())
	})
	err = guard.Lost(ctx, err)
	if !begun {
		a.refuseConsumer(w, r, err)
		return
	}
	if r.Context().Err() == nil { // tell the client why the stream ended
		_ = writeEnd(out, err.Error()) // the client may have disconnected
		_ = out.Flush()
	}
}

// settle finishes, requeues or touches the messages whose receipts are in ?receipt= or in the body.
func settle(verb api.Verb, reply func(done int) any) endpoint {
	return func(a *endpoints, q *request) (any, error) {
		do := api.Settlement{Verb: verb, DelayMS: q.duration("delay", 0, 0, a.opts.MaxReqTimeout).Milliseconds()}
		if q.err != nil {
			return nil, q.err
		}
		texts, err := a.receiptTexts(q)
		if err != nil {
			return nil, err
		}
		receipts, err := parseReceipts(texts)
		if err != nil {
			return nil, err
		}
		errs := a.b.Consumers.Settle(q.Context(), q.topic(), q.channel(), do, receipts)
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answerSettled(w, reply, texts, errs) }), nil
	}
}

// answerSettled answers 200 if every receipt is settled. Otherwise the answer names the receipts that are not: 409 if a
// repeat does not help, 503 if it may.
func answerSettled(w http.ResponseWriter, reply func(done int) any, texts []string, errs []error) {
	var refused []refusal
	status := http.StatusOK
	final := []error{outcome.ErrNotInFlight, outcome.ErrNotOwner, outcome.ErrTopicNotFound, outcome.ErrChannelNotFound}
	for i, err := range errs {
		if err == nil {
			continue
		}
		refused = append(refused, refusal{Receipt: texts[i], Message: err.Error()})
		if slices.ContainsFunc(final, func(f error) bool { return errors.Is(err, f) }) {
			status = max(status, http.StatusConflict)
		} else {
			status = http.StatusServiceUnavailable
		}
	}
	if len(refused) == 0 {
		respond(w, status, reply(len(errs)))
		return
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	respond(w, status, map[string]any{
		"message": fmt.Sprintf("%d of %d receipts refused: %s", len(refused), len(errs), refused[0].Message),
		"refused": refused, "done": len(errs) - len(refused),
	})
}

func (a *endpoints) receiptTexts(q *request) ([]string, error) {
	release, err := a.reserve(q.Request, maxReceiptBytes)
	if err != nil {
		return nil, err
	}
	defer release()
	body, err := readUpTo(q.Request, maxReceiptBytes+1)
	switch {
	case err != nil:
		return nil, a.bodyFailed(q.Request, fail(http.StatusBadRequest, "BAD_BODY"))
	case len(body) > maxReceiptBytes:
		return nil, fail(http.StatusRequestEntityTooLarge, "BODY_TOO_BIG")
	}
	texts := q.values["receipt"]
	if body = bytes.TrimSpace(body); len(body) > 0 && len(texts) > 0 {
		return nil, fmt.Errorf("%w: receipts are in the query or in the body, not in both", outcome.ErrInvalid)
	}
	if len(body) > 0 && body[0] == '[' {
		if json.Unmarshal(body, &texts) != nil {
			return nil, fmt.Errorf("%w: the body must be a JSON array of receipts, or have one receipt a line", outcome.ErrInvalid)
		}
	} else if len(body) > 0 {
		texts = strings.Fields(string(body))
	}
	switch {
	case len(texts) == 0:
		return nil, fail(http.StatusBadRequest, "MISSING_ARG_RECEIPT")
	case len(texts) > maxReceipts:
		return nil, fail(http.StatusRequestEntityTooLarge, "TOO_MANY_RECEIPTS")
	}
	return texts, nil
}

// parseReceipts reads all receipts before any of them is settled.
func parseReceipts(texts []string) ([]consume.Receipt, error) {
	list := make([]consume.Receipt, len(texts))
	for i, text := range texts {
		var err error
		if list[i], err = consume.ParseReceipt(text); err != nil {
			return nil, fail(http.StatusBadRequest, "INVALID_ARG_RECEIPT")
		}
	}
	return list, nil
}
