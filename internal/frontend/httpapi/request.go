package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

// Argument is an argument of the query string.
type Argument struct {
	Name     string
	Kind     kind
	Help     string
	Required bool
	Repeats  bool

	least, most int    // bounds of a number; most 0: no limit
	missing     string // the code of the refusal without the argument; "": the endpoint decides
	invalid     string // the code, or "must be …", of the refusal of a value; "": the default of the kind
}

// kind is the form of an argument.
type kind string

// The kinds of arguments.
const (
	kindText     kind = "string"
	kindName     kind = "name"     // of a topic or a channel
	Boolean      kind = "boolean"  // true or false
	Number       kind = "integer"  // 0 or more
	Duration     kind = "duration" // such as 24h or 1m30s
	Milliseconds kind = "milliseconds"
)

func textArg(name, help string) Argument   { return Argument{Name: name, Kind: kindText, Help: help} }
func boolArg(name, help string) Argument   { return Argument{Name: name, Kind: Boolean, Help: help} }
func nameArg(name, help string) Argument   { return Argument{Name: name, Kind: kindName, Help: help} }
func numberArg(name, help string) Argument { return Argument{Name: name, Kind: Number, Help: help} }

func durationArg(name, help string) Argument { return Argument{Name: name, Kind: Duration, Help: help} }

func (a Argument) must() Argument { a.Required = true; return a }

func (a Argument) repeated() Argument { a.Repeats = true; return a }

// orMissing returns the argument as a required argument with its own error code.
func (a Argument) orMissing(code string) Argument { a.Required, a.missing = true, code; return a }

func (a Argument) between(least, most int) Argument { a.least, a.most = least, most; return a }

func (a Argument) orElse(invalid string) Argument { a.invalid = invalid; return a }

// Arguments of several routes. A topic that is only looked up may have any name, as in nsqd: an invalid name is simply
// not found.
var (
	argTopic     = textArg("topic", "the topic").orMissing("MISSING_ARG_TOPIC")
	argTopicName = nameArg("topic", "the topic").orMissing("MISSING_ARG_TOPIC").orElse("INVALID_ARG_TOPIC")
	argNewTopic  = argTopicName.orElse("INVALID_TOPIC")
	argChannel   = nameArg("channel", "the channel").orMissing("MISSING_ARG_CHANNEL").orElse("INVALID_ARG_CHANNEL")
	argPartition = numberArg("partition", "the partition").must().orElse("INVALID_ARG_PARTITION")
	argTopicID   = textArg("topic_id", "the id of the topic: another topic of that name is answered with 404").
			orElse("INVALID_ARG_TOPIC_ID")
	argMessageID = textArg("id", "the id of a message").orMissing("MISSING_ARG_ID").orElse("INVALID_ARG_ID")
	argUser      = textArg("name", "the user").must()
	argNode      = textArg("node", "the broker").must()
)

func (r *Route) argument(name string) *Argument {
	i := slices.IndexFunc(r.Arguments, func(a Argument) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Arguments[i]
}

// isCode reports whether the message of a refusal is a code, not a sentence.
func isCode(message string) bool { return message != "" && message == strings.ToUpper(message) }

// request is a request with its arguments. A getter whose argument cannot be parsed sets err, unless it is already set.
type request struct {
	*http.Request
	route  *Route
	values url.Values
	err    error
}

func newRequest(route *Route, r *http.Request) *request {
	q := &request{Request: r, route: route}
	var err error
	if q.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		q.err = fail(http.StatusBadRequest, "INVALID_REQUEST") // the text of err names Go functions
	}
	return q
}

type identityKey struct{}

// identityOf returns the client of a request; nil: its route is open, or there is no guard.
func identityOf(r *http.Request) *guard.Session {
	s, _ := r.Context().Value(identityKey{}).(*guard.Session)
	return s
}

// allow checks a further right of the client.
func allow(r *http.Request, need guard.Need) error {
	if s := identityOf(r); s != nil {
		return s.Allow(r.Context(), need)
	}
	return nil
}

// identify adds the client to the request; nil: the login failed.
func (q *request) identify(s *guard.Session) {
	if s == nil {
		return
	}
	action, audited := q.Method+" "+q.URL.Path, q.route.Audited
	ctx := api.WithRequester(q.Context(), func() api.Requester {
		requester := s.Requester(action)
		requester.Audited = audited
		return requester
	})
	q.Request = q.WithContext(context.WithValue(ctx, identityKey{}, s))
}

// check refuses arguments that the route does not have, and invalid names.
func (q *request) check() error {
	if q.route.Lenient && len(q.route.Arguments) == 0 {
		return nil
	}
	if q.err != nil {
		return q.err
	}
	if !q.route.Lenient {
		for _, name := range slices.Sorted(maps.Keys(q.values)) {
			if q.route.argument(name) == nil {
				var names []string
				for _, a := range q.route.Arguments {
					names = append(names, a.Name)
				}
				known := cmp.Or(strings.Join(names, ", "), "none")
				return fmt.Errorf("%w: there is no argument %q, but: %s", outcome.ErrInvalid, name, known)
			}
		}
	}
	if q.route.bodyFirst {
		return nil
	}
	return q.checkNames()
}

