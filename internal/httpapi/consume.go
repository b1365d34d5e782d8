package httpapi

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/internal/access"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/guard"
	"github.com/lockstepmq/lockstep/internal/httpsub"
	"github.com/lockstepmq/lockstep/internal/ident"
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

// The media types of the answers to POST /v1/consume.
const (
	typeJSON   = "application/json"
	typeMixed  = "multipart/mixed"
	typeEvents = "text/event-stream"
)

// consumersOnly adds the endpoints of clients that consume by HTTP requests.
func (a *api) consumersOnly(d *door) {
	if a.b.Consumers == nil {
		return
	}
	d.HandlerFunc(http.MethodPost, "/v1/consume", a.consume)
	d.HandlerFunc(http.MethodPost, "/v1/finish", a.settle(edge.VerbFinish, func(n int) any { return finishedReply{n} }))
	d.HandlerFunc(http.MethodPost, "/v1/requeue", a.settle(edge.VerbRequeue, func(n int) any { return requeuedReply{n} }))
	d.HandlerFunc(http.MethodPost, "/v1/touch", a.settle(edge.VerbTouch, func(n int) any { return touchedReply{n} }))
}

// consumption is a request for messages.
type consumption struct {
	httpsub.Request
	most      int
	wait      time.Duration
	mediaType string
	base64    bool // also for bodies that are text
}

// consume: POST /v1/consume?topic=&channel=&max=&wait=&max_in_flight=&msg_timeout=&client=&encoding=.
func (a *api) consume(w http.ResponseWriter, r *http.Request) {
	c, err := a.readConsumption(r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	if c.mediaType == typeEvents {
		a.stream(w, r, c)
		return
	}
	b, err := a.b.Consumers.Poll(r.Context(), c.Request, c.most, c.wait)
	if err == nil {
		err = a.stillAllowed(r, c)
	}
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
	if c.mediaType == typeMixed {
		err = writeParts(h, out, b)
	} else {
		h.Set("Content-Type", typeJSON+"; charset=utf-8")
		err = writeList(out, b, c.base64)
	}
	b.Close(errors.Join(err, out.Flush(), r.Context().Err()) == nil)
}

// readConsumption reads the arguments.
func (a *api) readConsumption(r *http.Request) (c consumption, err error) {
	n, err := channelNames(r)
	if err == nil {
		err = emptyBody(r)
	}
	if err == nil {
		c.mediaType, err = accepted(r)
	}
	if err != nil {
		return c, err
	}
	o := &a.opts
	v := reader{Values: n.values}
	c.Topic, c.Channel = n.topic, n.channel
	c.MaxInFlight = v.number("max_in_flight", o.MaxInFlight, o.MaxInFlight)
	c.most = v.number("max", 1, o.MaxInFlight)
	c.wait = v.duration("wait", 0, 0, maxPollWait)
	c.MsgTimeout = v.duration("msg_timeout", o.MsgTimeout, time.Millisecond, o.MaxMsgTimeout)
	c.Client.Name = v.Get("client")
	if c.Client.Name != "" && !edge.ValidName(c.Client.Name) {
		v.fail("client must have 1 to 64 letters, digits, dots, underscores and hyphens")
	}
	switch v.Get("encoding") {
	case "":
	case "base64":
		c.base64 = true
	default:
		v.fail("encoding must be base64, or missing")
	}
	if c.mediaType == typeEvents && (v.Has("max") || v.Has("wait")) {
		v.fail("a stream has neither max nor wait, but max_in_flight")
	}
	a.describe(r, &c)
	return c, v.err
}

// describe sets the identity of the client, for its session and for /stats.
func (a *api) describe(r *http.Request, c *consumption) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr // a unix socket
	}
	c.Client.Host, c.Client.Network = host, guard.Network(host)
	c.About = edge.ClientStats{
		ClientID: cmp.Or(c.Client.Name, host), Hostname: host, Version: "HTTP", RemoteAddress: r.RemoteAddr,
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

// accepted chooses the media type of the answer: the first one of Accept that there is, without a look at weights.
func accepted(r *http.Request) (string, error) {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if header == "" {
		return typeJSON, nil
	}
	for kind := range strings.SplitSeq(header, ",") {
		switch kind, _, _ := mime.ParseMediaType(kind); kind {
		case "*/*", "application/*", typeJSON:
			return typeJSON, nil
		case typeMixed, "multipart/*":
			return typeMixed, nil
		case typeEvents:
			return typeEvents, nil
		}
	}
	return "", fail(http.StatusNotAcceptable, "NOT_ACCEPTABLE")
}

// reader reads arguments and keeps the first error.
type reader struct {
	url.Values
	err error
}

func (v *reader) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf("%w: "+format, append([]any{edge.ErrInvalid}, args...)...)
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
	text := v.Get(name)
	d, err := time.ParseDuration(text)
	if ms, bad := strconv.ParseInt(text, 10, 64); bad == nil && ms <= most.Milliseconds() {
		d, err = time.Duration(ms)*time.Millisecond, nil
	}
	if err != nil || d < least || d > most {
		v.fail("%s must be a duration such as 20s, or a number of milliseconds, from %v to %v", name, least, most)
		return byDefault
	}
	return d
}

