package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/julienschmidt/httprouter"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// Route is an endpoint: its right, its arguments, its answers, and the code that serves it. The router, the checks of
// rights and arguments, the audit, docs/reference/openapi.yaml and docs/reference/rights.md are derived from it.
type Route struct {
	Method, Path string
	Right        access.Right // see OfTopic
	// Audited: the route changes something, or returns data that only an administrator may see.
	Audited   bool
	Summary   string
	Arguments []Argument
	// Lenient: unknown arguments are ignored, as in nsqd. Otherwise they are refused, because a request with a mistyped
	// argument would be answered with 200 and not have the requested effect.
	Lenient bool
	Body    string // what the body of the request is; "": it is not read
	// Reply is a value of the type of the answer 200: a string is text, nil is an empty body, anything else is JSON.
	Reply any
	Uses  outcome.Uses // the set of possible outcomes in the answer

	serve           endpoint   // at the HTTP port
	lookup          endpoint   // at the lookup port; nil: it is not served there
	lookupArguments []Argument // at the lookup port; nil: Arguments
	codes           []string   // further messages with status 400
	bodyFirst       bool       // the body is checked before the names in the arguments, as in nsqd
	first           bool       // the secret for the first administrator is accepted in place of a right
	also            func(url.Values) []guard.Need
}

// endpoint handles a request. The reply is a string (sent as text), nil (an empty body), an http.Handler that writes
// the answer, or any other value (sent as JSON). Errors are *failure, or errors of internal/api.
type endpoint func(a *endpoints, q *request) (reply any, err error)

// reading is an endpoint that reads the arguments, and serves the request only if they are valid.
func reading[T any](read func(*request) T, serve func(*endpoints, *request, T) (any, error)) endpoint {
	return func(a *endpoints, q *request) (any, error) {
		v := read(q)
		if q.err != nil {
			return nil, q.err
		}
		return serve(a, q, v)
	}
}

func do(read func(*request) api.Operation) endpoint {
	return reading(read, func(a *endpoints, q *request, op api.Operation) (any, error) {
		return nil, a.b.Admin.Do(q.Context(), op)
	})
}

// plan returns the effect that the operation would have.
func plan(read func(*request) api.Operation) endpoint {
	return reading(read, func(a *endpoints, q *request, op api.Operation) (any, error) {
		return a.b.Planner.Plan(q.Context(), op)
	})
}

func get(path string, right access.Right, serve endpoint, summary string, arguments ...Argument) Route {
	return Route{
		Method: http.MethodGet, Path: path, Right: right, serve: serve, Summary: summary, Arguments: arguments, Uses: outcome.OfRequests,
	}
}

func post(path string, right access.Right, serve endpoint, summary string, arguments ...Argument) Route {
	r := get(path, right, serve, summary, arguments...)
	r.Method, r.Audited = http.MethodPost, right != access.Publish && right != access.Consume
	return r
}

func put(path string, right access.Right, serve endpoint, summary string, arguments ...Argument) Route {
	r := post(path, right, serve, summary, arguments...)
	r.Method = http.MethodPut
	return r
}

func (r Route) lenient() Route              { r.Lenient = true; return r }
func (r Route) replies(v any) Route         { r.Reply = v; return r }
func (r Route) reads(body string) Route     { r.Body = body; return r }
func (r Route) fails(codes ...string) Route { r.codes = codes; return r }
func (r Route) uses(u outcome.Uses) Route   { r.Uses = u; return r }

// local marks a route that is answered without the cluster, and therefore with none of the cluster's errors.
func (r Route) local() Route { return r.uses(0) }

// atLookup also serves the route at the lookup port, with another endpoint, and with other arguments if any are given.
func (r Route) atLookup(e endpoint, arguments ...Argument) Route {
	r.lookup, r.lookupArguments = e, arguments
	return r
}

// everywhere also serves the route at the lookup port.
func (r Route) everywhere() Route { return r.atLookup(r.serve) }

// Routes are the routes of a broker's HTTP port: nsqd's API, the endpoints of nsqlookupd that nsqd does not have, and
// the cluster's own endpoints.
func Routes() []Route {
	return slices.Concat(lookupRoutes, processRoutes, statsRoutes, publishRoutes, consumerRoutes, topicRoutes, channelRoutes,
		brokerRoutes, planRoutes, invitationRoutes, replicaRoutes, userRoutes, sessionRoutes, consoleRoutes, profileRoutes)
}

