package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
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
func (a *endpoints) appendBatch(r *http.Request) (any, error) {
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
	release, err := a.reserve(r, a.appendLimit())
	if err != nil {
		return nil, err
	}
	defer release()
	draft := queue.NewDraft(int(min(max(0, r.ContentLength), maxHint)))
	special, err := Records(r.Body, draft, MPubOptions{
		MaxMsgSize: a.opts.MaxMsgSize, MaxBodySize: a.appendLimit(), DeliverAt: time.Now().Add(a.opts.MaxDefer()).UnixNano(),
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
func (a *endpoints) appendLimit() int64 {
	return max(a.opts.MaxBodySize, a.opts.MaxMsgSize+queue.MaxMessageHeader+msgstream.MessageOverhead)
}

// isTopic reports an error unless there is a topic of that name; with an id, unless it has that id. A topic that is
// deleted and created again has another one.
func (a *endpoints) isTopic(name, id string) error {
	settings, ok := a.b.Directory.TopicSettings(name)
	if !ok {
		return api.ErrTopicNotFound
	}
	if id == "" {
		return nil
	}
	var want ident.TopicID
	if want.UnmarshalText([]byte(id)) != nil {
		return fail(http.StatusBadRequest, "INVALID_ARG_TOPIC_ID")
	}
	if settings.ID != want {
		return api.ErrTopicNotFound
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

// putAt publishes to one partition and waits for the result.
func (a *endpoints) putAt(r *http.Request, topic string, partition int, draft *queue.DraftBuilder) (api.PutResult, error) {
	if s := identityOf(r); s != nil {
		if err := s.AllowPut(draft.Count(), draft.Size()); err != nil {
			return api.PutResult{}, putFailure(err)
		}
	}
	if err := a.b.Publisher.Admit(r.Context(), topic, draft.Size()); err != nil {
		return api.PutResult{}, putFailure(err)
	}
	w := make(waiter, 1)
	a.b.Publisher.PublishAt(topic, partition, draft.Draft(ident.RequestID{}), w)
	result := <-w
	switch {
	case errors.Is(result.Err, api.ErrInvalid):
		return result, result.Err
	case result.Err != nil:
		return result, putFailure(result.Err)
	}
	return result, nil
}