// stillAllowed asks for the right again after a wait.
func (a *api) stillAllowed(r *http.Request, c consumption) error {
	s := identityOf(r)
	if s == nil {
		return nil
	}
	return s.Allow(r.Context(), guard.Need{Right: access.Consume, Topic: c.Topic, Channel: c.Channel})
}

// refuseConsumer answers a request for messages that failed.
func (a *api) refuseConsumer(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil:
		return // the client has left
	case errors.Is(err, edge.ErrTooManyClients):
		err = &failure{status: http.StatusTooManyRequests, message: err.Error(), retryAfter: true}
	case errors.Is(err, httpsub.ErrBusy), errors.Is(err, edge.ErrNotReady):
		err = &failure{status: http.StatusServiceUnavailable, message: err.Error(), retryAfter: true}
	case errors.Is(err, guard.ErrLogin), errors.Is(err, guard.ErrDenied), errors.Is(err, guard.ErrNoAuthorizations), errors.Is(err, guard.ErrAuthService):
		a.turnAway(w, r, err)
		return
	}
	a.refuse(w, r, err)
}

// received is a message in an answer. Body is set if it is text, else Bytes (base64 in JSON).
type received struct {
	ID        string          `json:"id"`
	Receipt   string          `json:"receipt"`
	Attempts  uint16          `json:"attempts"`
	Time      int64           `json:"timestamp"`
	Partition uint16          `json:"partition"`
	Sequence  ident.Sequence  `json:"sequence"`
	Header    json.RawMessage `json:"header,omitempty"`
	Body      *string         `json:"body,omitempty"`
	Bytes     []byte          `json:"body_base64,omitempty"`
}

func view(b *httpsub.Batch, i int, base64 bool) received {
	d := &b.Deliveries[i]
	m := received{
		ID: string(d.ID[:]), Receipt: b.Receipt(i).String(), Attempts: d.Message.Attempts, Time: d.Message.Time,
		Partition: d.Partition.Number, Sequence: d.Message.Seq,
	}
	if len(d.Message.Header) > 0 && json.Valid(d.Message.Header) {
		m.Header = d.Message.Header
	}
	if !base64 && utf8.Valid(d.Message.Body) {
		text := string(d.Message.Body)
		m.Body = &text
	} else {
		m.Bytes = d.Message.Body
	}
	return m
}

// refusal is a receipt that was refused.
type refusal struct {
	Receipt string `json:"receipt,omitempty"`
	ID      string `json:"id,omitempty"` // of a late refusal, with its verb
	Verb    string `json:"verb,omitempty"`
	Message string `json:"message"`
}

