package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// recoverTimeout bounds a request to recover a partition.
const recoverTimeout = 5 * time.Second

// recover: /v1/topic/recover?topic=&partition=. GET lists the replicas of a partition and
// their state. POST, with from= and confirm=<topic>/<partition>, makes the replica of that
// broker the leader; with discard= and confirm=, it gives up the replica of that broker,
// which was refused after such a recovery.
func (a *endpoints) recover(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), recoverTimeout)
	defer cancel()
	q := r.URL.Query()
	topic := q.Get("topic")
	partition, err := strconv.Atoi(orZero(q.Get("partition")))
	if err != nil {
		decline(w, http.StatusBadRequest, "INVALID_PARTITION", "")
		return
	}
	var found api.Remains
	switch {
	case r.Method == http.MethodGet:
		found, err = a.b.Recovery.Remains(ctx, topic, partition)
	case q.Get("confirm") != fmt.Sprintf("%s/%d", topic, partition):
		err = fmt.Errorf("%w: confirm must be %s/%d: messages that were acknowledged are lost", api.ErrInvalid, topic, partition)
	case q.Get("discard") != "":
		if err = a.b.Recovery.Discard(ctx, topic, partition, ident.Node(q.Get("discard"))); err == nil {
			found, err = a.b.Recovery.Remains(ctx, topic, partition)
		}
	default:
		found, err = a.b.Recovery.Recover(ctx, topic, partition, ident.Node(q.Get("from")))
	}
	switch {
	case err == nil:
		answer(w, http.StatusOK, found)
	case errors.Is(err, api.ErrTopicNotFound):
		decline(w, http.StatusNotFound, "TOPIC_NOT_FOUND", "")
	case errors.Is(err, api.ErrInvalid):
		decline(w, http.StatusBadRequest, err.Error(), "")
	default:
		decline(w, http.StatusServiceUnavailable, err.Error(), "")
	}
}
