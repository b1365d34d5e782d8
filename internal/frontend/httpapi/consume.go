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
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
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

// consumersOnly adds the endpoints of clients that consume by HTTP requests.
func (a *endpoints) consumersOnly(d *door) {
	if a.b.Consumers == nil {
		return
	}
	d.HandlerFunc(http.MethodPost, "/v1/consume", a.consume)
	d.HandlerFunc(http.MethodPost, "/v1/finish", a.settle(api.VerbFinish, func(n int) any { return finishedReply{n} }))
	d.HandlerFunc(http.MethodPost, "/v1/requeue", a.settle(api.VerbRequeue, func(n int) any { return requeuedReply{n} }))
	d.HandlerFunc(http.MethodPost, "/v1/touch", a.settle(api.VerbTouch, func(n int) any { return touchedReply{n} }))
}

// consumption is a request for messages.
type consumption struct {
	consume.Request
	most      int
	wait      time.Duration
	mediaType string
	base64    bool // also for bodies that are text
}

// consume: POST /v1/consume?topic=&channel=&max=&wait=&max_in_flight=&msg_timeout=&client=&encoding=.
func (a *endpoints) consume(w http.ResponseWriter, r *http.Request) {
	c, err := a.readConsumption(r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	if c.mediaType == Events {
		a.stream(w, r, c)
		return
	}
	ctx, end := identityOf(r).While(r.Context(), needOf(c))
	b, err := a.b.Consumers.Poll(ctx, c.Request, c.most, c.wait)
	if err == nil {
		err = a.stillAllowed(r, c)
	}
	err = guard.Lost(ctx, err)
	end()
	if err != nil {
		if b != nil {
			b.Close(false)
		}
		a.refuseConsumer(w, r, err)
		return
	}
	h := w.Header()
	h.Set("X-NSQ-Content-Type", "nsq; version=1.0")
	h.Set("Cache-Control", "no-store")
	out := bufio.NewWriterSize(w, 16<<10)
	if c.mediaType == Mixed {
		err = WriteParts(h, out, b)
	} else {
		h.Set("Content-Type", JSON+"; charset=utf-8")
		err = WriteList(out, b, c.base64)
	}
	b.Close(errors.Join(err, out.Flush(), r.Context().Err()) == nil)
}

// readConsumption reads the arguments.
func (a *endpoints) readConsumption(r *http.Request) (c consumption, err error) {
	n, err := channelNames(r)
	if err == nil {
		err = emptyBody(r)
	}
	if err == nil {
		var ok bool
		if c.mediaType, ok = Accepted(r.Header); !ok {
			err = fail(http.StatusNotAcceptable, "NOT_ACCEPTABLE")
		}
	}
	if err != nil {
		return c, err
	}
	o := &a.opts
	v := reader{Values: n.values}
	c.Topic, c.Channel = n.topic, n.channel
	c.MaxInFlight = v.number("max_in_flight", int(o.MaxRdyCount), int(o.MaxRdyCount))
	c.most = v.number("max", 1, int(o.MaxRdyCount))
	c.wait = v.duration("wait", 0, 0, maxPollWait)
	c.MsgTimeout = v.duration("msg_timeout", o.MsgTimeout, time.Millisecond, o.MaxMsgTimeout)
	c.Client.Name = v.Get("client")
	if c.Client.Name != "" && !api.ValidName(c.Client.Name) {
		v.fail("client must have 1 to 64 letters, digits, dots, underscores and hyphens")
	}
	switch v.Get("encoding") {
	case "":
	case "base64":
		c.base64 = true
	default:
		v.fail("encoding must be base64, or missing")
	}
	if c.mediaType == Events && (v.Has("max") || v.Has("wait")) {
		v.fail("a stream has neither max nor wait, but max_in_flight")
	}
	a.describe(r, &c)
	return c, v.err
}

// describe sets the identity of the client, for its session and for /stats.
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

// maxAgent bounds the user agent in /stats, in bytes.
const maxAgent = 256

// emptyBody reads the body to its end, so that the server notices when the client leaves.
func emptyBody(r *http.Request) error {
	if n, _ := io.Copy(io.Discard, io.LimitReader(r.Body, 1)); n > 0 {
		return fail(http.StatusBadRequest, "BODY_NOT_EMPTY")
	}
	return nil
}

// reader reads arguments and keeps the first error.
type reader struct {
	url.Values
	err error
}

func (v *reader) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf("%w: "+format, append([]any{api.ErrInvalid}, args...)...)
	}
}

// number reads a number from 1 to most.
func (v *reader) number(name string, byDefault, most int) int {
	if !v.Has(name) {
		return byDefault
	}
	n, err := strconv.Atoi(v.Get(name))
	if err != nil || n < 1 || n > most {
		v.fail("%s must be a number from 1 to %d", name, most)
		return byDefault
	}
	return n
}

// duration reads a duration: 20s, or a number of milliseconds as in ?defer=.
func (v *reader) duration(name string, byDefault, least, most time.Duration) time.Duration {
	if !v.Has(name) {
		return byDefault
	}
	d, ok := span(v.Get(name))
	if !ok || d < least || d > most {
		v.fail("%s must be a duration such as 20s, or a number of milliseconds, from %v to %v", name, least, most)
		return byDefault
	}
	return d
}

