package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// ServeRecover is /v1/topic/recover?topic=&partition=: GET shows what there is of
// a partition; POST, with from= and confirm=<topic>/<partition>, goes on with the
// replica of that broker.
func (b *Broker) ServeRecover(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), channelTimeout)
	defer cancel()
	q := r.URL.Query()
	topic := q.Get("topic")
	partition, err := strconv.Atoi(orZero(q.Get("partition")))
	if err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"message": "INVALID_PARTITION"})
		return
	}
	var found Remains
	switch {
	case r.Method == http.MethodGet:
		found, err = b.Remains(ctx, topic, partition)
	case q.Get("confirm") != fmt.Sprintf("%s/%d", topic, partition):
		err = fmt.Errorf("%w: confirm must be %s/%d: messages that were acknowledged are lost", edge.ErrInvalid, topic, partition)
	default:
		found, err = b.Recover(ctx, topic, partition, ident.Node(q.Get("from")))
	}
	switch {
	case err == nil:
		answer(w, http.StatusOK, found)
	case errors.Is(err, edge.ErrTopicNotFound):
		answer(w, http.StatusNotFound, map[string]string{"message": "TOPIC_NOT_FOUND"})
	case errors.Is(err, edge.ErrInvalid):
		answer(w, http.StatusBadRequest, map[string]string{"message": err.Error()})
	default:
		answer(w, http.StatusServiceUnavailable, map[string]string{"message": err.Error()})
	}
}
