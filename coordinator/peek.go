package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// peekMessages and peekBytes bound one answer; the next begins at its Next.
const (
	peekMessages = 1000
	peekBytes    = 4 << 20
)

// PeekRequest asks for committed messages of a replica, from a place on: earliest,
// latest, a unix time in ns or a sequence.
type PeekRequest struct {
	Topic     string
	Partition uint16
	From      string
	Limit     int
}

// Peeked is what a replica holds, whoever has consumed it. Start is the first
// message retained, End the one after the last committed; Next is where the
// following answer begins.
type Peeked struct {
	Start    ident.Sequence  `json:"start"`
	End      ident.Sequence  `json:"end"`
	Next     ident.Sequence  `json:"next"`
	Messages []PeekedMessage `json:"messages"`
}

// PeekedMessage is one message. Body is set if it is text, else Bytes (base64 in
// JSON).
type PeekedMessage struct {
	ID        string          `json:"id"`
	Partition uint16          `json:"partition"`
	Sequence  ident.Sequence  `json:"sequence"`
	Time      int64           `json:"timestamp"`
	DeliverAt int64           `json:"deliver_at,omitempty"`
	Header    json.RawMessage `json:"header,omitempty"`
	Body      string          `json:"body,omitempty"`
	Bytes     []byte          `json:"body_base64,omitempty"`
}

// Peek reads committed messages of the replica on this broker; no channel
// notices. Errors wrap edge.ErrTopicNotFound, edge.ErrInvalid.
func (b *Broker) Peek(req PeekRequest) (Peeked, error) {
	t, ok := b.catalog.topic(req.Topic)
	if !ok {
		return Peeked{}, edge.ErrTopicNotFound
	}
	h, ok := b.host(ident.Partition{Topic: t.ID, Number: req.Partition})
	if !ok {
		return Peeked{}, fmt.Errorf("%w: no replica of partition %d here", edge.ErrTopicNotFound, req.Partition)
	}
	p := Peeked{Start: h.Start().Sequence, End: h.Committed().Sequence, Messages: []PeekedMessage{}}
	from, err := peekFrom(h, req.From, p)
	if err != nil {
		return p, err
	}
	p.Next = max(from, p.Start)
	limit, bytes := min(max(req.Limit, 0), peekMessages), 0
	for len(p.Messages) < limit && bytes < peekBytes && p.Next < p.End {
		read, err := h.Read(p.Next, limit-len(p.Messages), nil)
		if err != nil || len(read) == 0 {
			return p, err
		}
		for i := range read {
			bytes += len(read[i].Body)
			p.Messages = append(p.Messages, peeked(h.id, &read[i]))
			p.Next = read[i].Seq + 1
		}
	}
	return p, nil
}

func peekFrom(h *hosted, from string, p Peeked) (ident.Sequence, error) {
	if err := checkOrigin(from); err != nil {
		return 0, err
	}
	o, err := channelOptions(h, queueOp{From: from})
	switch {
	case err != nil:
		return 0, err
	case o.Origin == nsqd.FromSequence:
		return o.Sequence, nil
	case o.Origin == nsqd.FromLatest && from != "":
		return p.End, nil
	}
	return p.Start, nil
}

func peeked(p ident.Partition, m *queue.Message) PeekedMessage {
	id := nsqd.ID(p, m.Seq)
	out := PeekedMessage{ID: string(id[:]), Partition: p.Number, Sequence: m.Seq, Time: m.Time, DeliverAt: m.DeliverAt}
	if json.Valid(m.Header) {
		out.Header = m.Header
	}
	if utf8.Valid(m.Body) {
		out.Body = string(m.Body)
	} else {
		out.Bytes = m.Body
	}
	return out
}

// ServePeek is GET /v1/topic/peek?topic=&partition=&from=&limit=.
func (b *Broker) ServePeek(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	partition, err := strconv.ParseUint(orZero(q.Get("partition")), 10, 16)
	limit, err2 := 100, error(nil)
	if text := q.Get("limit"); text != "" {
		limit, err2 = strconv.Atoi(text)
	}
	if err = errors.Join(err, err2); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"message": "INVALID_REQUEST"})
		return
	}
	p, err := b.Peek(PeekRequest{Topic: q.Get("topic"), Partition: uint16(partition), From: q.Get("from"), Limit: limit})
	switch {
	case errors.Is(err, edge.ErrTopicNotFound):
		answer(w, http.StatusNotFound, map[string]string{"message": err.Error()})
	case errors.Is(err, edge.ErrInvalid):
		answer(w, http.StatusBadRequest, map[string]string{"message": err.Error()})
	case err != nil:
		answer(w, http.StatusInternalServerError, map[string]string{"message": err.Error()})
	default:
		answer(w, http.StatusOK, p)
	}
}
