package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// failure is an answer other than 200.
type failure struct {
	status     int
	message    string
	detail     string // "": that of details
	retryAfter bool
	file       string // has the secret that the request lacks; "": none
}

func (f *failure) Error() string { return f.message }

func fail(status int, message string) error { return &failure{status: status, message: message} }

// unavailable is the answer 503 to a request that may be repeated.
func unavailable(message string) error {
	return &failure{status: http.StatusServiceUnavailable, message: message, retryAfter: true}
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
