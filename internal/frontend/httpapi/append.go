package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// appended is the answer of POST /v1/topic/append: the messages are Sequence to Sequence+Count−1 of the partition.
type appended struct {
	Partition int            `json:"partition"`
	Sequence  ident.Sequence `json:"sequence"`
	Count     int            `json:"count"`
	// Duplicate: a put that began with the same copy (##origin) is stored from Sequence on, perhaps with fewer or more
	// messages. Nothing of this put is stored.
	Duplicate bool `json:"duplicate,omitempty"`
}

// appendBatch stores messages as a whole, in their order, in one partition. If the first message is a copy (##origin),
// a repeat within the dedupe window is recognised.
func (a *endpoints) appendBatch(q *request) (any, error) {
	partition, id, limit := q.partition(), q.topicID("topic_id"), a.appendLimit()
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
	special, err := records(q.Body, draft, a.opts.MaxMsgSize, limit, time.Now().Add(a.opts.MaxDeferTimeout).UnixNano())
	if err != nil {
		return nil, a.bodyFailed(q.Request, err)
	}
	if special {
		if err := mayReserve(q); err != nil {
			return nil, err
		}
	}
	result, err := a.publish(q, draft, func(d queue.Draft, w waiter) { a.b.Publisher.PublishAt(q.topic(), partition, d, w) })
	switch {
	case errors.Is(err, api.ErrInvalid):
		return nil, err
	case err != nil:
		return nil, putFailure(err)
	}
	return appended{partition, result.Sequence, draft.Count(), result.Duplicate}, nil
}

// appendLimit is the largest body of an append: a message of the largest size fits with the longest header.
func (a *endpoints) appendLimit() int64 {
	return max(a.opts.MaxBodySize, a.opts.MaxMsgSize+queue.MaxMessageHeader+msgstream.MessageOverhead)
}

// isTopic returns an error unless there is a topic of that name, and with that id unless it is 0. A topic that is
// deleted and created again has another id.
func (a *endpoints) isTopic(name string, id ident.TopicID) error {
	if settings, ok := a.b.Directory.TopicSettings(name); !ok || id != 0 && settings.ID != id {
		return api.ErrTopicNotFound
	}
	return nil
}

// mayReserve refuses a client without the right to administer the topic. That right is required to set what copies
// have: a header that begins with ##, or a delay beyond that of ?defer=. With such a header a client could withhold a
// message from all channels but one, or pass it off as a copy.
func mayReserve(q *request) error {
	s := identityOf(q.Request)
	if s == nil {
		return nil
	}
	return s.Allow(q.Context(), guard.Need{Right: access.Administer, Topic: q.topic()})
}
