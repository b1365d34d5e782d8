package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// defaultPeeked is the number of messages of a peek without ?limit=.
const defaultPeeked = 100

// peek: GET /v1/topic/peek?topic=&topic_id=&partition=&from=&limit=. With node= and uncommitted=true it
// includes the messages of a replica beyond its committed end. With leader=true a broker that does not serve as the
// leader answers 503: no committed message is missing in the answer.
func (a *endpoints) peek(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	partition, err := strconv.ParseUint(orZero(q.Get("partition")), 10, 16)
	limit, err2 := defaultPeeked, error(nil)
	if text := q.Get("limit"); text != "" {
		limit, err2 = strconv.Atoi(text)
	}
	node := ident.Node(q.Get("node"))
	uncommitted, err3 := strconv.ParseBool(orZero(q.Get("uncommitted")))
	leader, err4 := strconv.ParseBool(orZero(q.Get("leader")))
	if err = errors.Join(err, err2, err3, err4); err != nil {
		decline(w, http.StatusBadRequest, "INVALID_REQUEST", "partition and limit must be numbers, uncommitted and leader must be true or false")
		return
	}
	if uncommitted && node == "" {
		decline(w, http.StatusBadRequest, "uncommitted=true requires node=: each replica has its own end", "")
		return
	}
	if id := q.Get("topic_id"); id != "" {
		switch err := a.isTopic(q.Get("topic"), id); {
		case errors.Is(err, api.ErrTopicNotFound):
			decline(w, http.StatusNotFound, err.Error(), "")
			return
		case err != nil:
			decline(w, http.StatusBadRequest, "INVALID_REQUEST", details["INVALID_ARG_TOPIC_ID"])
			return
		}
	}
	p, err := a.b.Inspector.Peek(r.Context(), api.PeekRequest{
		Topic: q.Get("topic"), Partition: uint16(partition), From: q.Get("from"), Limit: limit, Node: node, Uncommitted: uncommitted, Leader: leader,
	})
	switch {
	case errors.Is(err, api.ErrTopicNotFound), errors.Is(err, api.ErrBrokerNotFound):
		decline(w, http.StatusNotFound, err.Error(), "")
	case errors.Is(err, api.ErrInvalid):
		decline(w, http.StatusBadRequest, err.Error(), "")
	case errors.Is(err, api.ErrUnavailable):
		decline(w, http.StatusServiceUnavailable, err.Error(), "")
	case err != nil:
		decline(w, http.StatusInternalServerError, err.Error(), "")
	default:
		answer(w, http.StatusOK, p)
	}
}

// digest: GET /v1/partition/digest?topic=&partition=&from=.
func (a *endpoints) digest(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	partition, err := strconv.ParseUint(q.Get("partition"), 10, 16)
	from, err2 := strconv.ParseInt(orZero(q.Get("from")), 10, 64)
	if err = errors.Join(err, err2); err != nil {
		decline(w, http.StatusBadRequest, "INVALID_REQUEST", "partition and from must be numbers")
		return
	}
	d, err := a.b.Inspector.Digest(api.DigestRequest{Topic: q.Get("topic"), Partition: uint16(partition), From: from})
	switch {
	case errors.Is(err, api.ErrTopicNotFound):
		decline(w, http.StatusNotFound, "TOPIC_NOT_FOUND", "")
	case err != nil:
		decline(w, http.StatusInternalServerError, err.Error(), "")
	default:
		answer(w, http.StatusOK, d)
	}
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// decline is answer for an error; detail "": that of the code.
func decline(w http.ResponseWriter, status int, message, detail string) {
	answer(w, status, (&failure{message: message, detail: detail}).body())
}

// answer writes JSON and a newline, without the API's header, for the endpoints that NSQ does
// not have and that only nsqctl uses.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}
