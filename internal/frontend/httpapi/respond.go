package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// endpoint handles a request. The reply is a string (sent as text), nil (empty body) or any
// other value (sent as JSON). Errors are *failure or those of internal/api.
type endpoint func(r *http.Request) (reply any, err error)

// failure is an answer other than 200.
type failure struct {
	status     int
	message    string
	detail     string // "": that of details
	retryAfter bool
	file       string // that has what the request lacks; "" = none
}

func (f *failure) Error() string { return f.message }

func fail(status int, message string) error { return &failure{status: status, message: message} }

// serve returns the handler of an endpoint.
func (a *endpoints) serve(e endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reply, err := e(r)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		respond(w, http.StatusOK, reply)
	}
}

// refuse sends the answer to an error.
func (a *endpoints) refuse(w http.ResponseWriter, r *http.Request, err error) {
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
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="lockstep"`)
	}
	respond(w, f.status, f.body())
}

// known maps the errors of internal/api and internal/auth/guard to answers.
func known(err error) *failure {
	row, ok := outcome.Find(err, outcome.OfRequests)
	switch {
	case errors.Is(err, guard.ErrDenied):
		return &failure{status: http.StatusForbidden, message: "FORBIDDEN"}
	case errors.Is(err, guard.ErrTooManyFailures):
		return &failure{status: http.StatusTooManyRequests, message: "TOO_MANY_BAD_LOGINS", retryAfter: true}
	case errors.Is(err, guard.ErrAuthService):
		return &failure{status: http.StatusServiceUnavailable, message: "AUTH_UNAVAILABLE", retryAfter: true}
	case guard.IsLoss(err):
		return &failure{status: http.StatusUnauthorized, message: "UNAUTHORIZED"}
	case !ok || row.HTTP.Status == 0:
		return &failure{status: http.StatusInternalServerError, message: "INTERNAL_ERROR"}
	}
	return failureOf(row, err)
}

// failureOf is the answer of a row to an error that wraps its sentinel.
func failureOf(row outcome.Row, err error) *failure {
	return &failure{status: row.HTTP.Status, message: cmp.Or(row.HTTP.Message, err.Error()), retryAfter: row.HTTP.RetryAfter}
}

func respond(w http.ResponseWriter, status int, reply any) {
	h := w.Header()
	h.Set("X-NSQ-Content-Type", "nsq; version=1.0")
	var body []byte
	switch v := reply.(type) {
	case nil:
	case string:
		body = []byte(v)
	case duplicate:
		h.Set(headerDuplicate, "true")
		body = []byte("OK")
	default:
		h.Set("Content-Type", "application/json; charset=utf-8")
		var err error
		if body, err = json.Marshal(v); err != nil {
			status, body = http.StatusInternalServerError, []byte(`{"message":"INTERNAL_ERROR"}`)
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have left
}

// plain returns a handler that sends text without the API's header.
func plain(text func() (int, string)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		status, body := text()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // the client may have left
	}
}

// query parses the query string.
func query(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "INVALID_REQUEST") // the error names functions of Go
	}
	return values, nil
}

// required returns an argument that must be present; it may be empty.
func required(values url.Values, name, missing string) (string, error) {
	v, ok := values[name]
	if !ok {
		return "", fail(http.StatusBadRequest, missing)
	}
	return v[0], nil
}

// topicOf returns the query and its topic, which must be present. As in NSQ the name is not
// checked: an invalid name is a topic that is not found.
func topicOf(r *http.Request) (topic string, values url.Values, err error) {
	if values, err = query(r); err != nil {
		return "", nil, err
	}
	topic, err = required(values, "topic", "MISSING_ARG_TOPIC")
	return topic, values, err
}

// flag reads true, 1, false or 0; any other value is the default.
func flag(values url.Values, name string, byDefault bool) bool {
	switch values.Get(name) {
	case "true", "1":
		return true
	case "false", "0":
		return false
	}
	return byDefault
}
