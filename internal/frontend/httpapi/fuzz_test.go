package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	settings "github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// queries and bodies are the seeds of both targets.
var (
	queries = []string{
		"", "topic=t", "topic=t&defer=1", "topic=t&binary=true", "topic=t&channel=c", "topic=t&channel=c%23ephemeral", "topic=%zz", "a;b",
		"topic=t&partitions=3&ordered=true&max_bytes=-1", "topic=t&key=k&ttl=5", "topic=t&channel=c&to=earliest", "topic=&channel=", "format=json&include_clients=0",
		"topic=t&channel=c&max_attempts=3&dead_letter_topic=d&retry_backoff=1s,2,1m,0.1", "topic=t&partition=0&from=n1&confirm=t/0&discard=1", "node=n1&cancel=true",
		"name=u&admin=true", "user=u&topic=*&rights=publish,consume", "user=u&cluster=observe", "topic=t&partition=1&limit=9&node=n1&uncommitted=true",
		"topic=t&channel=c&id=0123456789abcdef", "topic=t&replication_factor=3&min_in_sync=2", "topic=t&partition=0&from=n1&to=n2", "topic=t&channel=c&order=true",
		"topic=t&id=0123456789abcdef", "metric=put&topic=t&channel=c&since=5m&step=1s&page=2&page_size=3&sort=depth", "topic=t&partition=0&replicas=n1,n2&dry_run=true",
		"topic=t&channel=c&max=2&wait=1ms&max_in_flight=3&msg_timeout=9&client=x&encoding=base64", "topic=t&channel=c&receipt=0123456789abcdef-1-1-1&delay=5",
	}
	bodies = []string{"", "one\ntwo\n", "\x00\x00\x00\x01\x00\x00\x00\x01x", "\xff\xff\xff\xff", `["127.0.0.1:1"]`, "debug"}
)

// inspected answers the endpoints for the content of replicas and for recovery.
type inspected struct{}

func (inspected) Digest(api.DigestRequest) (api.Digest, error) {
	return api.Digest{}, outcome.ErrTopicNotFound
}

func (inspected) Peek(context.Context, api.PeekRequest) (api.Peeked, error) {
	return api.Peeked{}, outcome.ErrTopicNotFound
}

func (inspected) Remains(context.Context, string, int) (api.Remains, error) {
	return api.Remains{}, outcome.ErrTopicNotFound
}

func (inspected) Recover(context.Context, string, int, ident.Node) (api.Remains, error) {
	return api.Remains{}, outcome.ErrTopicNotFound
}

func (inspected) Discard(context.Context, string, int, ident.Node) error {
	return outcome.ErrTopicNotFound
}

// fuzzed holds the handlers of a broker that has users, for all executions of a target.
type fuzzed struct {
	users    *access.Registry
	root     string // the administrator's token
	cluster  *edgetest.Cluster
	polls    *consume.Sessions
	handlers [2]http.Handler
	rules    [2][]httpapi.Route
	served   int
}

// keptCluster is the number of requests after which the cluster is replaced by an empty one.
const keptCluster = 2048

func newFuzzed(f testing.TB) *fuzzed {
	s := &fuzzed{rules: [2][]httpapi.Route{httpapi.Routes(), httpapi.LookupRoutes()}}
	s.users, s.root = someUsers(f)
	s.renew()
	f.Cleanup(func() {
		s.polls.Stop()
		s.cluster.Close()
	})
	return s
}