func lateRefusals(list []edge.Refusal) (out []refusal) {
	verbs := map[string]edge.Verb{"FIN": edge.VerbFinish, "REQ": edge.VerbRequeue, "TOUCH": edge.VerbTouch}
	for _, r := range list {
		out = append(out, refusal{ID: string(r.ID[:]), Verb: string(verbs[r.Verb]), Message: r.Err.Error()})
	}
	return out
}

// writeList writes one JSON object, with a line for each message.
func writeList(w io.Writer, b *httpsub.Batch, base64 bool) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if _, err := io.WriteString(w, `{"messages":[`); err != nil {
		return err
	}
	separator := "\n"
	for i := range b.Deliveries {
		if _, err := io.WriteString(w, separator); err != nil {
			return err
		}
		if err := e.Encode(view(b, i, base64)); err != nil {
			return err
		}
		separator = ","
	}
	if _, err := io.WriteString(w, `]`); err != nil {
		return err
	}
	if len(b.Refused) > 0 {
		if _, err := io.WriteString(w, `,"refused":`); err != nil {
			return err
		}
		if err := e.Encode(lateRefusals(b.Refused)); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "}\n")
	return err
}

// writeParts writes one part for each message, with its body as it is.
func writeParts(h http.Header, w io.Writer, b *httpsub.Batch) error {
	parts := multipart.NewWriter(w)
	h.Set("Content-Type", typeMixed+"; boundary="+parts.Boundary())
	for i := range b.Deliveries {
		d := &b.Deliveries[i]
		head := textproto.MIMEHeader{
			"Content-Type":     {"application/octet-stream"},
			"X-Nsq-Message-Id": {string(d.ID[:])},
			"X-Nsq-Receipt":    {b.Receipt(i).String()},
			"X-Nsq-Attempts":   {strconv.Itoa(int(d.Message.Attempts))},
			"X-Nsq-Timestamp":  {strconv.FormatInt(d.Message.Time, 10)},
			"X-Nsq-Partition":  {strconv.Itoa(int(d.Partition.Number))},
			"X-Nsq-Sequence":   {strconv.FormatUint(uint64(d.Message.Seq), 10)},
		}
		if text := oneLine(d.Message.Header); text != "" {
			head["X-Nsq-Headers"] = []string{text}
		}
		part, err := parts.CreatePart(head)
		if err != nil {
			return err
		}
		if _, err := part.Write(d.Message.Body); err != nil {
			return err
		}
	}
	if len(b.Refused) > 0 {
		part, err := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {typeJSON}, "X-Nsq-Refused": {strconv.Itoa(len(b.Refused))}})
		if err != nil {
			return err
		}
		if err := json.NewEncoder(part).Encode(lateRefusals(b.Refused)); err != nil {
			return err
		}
	}
	return parts.Close()
}

// oneLine returns JSON without line breaks; "" if it is none.
func oneLine(header []byte) string {
	var line bytes.Buffer
	if json.Compact(&line, header) != nil {
		return ""
	}
	return line.String()
}

// stream answers with server-sent events until the client leaves.
func (a *api) stream(w http.ResponseWriter, r *http.Request, c consumption) {
	conn := http.NewResponseController(w)
	out := bufio.NewWriterSize(w, 16<<10)
	begun := false
	begin := func() {
		if !begun {
			begun = true
			h := w.Header()
			h.Set("X-NSQ-Content-Type", "nsq; version=1.0")
			h.Set("Content-Type", typeEvents)
			h.Set("Cache-Control", "no-store")
			h.Set("X-Accel-Buffering", "no") // of a reverse proxy
			w.WriteHeader(http.StatusOK)
		}
	}
	err := a.b.Consumers.Stream(r.Context(), c.Request, aliveEvery, func(b *httpsub.Batch) error {
		if err := a.stillAllowed(r, c); err != nil {
			return err
		}
		begin()
		if err := writeEvents(out, b, c.base64); err != nil {
			return err
		}
		return errors.Join(out.Flush(), conn.Flush())
	})
	if !begun {
		a.refuseConsumer(w, r, err)
		return
	}
	if r.Context().Err() == nil { // the client learns the reason of the end
		text, _ := json.Marshal(map[string]string{"message": err.Error()}) // a string
		_, _ = fmt.Fprintf(out, "event: end\ndata: %s\n\n", text)          // the client may have left
		_ = out.Flush()
	}
}