// checkNames refuses a request without a required argument, or with an invalid name.
func (q *request) checkNames() error {
	for i := range q.route.Arguments {
		a := &q.route.Arguments[i]
		if a.missing != "" && !q.has(a.Name) {
			return fail(http.StatusBadRequest, a.missing)
		}
		if v := q.text(a.Name); a.Kind == kindName && !api.ValidName(v) {
			return explain(http.StatusBadRequest, a.invalid, "%q is not the name of a %s: %s", clipped(v), a.Name, invalidName)
		}
	}
	return nil
}

func (q *request) fail(format string, args ...any) {
	q.note(fmt.Errorf("%w: "+format, append([]any{outcome.ErrInvalid}, args...)...))
}

func (q *request) note(err error) {
	if q.err == nil {
		q.err = err
	}
}

// reject notes that the value of an argument is invalid. otherwise begins with "must".
func (q *request) reject(name, otherwise string) {
	invalid := otherwise
	if a := q.route.argument(name); a != nil && a.invalid != "" {
		invalid = a.invalid
	}
	if isCode(invalid) {
		q.note(fail(http.StatusBadRequest, invalid))
		return
	}
	q.fail("%s %s", name, invalid)
}

func (q *request) has(name string) bool { return q.values.Has(name) }

// text returns the first value of an argument.
func (q *request) text(name string) string { return q.values.Get(name) }

func (q *request) topic() string { return q.text("topic") }

func (q *request) channel() string { return q.text("channel") }

// flag reads true, 1, false or 0; any other value is the default, as in nsqd.
func (q *request) flag(name string, byDefault bool) bool {
	switch q.text(name) {
	case "true", "1":
		return true
	case "false", "0":
		return false
	}
	return byDefault
}

// choice reads true or false; nil: the argument is missing.
func (q *request) choice(name string) *bool {
	text := q.text(name)
	if text == "" {
		return nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		q.reject(name, "must be true or false")
	}
	return &v
}

func (q *request) boolean(name string) bool {
	v := q.choice(name)
	return v != nil && *v
}

// number reads a number within the bounds of its argument. An empty value counts as missing, unless the argument has
// its own error code.
func (q *request) number(name string, byDefault int) int {
	a := q.route.argument(name)
	if q.text(name) == "" && !isCode(a.invalid) {
		return byDefault
	}
	return q.between(name, byDefault, a.least, a.most)
}

// between reads a number; most 0: without a limit.
func (q *request) between(name string, byDefault, least, most int) int {
	if !q.has(name) {
		return byDefault
	}
	n, err := strconv.Atoi(q.text(name))
	switch {
	case err == nil && n >= least && (most == 0 || n <= most):
		return n
	case most == 0:
		q.reject(name, "must be a positive number")
	default:
		q.reject(name, fmt.Sprintf("must be a number from %d to %d", least, most))
	}
	return byDefault
}

// rate reads a number of messages or bytes a second; nil: the argument is missing.
func (q *request) rate(name string, kind option.Kind) *int64 {
	text := q.text(name)
	if text == "" {
		return nil
	}
	n, err := kind.Parse(text)
	if err != nil {
		q.reject(name, err.Error())
	}
	return &n
}

// partition reads the number of a partition; −1: the argument is missing.
func (q *request) partition() int {
	text := q.text("partition")
	if text == "" && !q.route.argument("partition").Required {
		return -1
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		q.reject("partition", "must be a number")
	}
	return int(n)
}

// topicID reads the id of a topic; 0: the argument is missing.
func (q *request) topicID(name string) (id ident.TopicID) {
	text := q.text(name)
	if text == "" && !q.route.argument(name).Required {
		return 0
	}
	if err := id.UnmarshalText([]byte(text)); err != nil || id == 0 {
		q.reject(name, "must be the id of a topic: 16 hexadecimal digits")
	}
	return id
}

func (q *request) messageIDs() []api.MessageID {
	ids := make([]api.MessageID, len(q.values["id"]))
	for i, text := range q.values["id"] {
		if len(text) != len(ids[i]) {
			q.reject("id", "")
		}
		copy(ids[i][:], text)
	}
	return ids
}

// duration reads a duration with its unit, or in milliseconds.
func (q *request) duration(name string, byDefault, least, most time.Duration) time.Duration {
	if !q.has(name) {
		return byDefault
	}
	d, ok := span(q.text(name))
	if !ok || d < least || d > most {
		q.reject(name, fmt.Sprintf("must be a duration such as 20s, or a number of milliseconds, from %v to %v", least, most))
		return byDefault
	}
	return d
}

// span reads a duration: 90s, or a number of milliseconds, as in nsqd. It is not negative. A number of milliseconds
// beyond 292 years is the longest duration.
func span(text string) (time.Duration, bool) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, ms >= 0
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}
