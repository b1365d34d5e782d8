package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/access"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/guard"
	"github.com/lockstepmq/lockstep/internal/httpapi/mpub"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// appended is the answer of POST /v1/topic/append: the messages are Sequence to Sequence+Count−1 of
// the partition.
type appended struct {
	Partition int            `json:"partition"`
	Sequence  ident.Sequence `json:"sequence"`
	Count     int            `json:"count"`
	// Duplicate: a put that began with the same copy (##origin) is stored from Sequence on, perhaps
	// with fewer or more messages. Of this one nothing is stored.
	Duplicate bool `json:"duplicate,omitempty"`
}

// appendBatch: POST /v1/topic/append?topic=&partition=. The body is the message records of package
// msgstream: each message has its own header, deadline and trace id. They are stored as a whole, in
// their order, in one partition. The topic must exist, with ?topic_id= that very one. If the first message is a copy (##origin), a
// repeat within the dedupe window is recognised.
func (a *api) appendBatch(r *http.Request) (any, error) {
	topic, values, err := putTopic(r)
	if err != nil {
		return nil, err
	}
	partition, err := strconv.ParseUint(values.Get("partition"), 10, 16)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "INVALID_ARG_PARTITION")
	}
	if err := a.isTopic(topic, values.Get("topic_id")); err != nil {
		return nil, err
	}
	if r.ContentLength > a.appendLimit() {
		return nil, fail(http.StatusRequestEntityTooLarge, "BODY_TOO_BIG")
	}
<<<<<<< HEAD
	release, err := a.reserve(r, a.opts.MaxBodySize)
=======
	reserved, err := a.reserve(r, a.appendLimit())
>>>>>>> mirror
	if err != nil {
		return nil, err
	}
	defer release()
	draft := queue.NewDraft(int(min(max(0, r.ContentLength), maxHint)))
	special, err := mpub.Records(r.Body, draft, mpub.Options{
		MaxMsgSize: a.opts.MaxMsgSize, MaxBodySize: a.opts.MaxBodySize, DeliverAt: time.Now().Add(a.opts.MaxDeferTimeout).UnixNano(),
	})
	if err != nil {
		return nil, a.bodyFailed(r, bodyFailure(err))
	}
	if special {
		if err := mayReserve(r, topic); err != nil {
			return nil, err
		}
	}
	result, err := a.putAt(r, topic, int(partition), draft)
	if err != nil {
		return nil, err
	}
	return appended{int(partition), result.Sequence, draft.Count(), result.Duplicate}, nil
}

// appendLimit is the largest body of an append: a message of the largest size fits with the longest header.
func (a *api) appendLimit() int64 {
	return max(a.opts.MaxBodySize, a.opts.MaxMsgSize+queue.MaxMessageHeader+msgstream.MessageOverhead)
}

// isTopic reports an error unless there is a topic of that name; with an id, unless it has that id. A topic that is
// deleted and created again has another one.
func (a *api) isTopic(name, id string) error {
	settings, ok := a.b.Directory.TopicSettings(name)
	if !ok {
		return edge.ErrTopicNotFound
	}
	if id == "" {
		return nil
	}
	var want ident.TopicID
	if want.UnmarshalText([]byte(id)) != nil {
		return fail(http.StatusBadRequest, "INVALID_ARG_TOPIC_ID")
	}
	if settings.ID != want {
		return edge.ErrTopicNotFound
	}
	return nil
}

// mayReserve refuses a client without the right to administer the topic. It is asked for puts with what copies have: a
// header that begins with ##, or a delay beyond that of ?defer=. By such a header a client could withhold a message from
// all channels but one, or pass it off as a copy.
func mayReserve(r *http.Request, topic string) error {
	s := identityOf(r)
	if s == nil {
		return nil
	}
	return s.Allow(r.Context(), guard.Need{Right: access.Administer, Topic: topic})
}

<<<<<<< HEAD
=======
// readRecords reads the body of an append. special: a header may have a field that begins with ##,
// or a message waits longer than ?defer= allows.
func (a *api) readRecords(r *http.Request) (draft *queue.DraftBuilder, special bool, err error) {
	in := msgstream.NewMessageReader(io.LimitReader(r.Body, a.appendLimit()))
	draft = queue.NewDraft(int(min(max(0, r.ContentLength), maxHint)))
	latest := time.Now().Add(a.opts.MaxDeferTimeout).UnixNano()
	for {
		x, err := in.Next()
		var damage *msgstream.Damage
		switch {
		case errors.Is(err, io.EOF) && draft.Count() == 0:
			return nil, false, fail(http.StatusBadRequest, "MSG_EMPTY")
		case errors.Is(err, io.EOF):
			return draft, special, nil
		case errors.As(err, &damage):
			return nil, false, fmt.Errorf("%w: %w", edge.ErrInvalid, damage)
		case err != nil:
			return nil, false, fail(http.StatusInternalServerError, "INTERNAL_ERROR")
		}
		m := x.Message
		special = special || m.DeliverAtNS > latest || bytes.Contains(m.Header, []byte("##")) || bytes.Contains(m.Header, []byte(`\u`)) // an escaped # counts, too
		switch {
		case int64(len(m.Body)) > a.opts.MaxMsgSize:
			return nil, false, fail(http.StatusRequestEntityTooLarge, "MSG_TOO_BIG")
		case draft.Size()+len(m.Header)+len(m.Body) > mpub.MaxDraft:
			return nil, false, fail(http.StatusRequestEntityTooLarge, "BODY_TOO_BIG")
		}
		message := queue.Message{DeliverAt: m.DeliverAtNS, Trace: m.Trace, Header: m.Header, Body: m.Body}
		if draft.Count() == 0 {
			message.Identity, message.Whole = identityOfCopy(m.Header)
		}
		if err := draft.AddMessage(message); err != nil {
			return nil, false, fmt.Errorf("%w: %w", edge.ErrInvalid, err)
		}
	}
}

// identityOfCopy is the identity of a put that begins with the copy of a message; false if the header
// names no origin.
func identityOfCopy(header []byte) (queue.Identity, bool) {
	o, ok := msgstream.OriginOf(header)
	if !ok {
		return queue.Identity{}, false
	}
	return queue.IdentityOfCopy(queue.CopyOrigin, queue.Source{
		Topic: o.TopicID, Partition: o.Partition, Sequence: ident.Sequence(o.Sequence), Channel: o.Channel, TimeNS: o.TimeNS,
	}), true
}

>>>>>>> mirror
// putAt publishes to one partition and waits for the result.
func (a *api) putAt(r *http.Request, topic string, partition int, draft *queue.DraftBuilder) (edge.PutResult, error) {
	if s := identityOf(r); s != nil {
		if err := s.AllowPut(draft.Count(), draft.Size()); err != nil {
			return edge.PutResult{}, putFailure(err)
		}
	}
	if err := a.b.Publisher.Admit(r.Context(), topic, draft.Size()); err != nil {
		return edge.PutResult{}, putFailure(err)
	}
	w := make(waiter, 1)
	a.b.Publisher.PublishAt(topic, partition, draft.Draft(ident.RequestID{}), w)
	result := <-w
	switch {
	case errors.Is(result.Err, edge.ErrInvalid):
		return result, result.Err
	case result.Err != nil:
		return result, putFailure(result.Err)
	}
	return result, nil
}
