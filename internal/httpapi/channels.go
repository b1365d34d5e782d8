package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// defaultListed is how many deferred messages are listed, and dead ones moved,
// unless ?limit= says otherwise.
const defaultListed = 1000

// channelsOnly adds the endpoints of /v1/channel/, which NSQ does not have, and
// one of its replicated fork.
func (a *api) channelsOnly(get, post func(path string, e endpoint)) {
	post("/v1/channel/seek", a.channelOp("channel.seek"))
	post("/v1/channel/policy", a.channelOp("channel.policy"))
	post("/channel/setorder", a.channelOp("channel.order"))
	if a.b.Channels == nil {
		return
	}
	get("/v1/channel/policy", a.policy)
	get("/v1/channel/deferred", a.deferred)
	post("/v1/channel/deferred/cancel", a.cancelDeferred)
	post("/v1/channel/redrive", a.redrive)
}

// policy: GET /v1/channel/policy?topic=&channel=.
func (a *api) policy(r *http.Request) (any, error) {
	op, err := channelArguments(r)
	if err != nil {
		return nil, err
	}
	return a.b.Channels.Policy(op.Topic, op.Channel)
}

// deferred: GET /v1/channel/deferred?topic=&channel=&limit=.
func (a *api) deferred(r *http.Request) (any, error) {
	op, limit, err := limitedArguments(r)
	if err != nil {
		return nil, err
	}
	all, err := a.b.Channels.Deferred(r.Context(), op.Topic, op.Channel, limit)
	if err != nil {
		return nil, err
	}
	return map[string]any{"messages": all}, nil
}

// cancelDeferred: POST /v1/channel/deferred/cancel?topic=&channel=&id=, id may be
// repeated.
func (a *api) cancelDeferred(r *http.Request) (any, error) {
	op, err := channelArguments(r)
	if err != nil {
		return nil, err
	}
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	ids := make([]edge.MessageID, len(values["id"]))
	if len(ids) == 0 {
		return nil, fail(http.StatusBadRequest, "MISSING_ARG_ID")
	}
	for i, text := range values["id"] {
		if len(text) != len(ids[i]) {
			return nil, fail(http.StatusBadRequest, "INVALID_ARG_ID")
		}
		copy(ids[i][:], text)
	}
	n, err := a.b.Channels.CancelDeferred(r.Context(), op.Topic, op.Channel, ids)
	if err != nil {
		return nil, err
	}
	return map[string]int{"cancelled": n}, nil
}

// redrive: POST /v1/channel/redrive?topic=&channel=&limit=. The answer says how
// many messages went back, also when it stopped early.
func (a *api) redrive(r *http.Request) (any, error) {
	op, limit, err := limitedArguments(r)
	if err != nil {
		return nil, err
	}
	n, err := a.b.Channels.Redrive(r.Context(), op.Topic, op.Channel, limit)
	if err != nil && n > 0 {
		return nil, &failure{status: http.StatusServiceUnavailable, message: fmt.Sprintf("%d were moved, then: %s", n, err), retryAfter: true}
	}
	if err != nil {
		return nil, err
	}
	return map[string]int{"redriven": n}, nil
}

// limitedArguments reads the channel and how many messages at the most.
func limitedArguments(r *http.Request) (op edge.AdminOp, limit int, err error) {
	if op, err = channelArguments(r); err == nil {
		limit, err = limitOf(op)
	}
	return op, limit, err
}

func limitOf(op edge.AdminOp) (int, error) {
	text, ok := op.Args["limit"]
	if !ok {
		return defaultListed, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fail(http.StatusBadRequest, "INVALID_ARG_LIMIT")
	}
	return n, nil
}