// renew makes an empty cluster with its handlers.
func (s *fuzzed) renew() {
	if s.cluster != nil {
		s.polls.Stop()
		s.cluster.Close()
	}
	s.cluster = edgetest.New()
	s.polls = consume.New(consume.Options{MaxSessions: 1000}, s.cluster, nil)
	log := logrus.New()
	log.SetOutput(io.Discard)
	b := httpapi.Backend{
		Publisher: s.cluster, Stats: s.cluster, Admin: s.cluster, Directory: s.cluster.Directory(), Channels: &askedChannels{},
		Inspector: inspected{}, Recovery: inspected{}, Admission: admission.New(admission.Options{}), Config: &config{level: "info"}, Log: log, Planner: planned{}, Tracer: traced{}, Console: newConsole(),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
		Users:   s.users, Consumers: s.polls, Guard: guard.New(guard.Options{Users: s.users, Log: log}),
	}
	o := httpapi.Options{InfoReply: httpapi.InfoReply{Version: "1.3.0"}, StartTime: time.Unix(1700000000, 0), Connection: settings.Connection{MaxRdyCount: 5},
		Messages: settings.Messages{MaxMsgSize: 100, MaxBodySize: 1000, MaxDeferTimeout: time.Hour, MsgTimeout: time.Second, MaxMsgTimeout: time.Second, MaxReqTimeout: time.Second}}
	s.handlers = [2]http.Handler{httpapi.NSQD(o, b), httpapi.Lookup(o, b)}
}

// someUsers has one administrator, whose name no mutation finds.
func someUsers(f testing.TB) (users *access.Registry, root string) {
	store := metadatatest.NewMemory()
	log := logrus.New()
	log.SetOutput(io.Discard)
	users = access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { users.Watch(ctx, store) })
	f.Cleanup(func() {
		cancel()
		watch.Wait()
		_ = store.Close()
	})
	wait.Until(f, func() bool { return users.Policy() != nil }, "the users are read")
	root, err := users.Create(f.Context(), access.NewUser{Name: "an-administrator-with-a-long-name", Admin: true})
	require.NoError(f, err)
	return users, root
}

// route is a rule with the handler that serves it.
type route struct {
	httpapi.Route
	handler http.Handler
}

// route gives the route with a number.
func (s *fuzzed) route(number uint16) route {
	if s.served++; s.served%keptCluster == 0 {
		s.renew()
	}
	handler := int(number) % len(s.handlers)
	rules := s.rules[handler]
	return route{rules[int(number/2)%len(rules)], s.handlers[handler]}
}

// send makes one request.
func (r route) send(query, authorization, remote string, body []byte) *httptest.ResponseRecorder {
	return r.sendWith(query, authorization, remote, body, http.Header{})
}