func needOf(c consumption) guard.Need {
	return guard.Need{Right: access.Consume, Topic: c.Topic, Channel: c.Channel}
}

// stillAllowed asks for the right again after a wait.
func (a *endpoints) stillAllowed(r *http.Request, c consumption) error {
	s := identityOf(r)
	if s == nil {
		return nil
	}
	return s.Allow(r.Context(), needOf(c))
}

// refuseConsumer answers a request for messages that failed.
func (a *endpoints) refuseConsumer(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil:
		return // the client has left
	case errors.Is(err, api.ErrTooManyClients):
		err = &failure{status: http.StatusTooManyRequests, message: err.Error(), retryAfter: true}
	case errors.Is(err, consume.ErrBusy), errors.Is(err, api.ErrNotReady):
		err = &failure{status: http.StatusServiceUnavailable, message: err.Error(), retryAfter: true}
	}
	a.refuse(w, r, err)
}

// stream answers with server-sent events until the client leaves.
func (a *endpoints) stream(w http.ResponseWriter, r *http.Request, c consumption) {
	conn := http.NewResponseController(w)
	out := bufio.NewWriterSize(w, 16<<10)
	begun := false
	begin := func() {
		if !begun {
			begun = true
			h := w.Header()
			h.Set("X-NSQ-Content-Type", "nsq; version=1.0")
			h.Set("Content-Type", Events)
			h.Set("Cache-Control", "no-store")
			h.Set("X-Accel-Buffering", "no") // of a reverse proxy
			w.WriteHeader(http.StatusOK)
		}
	}
	ctx, end := identityOf(r).While(r.Context(), needOf(c))
	defer end()
	err := a.b.Consumers.Stream(ctx, c.Request, aliveEvery, func(b *consume.Batch) error {
		if err := a.stillAllowed(r, c); err != nil {
			return err
		}
		begin()
		if err := WriteEvents(out, b, c.base64); err != nil {
			return err
		}
		return errors.Join(out.Flush(), conn.Flush())
	})
	err = guard.Lost(ctx, err)
	if !begun {
		a.refuseConsumer(w, r, err)
		return
	}
	if r.Context().Err() == nil { // the client learns the reason of the end
		_ = WriteEnd(out, err.Error()) // the client may have left
		_ = out.Flush()
	}
}

// settle: POST /v1/finish?topic=&channel=&receipt=, and likewise requeue (with ?delay=) and touch. ?receipt= may be
// repeated; otherwise the body has the receipts, one a line or as a JSON array.
func (a *endpoints) settle(verb api.Verb, reply func(done int) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := channelNames(r)
		v := reader{Values: n.values}
		do := api.Settlement{Verb: verb, DelayMS: v.duration("delay", 0, 0, a.opts.MaxReqTimeout).Milliseconds()}
		if err == nil {
			err = v.err
		}
		var texts []string
		if err == nil {
			texts, err = a.receiptTexts(r, n.values)
		}
		var list []consume.Receipt
		if err == nil {
			list, err = parseReceipts(texts)
		}
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		errs := a.b.Consumers.Settle(r.Context(), n.topic, n.channel, do, list)
		answerSettled(w, reply, texts, errs)
	}
}

// answerSettled answers 200 if every receipt is settled. Otherwise the answer names the others: 409 if a repeat does not
// help, 503 if it may.
func answerSettled(w http.ResponseWriter, reply func(done int) any, texts []string, errs []error) {
	var refused []Refusal
	status := http.StatusOK
	for i, err := range errs {
		if err == nil {
			continue
		}
		refused = append(refused, Refusal{Receipt: texts[i], Message: err.Error()})
		if errors.Is(err, api.ErrNotInFlight) || errors.Is(err, api.ErrNotOwner) || errors.Is(err, api.ErrTopicNotFound) || errors.Is(err, api.ErrChannelNotFound) {
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

// receiptTexts reads the receipts from the arguments and the body.
func (a *endpoints) receiptTexts(r *http.Request, values url.Values) ([]string, error) {
	release, err := a.reserve(r, maxReceiptBytes)
	if err != nil {
		return nil, err
	}
	defer release()
	body, err := readUpTo(r, maxReceiptBytes+1)
	switch {
	case err != nil:
		return nil, a.bodyFailed(r, fail(http.StatusBadRequest, "BAD_BODY"))
	case len(body) > maxReceiptBytes:
		return nil, fail(http.StatusRequestEntityTooLarge, "BODY_TOO_BIG")
	}
	texts := values["receipt"]
	if body = bytes.TrimSpace(body); len(body) > 0 && len(texts) > 0 {
		return nil, fmt.Errorf("%w: receipts are in the query or in the body, not in both", api.ErrInvalid)
	}
	if len(body) > 0 && body[0] == '[' {
		if json.Unmarshal(body, &texts) != nil {
			return nil, fmt.Errorf("%w: the body must be a JSON array of receipts, or have one receipt a line", api.ErrInvalid)
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
