package httpapi

import (
	"net/http"

	"github.com/lockstepmq/lockstep/internal/api"
)

// trace: GET /v1/trace?topic=&id=.
func (a *endpoints) trace(r *http.Request) (any, error) {
	topic, values, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	text, err := required(values, "id", "MISSING_ARG_ID")
	if err != nil {
		return nil, err
	}
	var id api.MessageID
	if len(text) != len(id) {
		return nil, fail(http.StatusBadRequest, "INVALID_ARG_ID")
	}
	copy(id[:], text)
	return a.b.Tracer.Trace(r.Context(), topic, id)
}
