package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

type failure struct {
	status     int
	message    string
	detail     string // "": from details
	retryAfter bool
	file       string // has the secret that the request lacks; "": none
}

func (f *failure) Error() string { return f.message }

func fail(status int, message string) error { return &failure{status: status, message: message} }

// unavailable is the answer 503 to a request that may be repeated.
func unavailable(message string) error {
	return &failure{status: http.StatusServiceUnavailable, message: message, retryAfter: true}
}

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
	_, _ = w.Write(body) // the client may have disconnected
}

// details explain the codes of failures to people; the codes are a contract with NSQ's tools and with scripts. An
// endpoint with a better explanation uses explain.
var details = map[string]string{
	"BAD_BODY":                         "the body cannot be read, or its length prefixes do not fit it",
	"BAD_MESSAGE":                      "a message in the body is empty, or its length prefix does not fit the body",
	"BODY_NOT_EMPTY":                   "this request must not have a body: its arguments are in the query string",
	"BODY_TOO_BIG":                     "the body is larger than the broker takes (--max-body-size)",
	"BROKER_NOT_FOUND":                 "the cluster has no broker of this name",
	"CHANNEL_NOT_FOUND":                "the topic has no channel of this name",
	"EITHER_TOPIC_OR_CLUSTER":          "a right is for a topic (topic=) or for the cluster (cluster=), not for both",
	"EXITING":                          "the broker is stopping and no longer takes requests: use another one",
	"FORBIDDEN":                        "the user of this request has not got the right",
	"HEADERS_TOO_BIG":                  "the headers of a message are larger than the broker takes",
	"HOST_NOT_ALLOWED":                 "the request names another host than this broker's; --http-allowed-host adds names",
	"CROSS_ORIGIN":                     "the request comes from a page of another site",
	"INTERNAL_ERROR":                   "the broker failed; its log has the cause",
	"INVALID_ARG_CHANNEL":              invalidName,
	"INVALID_ARG_ID":                   "id must be a message id: 16 characters",
	"INVALID_ARG_LIMIT":                "limit must be a number above 0",
	"INVALID_ARG_PARTITION":            "partition must be a number from 0 to 65535",
	"INVALID_ARG_RECEIPT":              "not a receipt: send it back exactly as it came with the message",
	"INVALID_ARG_TOPIC":                invalidName,
	"INVALID_ARG_TOPIC_ID":             "topic_id must be an id as /v1/cluster shows it",
	"INVALID_DEFER":                    "defer must be a duration such as 90s, or a number of milliseconds, and no longer than --max-defer-timeout",
	"INVALID_HEADERS":                  "X-Nsq-Headers must be one JSON object of strings",
	"INVALID_MESSAGE_ID":               "X-Nsq-Message-Id must be given once, with 1 to 64 bytes of UTF-8",
	"INVALID_OPTION":                   "there is no such setting, or it cannot be changed while the broker runs (only log_level and nsqlookupd_tcp_addresses can)",
	"INVALID_PARTITION":                "partition must be a number from 0 to 65535",
	"INVALID_REQUEST":                  "the query cannot be read: a % must be followed by two hexadecimal digits, and ; separates nothing",
	"INVALID_TOPIC":                    invalidName,
	"INVALID_TTL":                      "ttl must be a duration with its unit, such as 90s, of 1ms or more",
	"INVALID_VALUE":                    "this setting does not take this value",
	"LOGIN_DISABLED":                   "this cluster requires no login",
	"METHOD_NOT_ALLOWED":               "this path does not take this method; the header Allow has those that it takes",
	"MISSING_ARG_BROKER":               "the argument broker is missing: the name of one, as nsqctl broker list shows it",
	"MISSING_ARG_CHANNEL":              "the argument channel is missing",
	"MISSING_ARG_ID":                   "the argument id is missing",
	"MISSING_ARG_NODE":                 "the argument node is missing: broadcast address:HTTP port of the broker",
	"MISSING_ARG_RECEIPT":              "a receipt is missing: in the argument receipt, or one a line in the body",
	"MISSING_ARG_TOPIC":                "the argument topic is missing",
	"MSG_EMPTY":                        "a message must have at least one byte",
	"MSG_TOO_BIG":                      "the message is larger than the broker takes (--max-msg-size)",
	"NOT_ACCEPTABLE":                   "messages come as application/json, application/x-ndjson or text/event-stream: see the header Accept",
	"NOT_FOUND":                        "there is no such path",
	"PARTITION_NOT_FOUND":              "the topic has no such partition",
	"TOO_MANY_CONNECTIONS":             "the broker has reached its connection limit: use another broker, or repeat the request later",
	"TOO_MANY_BAD_LOGINS":              "too many logins from this address have failed: wait, then repeat it",
	"TOO_MANY_RECEIPTS":                "these are more receipts than one request may have",
	"TOPIC_NOT_FOUND":                  "the cluster has no topic of this name",
	"UNAUTHORIZED":                     "this request needs a login: Authorization: Bearer TOKEN",
	"USER_EXISTS":                      "there is a user of this name",
	"USER_NOT_FOUND":                   "there is no user of this name",
	"AUTH_UNAVAILABLE":                 "the authorization service does not answer: repeat it later",
	"FIRST_ADMINISTRATOR_NEEDS_SECRET": "the first administrator needs the secret in the file that this answer names",
}

const invalidName = "a name has 1 to 64 letters, digits, dots, underscores and hyphens, and may end with #ephemeral"

// clipped shortens an invalid name for an answer, so that the answer does not grow with it.
func clipped(name string) string {
	const shown = 80
	if len(name) > shown {
		return name[:shown] + "…"
	}
	return name
}

// explain is fail with a custom sentence.
func explain(status int, code, format string, args ...any) error {
	return &failure{status: status, message: code, detail: fmt.Sprintf(format, args...)}
}

type errorReply struct {
	Message string `json:"message"`          // a code, or a sentence
	Detail  string `json:"detail,omitempty"` // the sentence to a code
	File    string `json:"file,omitempty"`   // the file with the secret that the request lacks
}

func (f *failure) body() errorReply {
	return errorReply{redact.Text(f.message), redact.Text(cmp.Or(f.detail, details[f.message])), f.file}
}
