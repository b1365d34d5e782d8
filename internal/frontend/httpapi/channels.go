package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// defaultListed is how many deferred messages are listed, and how many dead letters are
// redriven, without ?limit=.
const defaultListed = 1000

// channelsOnly adds the endpoints of /v1/channel/, which NSQ does not have, and one of its
// replicated fork.
func (a *endpoints) channelsOnly(get, post func(path string, e endpoint)) {
	post("/v1/channel/policy", a.channelOp(readPolicy))
	post("/channel/setorder", a.channelOp(readOrder))
	if a.b.Channels == nil {
		return
	}
	post("/v1/channel/seek", a.seek)
	post("/v1/channel/finish", a.finishElsewhere)
	get("/v1/topic/channels", a.channelViews)
	get("/v1/topic/positions", a.positions)
	get("/v1/channel/policy", a.policy)
	get("/v1/channel/deferred", a.deferred)
	post("/v1/channel/deferred/cancel", a.cancelDeferred)
	post("/v1/channel/redrive", a.redrive)
}

// channelViews: GET /v1/topic/channels?topic=.
func (a *endpoints) channelViews(r *http.Request) (any, error) {
	topic, _, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	views, err := a.b.Channels.ChannelViews(topic)
	if err != nil {
		return nil, err
	}
	return viewsReply{list(views)}, nil
}

// seek: POST /v1/channel/seek?topic=&channel=&to=[&partition=][&idle=][&dry_run=].
func (a *endpoints) seek(r *http.Request) (any, error) {
	n, err := channelNames(r)
	if err != nil {
		return nil, err
	}
	op := readSeek(n)
	if seek, ok := op.(api.SeekChannel); ok {
		return a.b.Channels.Seek(r.Context(), seek)
	}
	return nil, a.b.Admin.Do(r.Context(), op)
}

// finishElsewhere: POST /v1/channel/finish?topic=&topic_id=&channel=&partition=&span=; span may be repeated.
func (a *endpoints) finishElsewhere(r *http.Request) (any, error) {
	n, err := channelNames(r)
	if err != nil {
		return nil, err
	}
	op := api.FinishElsewhere{Topic: n.topic, Channel: n.channel}
	partition, err := strconv.ParseUint(n.values.Get("partition"), 10, 16)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "INVALID_ARG_PARTITION")
	}
	op.Partition = int(partition)
	if op.TopicID.UnmarshalText([]byte(n.values.Get("topic_id"))) != nil {
		return nil, fail(http.StatusBadRequest, "INVALID_ARG_TOPIC_ID")
	}
	for _, text := range n.values["span"] {
		first, end, _ := strings.Cut(text, "-")
		from, err := strconv.ParseUint(first, 10, 63)
		to, err2 := strconv.ParseUint(end, 10, 63)
		if err != nil || err2 != nil || from >= to {
			return nil, fmt.Errorf("%w: span must be FROM-END, the first sequence and the one behind the last", api.ErrInvalid)
		}
		op.Spans = append(op.Spans, api.SequenceSpan{From: ident.Sequence(from), To: ident.Sequence(to)})
	}
	if len(op.Spans) == 0 {
		return nil, fmt.Errorf("%w: span must be FROM-END, and is missing", api.ErrInvalid)
	}
	return a.b.Channels.FinishElsewhere(r.Context(), op)
}

// positions: GET /v1/topic/positions?topic=.
func (a *endpoints) positions(r *http.Request) (any, error) {
	topic, _, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	all, err := a.b.Channels.Positions(r.Context(), topic)
	if err != nil {
		return nil, err
	}
	return positionsReply{list(all)}, nil
}

// policy: GET /v1/channel/policy?topic=&channel=.
func (a *endpoints) policy(r *http.Request) (any, error) {
	n, err := channelNames(r)
	if err != nil {
		return nil, err
	}
	return a.b.Channels.Policy(n.topic, n.channel)
}

// deferred: GET /v1/channel/deferred?topic=&channel=&limit=.
func (a *endpoints) deferred(r *http.Request) (any, error) {
	n, limit, err := limitedNames(r)
	if err != nil {
		return nil, err
	}
	all, err := a.b.Channels.Deferred(r.Context(), n.topic, n.channel, limit)
	if err != nil {
		return nil, err
	}
	return deferredReply{all}, nil
}

// cancelDeferred: POST /v1/channel/deferred/cancel?topic=&channel=&id=; id may be repeated.
func (a *endpoints) cancelDeferred(r *http.Request) (any, error) {
	n, err := channelNames(r)
	if err != nil {
		return nil, err
	}
	ids := make([]api.MessageID, len(n.values["id"]))
	if len(ids) == 0 {
		return nil, fail(http.StatusBadRequest, "MISSING_ARG_ID")
	}
	for i, text := range n.values["id"] {
		if len(text) != len(ids[i]) {
			return nil, fail(http.StatusBadRequest, "INVALID_ARG_ID")
		}
		copy(ids[i][:], text)
	}
	cancelled, err := a.b.Channels.CancelDeferred(r.Context(), n.topic, n.channel, ids)
	if err != nil {
		return nil, err
	}
	return cancelledReply{cancelled}, nil
}

// redrive: POST /v1/channel/redrive?topic=&channel=&limit=. The answer has the number of
// redriven messages, also after an error.
func (a *endpoints) redrive(r *http.Request) (any, error) {
	n, limit, err := limitedNames(r)
	if err != nil {
		return nil, err
	}
	ctx, end := identityOf(r).While(r.Context(), guard.Need{Right: access.Administer, Topic: n.topic}) // it may take long
	defer end()
	moved, err := a.b.Channels.Redrive(ctx, n.topic, n.channel, limit)
	if err = guard.Lost(ctx, err); err != nil && moved > 0 {
		return nil, &failure{status: http.StatusServiceUnavailable, message: fmt.Sprintf("%d were redriven, then: %s", moved, err), retryAfter: true}
	}
	return redrivenReply{moved}, err
}

// limitedNames reads the channel and the largest number of messages.
func limitedNames(r *http.Request) (n names, limit int, err error) {
	if n, err = channelNames(r); err == nil {
		limit, err = limitOf(n.values)
	}
	return n, limit, err
}

func limitOf(values url.Values) (int, error) {
	if !values.Has("limit") {
		return defaultListed, nil
	}
	n, err := strconv.Atoi(values.Get("limit"))
	if err != nil || n < 1 {
		return 0, fail(http.StatusBadRequest, "INVALID_ARG_LIMIT")
	}
	return n, nil
}