// LookupRoutes are the routes of a separate lookup port: nsqlookupd's API.
func LookupRoutes() []Route {
	routes := slices.DeleteFunc(Routes(), func(r Route) bool { return r.lookup == nil })
	for i := range routes {
		r := &routes[i]
		if r.serve = r.lookup; r.lookupArguments != nil {
			r.Arguments = r.lookupArguments
		}
	}
	return routes
}

// Codes are the messages with status 400, without the outcomes.
func (r *Route) Codes() (codes []string) {
	for _, a := range r.Arguments {
		for _, code := range []string{a.missing, a.invalid} {
			if isCode(code) {
				codes = append(codes, code)
			}
		}
	}
	return append(codes, r.codes...)
}

// OfTopic reports whether the right applies to the topic in ?topic=.
func (r *Route) OfTopic() bool {
	return slices.Contains([]access.Right{access.Publish, access.Consume, access.Administer, access.Discover}, r.Right)
}

// anyChannel is the channel that an auth service must allow for reading without a channel: a pattern that matches any
// channel does, a list of names does not.
const anyChannel = "#peek"

func (r *Route) needs(values url.Values) []guard.Need {
	need := guard.Need{Right: r.Right}
	if r.OfTopic() {
		need.Topic = values.Get("topic")
	}
	if r.Right == access.Consume {
		need.Channel = anyChannel
		if r.argument("channel") != nil {
			need.Channel = values.Get("channel")
		}
	}
	needs := []guard.Need{need}
	if r.also != nil {
		needs = append(needs, r.also(values)...)
	}
	return needs
}

// NSQD is the handler of a broker's HTTP port.
func NSQD(o Options, b Backend) http.Handler { return newRouter(o, b, Routes()) }

// Lookup is the handler of a separate lookup port.
func Lookup(o Options, b Backend) http.Handler { return newRouter(o, b, LookupRoutes()) }

// newRouter returns a handler that refuses pages of other sites before it selects a route. HEAD of a probe is its
// GET without the body, which the server leaves out; HEAD of /ping is refused, as in nsqd.
func newRouter(o Options, b Backend, routes []Route) http.Handler {
	a := &endpoints{opts: o, b: b}
	inner := httprouter.New()
	refuse := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, fail(status, code)) }
	}
	inner.NotFound = refuse(http.StatusNotFound, "NOT_FOUND")
	inner.MethodNotAllowed = refuse(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	inner.PanicHandler = func(w http.ResponseWriter, r *http.Request, p any) { a.refuse(w, r, fmt.Errorf("panic: %v", p)) }
	for i := range routes {
		inner.Handler(routes[i].Method, routes[i].Path, a.handler(&routes[i]))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if b.Browsers != nil {
			if code := b.Browsers.Refusal(r); code != "" {
				a.refuse(w, r, fail(http.StatusForbidden, code))
				return
			}
		}
		if r.Method == http.MethodHead && api.IsProbe(r.URL.Path) && r.URL.Path != "/ping" {
			probe := *r
			probe.Method = http.MethodGet
			r = &probe
		}
		inner.ServeHTTP(w, r)
	})
}

// handler serves a route: it checks the client's rights, then the arguments, and writes the answer and the audit.
func (a *endpoints) handler(route *Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := newRequest(route, r)
		if a.b.Guard == nil || route.Right == access.Open {
			bounded := a.bounded(w, q.Request)
			a.call(bounded, q)
			bounded.begin()
			return
		}
		s, err := a.admit(q)
		q.identify(s)
		bounded := a.bounded(w, q.Request)
		if err != nil {
			a.deny(bounded, q.Request, err)
		} else {
			a.call(bounded, q)
		}
		bounded.begin()
		if route.Audited {
			a.note(q, s, bounded, err)
		}
	})
}

func (a *endpoints) call(w http.ResponseWriter, q *request) {
	err := q.check()
	var reply any
	if err == nil {
		reply, err = q.route.serve(a, q)
	}
	h, writes := reply.(http.Handler)
	switch {
	case err != nil:
		a.refuse(w, q.Request, err)
	case writes:
		h.ServeHTTP(w, q.Request)
	default:
		respond(w, http.StatusOK, reply)
	}
}

// RequireTLS refuses every request and tells the client to use HTTPS. The probes of a supervisor are exempt: they
// disclose nothing, and a supervisor often supports only HTTP.
func RequireTLS(h http.Handler, httpsPort int) http.Handler {
	body := fmt.Sprintf(`{"message": "TLS_REQUIRED", "https_port": %d}`, httpsPort)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("X-NSQ-Content-Type", "nsq; version=1.0")
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(body)) // the client may have disconnected
	})
}