// sendWith makes one request with headers.
func (r route) sendWith(query, authorization, remote string, body []byte, headers http.Header) *httptest.ResponseRecorder {
	req := httptest.NewRequest(r.Method, "/", strings.NewReader(string(body)))
	req.URL = &url.URL{Path: strings.Replace(r.Path, ":opt", "log_level", 1), RawQuery: query}
	req.RemoteAddr, req.Header = remote, headers.Clone()
	if authorization != "" {
		req.Header["Authorization"] = []string{authorization}
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	return w
}

// TestEveryRouteIsFuzzed: the handlers of the targets serve every route but the files of the console, so that each
// administrative one is among the targets' routes.
func TestEveryRouteIsFuzzed(t *testing.T) {
	s := newFuzzed(t)
	for handler, rules := range s.rules {
		for _, rule := range rules {
			if strings.HasPrefix(rule.Path, "/ui") || strings.HasPrefix(rule.Path, "/debug/") {
				continue
			}
			w := route{rule, s.handlers[handler]}.send("", "Bearer "+s.root, "127.0.0.1:1", nil)
			require.NotContains(t, w.Body.String(), `"NOT_FOUND"`, "%s %s is not served", rule.Method, rule.Path)
		}
	}
}

// FuzzRequests sends any arguments and any body to every route, as an administrator: the
// handler does not panic, and no answer reports an internal error. Profiles, which take
// seconds, are left out.
func FuzzRequests(f *testing.F) {
	s := newFuzzed(f)
	for i, query := range queries {
		for j, body := range bodies {
			f.Add(uint16(31*i+7*j), query, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, number uint16, query string, body []byte) {
		r := s.route(number)
		if strings.HasPrefix(r.Path, "/debug/") {
			return
		}
		if w := r.send(query, "Bearer "+s.root, "127.0.0.1:1", body); w.Code == http.StatusInternalServerError || w.Code == http.StatusUnauthorized {
			t.Fatalf("%s %s?%s: %d %s", r.Method, r.Path, query, w.Code, w.Body)
		}
	})
}

// FuzzStrangers sends any arguments, any credentials and any body to every route, from any
// address: only the open routes do anything.
func FuzzStrangers(f *testing.F) {
	s := newFuzzed(f)
	for i, query := range queries {
		for j, authorization := range []string{"", "Bearer x", "bearer an-administrator.x", "Basic cm9vdDpyb290", "Bearer  ", "Bearer anonymous", "\x00", "Bearer a b"} {
			f.Add(uint16(31*i+7*j), query, authorization, byte(j), []byte(bodies[(i+j)%len(bodies)]))
		}
	}
	remotes := []string{"127.0.0.1:1", "[::1]:1", "192.0.2.1:9", "@", "", "[fe80::1%eth0]:1", "x"}
	f.Fuzz(func(t *testing.T, number uint16, query, authorization string, remote byte, body []byte) {
		r := s.route(number)
		w := r.send(query, authorization, remotes[int(remote)%len(remotes)], body)
		if r.Right == access.Open {
			return
		}
		switch w.Code {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusNotFound, http.StatusMethodNotAllowed:
		default:
			t.Fatalf("%s %s?%s with %q: %d %s", r.Method, r.Path, query, authorization, w.Code, w.Body)
		}
		require.Empty(t, s.cluster.Puts())
		require.Empty(t, s.cluster.Ops())
	})
}

// FuzzHeaders sends any headers to every route: as a stranger with any cookie, and as an
// administrator with any headers of messages. Only the open routes do anything for the stranger, and
// nothing is an internal error.
func FuzzHeaders(f *testing.F) {
	s := newFuzzed(f)
	for i, seed := range [][3]string{
		{"", "", ""}, {"lockstep_session=x", `{"a":"b"}`, "id"}, {"lockstep_session=", `{"##only_channel":"c"}`, "a b"}, {`lockstep_session="x; y"`, `{"##client_dispatch_tag":"t"}`, strings.Repeat("i", 300)},
		{"=;=;", `{"a":1}`, "\x00"}, {"lockstep_session=" + strings.Repeat("A", 43), `{"\u0023#origin":"east:1:0:7"}`, "text/event-stream"}, {"x", "null", "multipart/mixed;q=x,*/*"},
	} {
		for number := range uint16(8) {
			f.Add(uint16(i)+41*number, queries[(i+int(number)*5)%len(queries)], seed[0], seed[1], seed[2])
		}
		for at, rule := range s.rules[0] { // the routes that read these headers
			if rule.Path == "/pub" || rule.Path == "/v1/consume" || rule.Path == "/v1/session" {
				f.Add(uint16(2*at), "topic=t&channel=c", seed[0], seed[1], seed[2])
			}
		}
	}
	f.Fuzz(func(t *testing.T, number uint16, query, cookie, headers, other string) {
		r := s.route(number)
		if strings.HasPrefix(r.Path, "/debug/") || r.Path == "/v1/user/create" || r.Path == "/v1/user/rotate" {
			return // they take long
		}
		for _, authorization := range []string{"", "Bearer " + s.root} {
			if authorization != "" && r.Path == "/v1/session" && r.Method == http.MethodPost {
				continue // thousands of sign-ins
			}
			w := r.sendWith(query, authorization, "127.0.0.1:1", []byte("m"), http.Header{
				"Cookie": {cookie}, "X-Nsq-Headers": {headers}, "X-Nsq-Message-Id": {other}, "Accept": {other}, "Content-Type": {headers},
			})
			if w.Code == http.StatusInternalServerError {
				t.Fatalf("%s %s?%s: %d %s", r.Method, r.Path, query, w.Code, w.Body)
			}
			if authorization == "" && r.Right != access.Open && w.Code < http.StatusBadRequest {
				t.Fatalf("%s %s?%s with cookie %q: %d %s", r.Method, r.Path, query, cookie, w.Code, w.Body)
			}
		}
	})
}
