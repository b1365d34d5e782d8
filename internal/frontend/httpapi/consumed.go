package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// The media types of the answers to POST /v1/consume: a JSON object, a body of several parts, or server-sent events. In
// each form a message has its whole body, as text only if that is valid UTF-8 and base64 is not requested. An answer ends
// before the messages whose timeouts are over while a slow client reads it.
const (
	mediaJSON   = "application/json"
	mediaMixed  = "multipart/mixed"
	mediaEvents = "text/event-stream"
)

// accepted returns the first media type of Accept that the answer can have; weights are ignored. False: none is
// acceptable.
func accepted(h http.Header) (mediaType string, ok bool) {
	header := strings.Join(h.Values("Accept"), ",")
	if header == "" {
		return mediaJSON, true
	}
	for kind := range strings.SplitSeq(header, ",") {
		switch kind, _, _ := mime.ParseMediaType(kind); kind {
		case "*/*", "application/*", mediaJSON:
			return mediaJSON, true
		case mediaMixed, "multipart/*":
			return mediaMixed, true
		case mediaEvents:
			return mediaEvents, true
		}
	}
	return "", false
}

type messagesReply struct {
	Messages []received `json:"messages"`
	Refused  []refusal  `json:"refused,omitempty"` // after their 200
}

// received is a message in an answer. Body is set if it is text, otherwise Bytes (base64 in JSON).
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

func view(b *consume.Batch, i int, base64 bool) received {
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

type refusal struct {
	Receipt string `json:"receipt,omitempty"`
	ID      string `json:"id,omitempty"` // of a late refusal, with its verb
	Verb    string `json:"verb,omitempty"`
	Message string `json:"message"`
}

func lateRefusals(list []api.Refusal) (out []refusal) {
	verbs := map[string]api.Verb{"FIN": api.VerbFinish, "REQ": api.VerbRequeue, "TOUCH": api.VerbTouch}
	for _, r := range list {
		out = append(out, refusal{ID: string(r.ID[:]), Verb: string(verbs[r.Verb]), Message: r.Err.Error()})
	}
	return out
}

// writeList writes one JSON object, with a line for each message. An error of w is returned by Flush.
func writeList(w *bufio.Writer, b *consume.Batch, base64 bool) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_, _ = w.WriteString(`{"messages":[`)
	separator := "\n"
	for i := range b.InTime() {
		_, _ = w.WriteString(separator)
		if err := e.Encode(view(b, i, base64)); err != nil {
			return err
		}
		separator = ","
	}
	_, _ = w.WriteString(`]`)
	if len(b.Refused) > 0 {
		_, _ = w.WriteString(`,"refused":`)
		if err := e.Encode(lateRefusals(b.Refused)); err != nil {
			return err
		}
	}
	_, _ = w.WriteString("}\n")
	return w.Flush()
}

func writeParts(h http.Header, w io.Writer, b *consume.Batch) error {
	parts := multipart.NewWriter(w)
	h.Set("Content-Type", mediaMixed+"; boundary="+parts.Boundary())
	for i := range b.InTime() {
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
		part, err := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {mediaJSON}, "X-Nsq-Refused": {strconv.Itoa(len(b.Refused))}})
		if err != nil {
			return err
		}
		if err := json.NewEncoder(part).Encode(lateRefusals(b.Refused)); err != nil {
			return err
		}
	}
	return parts.Close()
}

// oneLine returns JSON without line breaks; "" if it is not JSON.
func oneLine(header []byte) string {
	var line bytes.Buffer
	if json.Compact(&line, header) != nil {
		return ""
	}
	return line.String()
}

// writeEvents writes an event for each message; nil is a comment.
func writeEvents(w io.Writer, b *consume.Batch, base64 bool) error {
	if b == nil {
		_, err := io.WriteString(w, ": alive\n\n")
		return err
	}
	for i := range b.InTime() {
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

func writeEnd(w io.Writer, reason string) error {
	return writeEvent(w, "end", "", struct {
		Message string `json:"message"`
	}{reason})
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