// writeEvents writes an event for each message; nil is a comment.
func writeEvents(w io.Writer, b *httpsub.Batch, base64 bool) error {
	if b == nil {
		_, err := io.WriteString(w, ": alive\n\n")
		return err
	}
	for i := range b.Deliveries {
		m := view(b, i, base64)
		if err := writeEvent(w, "message", m.ID, m); err != nil {
			return err
		}
	}
	for _, late := range lateRefusals(b.Refused) {
		if err := writeEvent(w, "refused", "", late); err != nil {
			return err
		}
	}
	return nil
}

func writeEvent(w io.Writer, event, id string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	_, err = fmt.Fprintf(w, "event: %s\n%sdata: %s\n\n", event, id, data)
	return err
}

// settle: POST /v1/finish?topic=&channel=&receipt=, and likewise requeue (with ?delay=) and touch. ?receipt= may be
// repeated; otherwise the body has the receipts, one a line or as a JSON array.
func (a *api) settle(verb edge.Verb, reply func(done int) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := channelNames(r)
		v := reader{Values: n.values}
		do := edge.Settlement{Verb: verb, DelayMS: v.duration("delay", 0, 0, a.opts.MaxReqTimeout).Milliseconds()}
		if err == nil {
			err = v.err
		}
		var texts []string
		if err == nil {
			texts, err = a.receiptTexts(r, n.values)
		}
		var list []httpsub.Receipt
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
	var refused []refusal
	status := http.StatusOK
	for i, err := range errs {
		if err == nil {
			continue
		}
		refused = append(refused, refusal{Receipt: texts[i], Message: err.Error()})
		if errors.Is(err, edge.ErrNotInFlight) || errors.Is(err, edge.ErrNotOwner) || errors.Is(err, edge.ErrTopicNotFound) || errors.Is(err, edge.ErrChannelNotFound) {
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
func (a *api) receiptTexts(r *http.Request, values url.Values) ([]string, error) {
	reserved, err := a.reserve(r, maxReceiptBytes)
	if err != nil {
		return nil, err
	}
	body, err := readUpTo(r, maxReceiptBytes+1)
	a.b.Bodies.Release(reserved)
	switch {
	case err != nil:
		return nil, fail(http.StatusBadRequest, "BAD_BODY")
	case len(body) > maxReceiptBytes:
		return nil, fail(http.StatusRequestEntityTooLarge, "BODY_TOO_BIG")
	}
	texts := values["receipt"]
	if body = bytes.TrimSpace(body); len(body) > 0 && len(texts) > 0 {
		return nil, fmt.Errorf("%w: receipts are in the query or in the body, not in both", edge.ErrInvalid)
	}
	if len(body) > 0 && body[0] == '[' {
		if json.Unmarshal(body, &texts) != nil {
			return nil, fmt.Errorf("%w: the body must be a JSON array of receipts, or have one receipt a line", edge.ErrInvalid)
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
func parseReceipts(texts []string) ([]httpsub.Receipt, error) {
	list := make([]httpsub.Receipt, len(texts))
	for i, text := range texts {
		var err error
		if list[i], err = httpsub.ParseReceipt(text); err != nil {
			return nil, fail(http.StatusBadRequest, "INVALID_ARG_RECEIPT")
		}
	}
	return list, nil
}
