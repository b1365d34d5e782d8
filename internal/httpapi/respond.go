package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// endpoint works one request out. The reply is a string (sent as text), nil
// (empty body) or anything else (sent as JSON). Errors are *failure or one of
// internal/edge.
type endpoint func(r *http.Request) (reply any, err error)

// failure is an answer other than 200.
type failure struct {
	status     int
	message    string
	retryAfter bool
}

func (f *failure) Error() string { return f.message }

func fail(status int, message string) error { return &failure{status: status, message: message} }

// serve makes a handler of an endpoint.
func (a *api) serve(e endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reply, err := e(r)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		respond(w, http.StatusOK, reply)
	}
}

// refuse answers an error.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	f := (*failure)(nil)
	if !errors.As(err, &f) {
		f = known(err)
	}
	if f.status == http.StatusInternalServerError && f.message == "INTERNAL_ERROR" {
		a.b.Log.WithError(err).WithField("path", r.URL.Path).Error("request failed")
	}
	if f.retryAfter {
		w.Header().Set("Retry-After", "1")
	}
	respond(w, f.status, map[string]string{"message": f.message})
}

// known maps the errors of the cluster to answers.
func known(err error) *failure {
	switch {
	case errors.Is(err, edge.ErrTopicNotFound):
		return &failure{status: http.StatusNotFound, message: "TOPIC_NOT_FOUND"}
	case errors.Is(err, edge.ErrChannelNotFound):
		return &failure{status: http.StatusNotFound, message: "CHANNEL_NOT_FOUND"}
	case errors.Is(err, edge.ErrInvalid):
		return &failure{status: http.StatusBadRequest, message: err.Error()}
	case errors.Is(err, edge.ErrUnavailable):
		return &failure{status: http.StatusServiceUnavailable, message: err.Error(), retryAfter: true}
	case errors.Is(err, edge.ErrExiting):
		return &failure{status: http.StatusServiceUnavailable, message: "EXITING", retryAfter: true}
	}
	return &failure{status: http.StatusInternalServerError, message: "INTERNAL_ERROR"}
}

func respond(w http.ResponseWriter, status int, reply any) {
	h := w.Header()
	h.Set("X-NSQ-Content-Type", "nsq; version=1.0")
	var body []byte
	switch v := reply.(type) {
	case nil:
	case string:
		body = []byte(v)
	default:
		h.Set("Content-Type", "application/json; charset=utf-8")
		var err error
		if body, err = json.Marshal(v); err != nil {
			status, body = http.StatusInternalServerError, []byte(`{"message":"INTERNAL_ERROR"}`)
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that left needs no answer
}

// plain makes a handler of text without the API's header.
func plain(text func() (int, string)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		status, body := text()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // a client that left needs no answer
	}
}

// query parses the query string.
func query(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "INVALID_REQUEST")
	}
	return values, nil
}

// required returns an argument that must be there, even if empty.
func required(values url.Values, name, missing string) (string, error) {
	v, ok := values[name]
	if !ok {
		return "", fail(http.StatusBadRequest, missing)
	}
	return v[0], nil
}

// topicOf returns the query and the topic that it must name. What NSQ does not
// check is not checked: what no topic can be called is not found.
func topicOf(r *http.Request) (topic string, values url.Values, err error) {
	if values, err = query(r); err != nil {
		return "", nil, err
	}
	topic, err = required(values, "topic", "MISSING_ARG_TOPIC")
	return topic, values, err
}

// flag reads true, 1, false or 0; anything else is the default.
func flag(values url.Values, name string, byDefault bool) bool {
	switch values.Get(name) {
	case "true", "1":
		return true
	case "false", "0":
		return false
	}
	return byDefault
}
