package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	settings "github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site holds the two handlers of one fake cluster.
type site struct {
	t            *testing.T
	cluster      *edgetest.Cluster
	config       *config
	nsqd, lookup http.Handler
}

func newSite(t *testing.T) *site {
	log := logrus.New()
	log.SetOutput(io.Discard)
	s := &site{t: t, cluster: edgetest.New(), config: &config{level: "info"}}
	t.Cleanup(s.cluster.Close)
	o := httpapi.Options{
		InfoReply: httpapi.InfoReply{
			Version: "1.3.0", LockstepVersion: "0.1.0-dev", Commit: "abc", FeatureLevel: 1, NodeName: "n1", Durability: "sync", BroadcastAddress: "b", Hostname: "h",
			TCPPort: 1, HTTPPort: 2,
		},
		StartTime:  time.Unix(1700000000, 0),
		Messages:   settings.Messages{MaxMsgSize: 100, MaxBodySize: 1000, MaxDeferTimeout: time.Hour},
		Connection: settings.Connection{MaxHeartbeatInterval: time.Minute, MaxOutputBufferSize: 65536, MaxOutputBufferTimeout: 30 * time.Second, MaxDeflateLevel: 6},
	}
	b := httpapi.Backend{
		Publisher: s.cluster, Stats: s.cluster, Admin: s.cluster, Directory: s.cluster.Directory(),
		Config: s.config, Log: log,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
	}
	s.nsqd, s.lookup = httpapi.NSQD(o, b), httpapi.Lookup(o, b)
	return s
}

// config has two options that can be changed and one of each type.
type config struct {
	lookupds []string
	level    string
}

func (c *config) Get(name string) (any, bool) {
	v, ok := map[string]any{
		"nsqlookupd_tcp_addresses": c.lookupds, "log_level": c.level, "data_path": "/d", "msg_timeout": time.Minute, "tls_required": 0,
	}[name]
	return v, ok
}

func (c *config) SetLookupdAddresses(a []string) error { c.lookupds = a; return nil }

func (c *config) SetLogLevel(l string) error {
	if !strings.Contains("debug info warn error fatal", l) {
		return errors.New("unknown level")
	}
	c.level = l
	return nil
}

func do(h http.Handler, method, target, body string) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(b)
}

// expect checks one exchange. want begins with the status.
func (s *site) expect(h http.Handler, request, body, want string) {
	s.t.Helper()
	method, target, _ := strings.Cut(request, " ")
	r := do(h, method, target, body)
	require.Equal(s.t, want, strings.TrimSpace(fmt.Sprintf("%d %s", r.StatusCode, withoutDetail(text(s.t, r)))), request)
}

// withoutDetail is a body without the sentence next to a code, which is for people and not a contract.
func withoutDetail(body string) string {
	if at := strings.Index(body, `","detail":"`); at > 0 && strings.HasPrefix(body, `{"message":"`) {
		return body[:at] + `"}`
	}
	return body
}

func message(status int, code string) string { return fmt.Sprintf(`%d {"message":"%s"}`, status, code) }

func (s *site) depth(topic string) int64 { return s.cluster.Topics(topic, "", false)[0].Depth }

func TestPut(t *testing.T) {
	s := newSite(t)
	long := strings.Repeat("x", 101)
	for _, row := range []struct{ request, body, want string }{
		{"POST /pub?topic=t", "m", "200 OK"},
		{"POST /pub?topic=t&topic=u", "m", "200 OK"},
		{"POST /pub", long, message(413, "MSG_TOO_BIG")},
		{"POST /pub", "", message(400, "MSG_EMPTY")},
		{"POST /pub?topic=%zz", "m", message(400, "INVALID_REQUEST")},
		{"POST /pub", "m", message(400, "MISSING_ARG_TOPIC")},
		{"POST /pub?topic=", "m", message(400, "INVALID_TOPIC")},
		{"POST /pub?topic=t$", "m", message(400, "INVALID_TOPIC")},
		{"POST /pub?topic=t&ttl=x", "m", message(400, "INVALID_TTL")},
		{"POST /pub?topic=t&ttl=60", "m", message(400, "INVALID_TTL")},
		{"POST /pub?topic=t&ttl=0", "m", message(400, "INVALID_TTL")},
		{"POST /pub?topic=t&defer=x", "m", message(400, "INVALID_DEFER")},
		{"POST /pub?topic=t&defer=-1", "m", message(400, "INVALID_DEFER")},
		{"POST /pub?topic=t&defer=3600001", "m", message(400, "INVALID_DEFER")},
		{"POST /mpub?topic=t", "a\n\nb\nc\n", "200 OK"},
		{"POST /mpub?topic=t", "", "200 OK"},
		{"POST /mpub", "m", message(400, "MISSING_ARG_TOPIC")},
		{"POST /mpub?topic=t$", "m", message(400, "INVALID_TOPIC")},
		{"POST /mpub?topic=t", "a\n" + long + "\n", message(413, "MSG_TOO_BIG")},
		{"POST /mpub?topic=t", strings.Repeat("x", 1001), message(413, "BODY_TOO_BIG")},
		{"POST /mpub?topic=t&binary=true", "\x00\x00\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x01b", "200 OK"},
		{"POST /mpub?topic=t&binary=non_normalized", "\x00\x00\x00\x01\x00\x00\x00\x01a", "200 OK"},
		{"POST /mpub?topic=t&binary=0", "a", "200 OK"},
		{"POST /mpub?topic=t&binary=1", "\x00\x00", message(413, "BAD_BODY")},
		{"POST /mpub?topic=t&binary=1", "\x00\x00\x00\x00", message(413, "BAD_BODY")},
		{"POST /mpub?topic=t&binary=1", "\x00\x00\x00\xc8", message(413, "BAD_BODY")},
		{"POST /mpub?topic=t&binary=1", "\x00\x00\x00\x01\x00\x00\x00\x00", message(413, "BAD_MESSAGE")},
		{"POST /mpub?topic=t&binary=1", "\x00\x00\x00\x01\x00\x00\x00\x02a", message(413, "BAD_MESSAGE")},
		{"POST /mpub?topic=t&binary=1", "\x00\x00\x00\x01\x00\x00\x00\x65a", message(413, "BAD_MESSAGE")},
	} {
		s.expect(s.nsqd, row.request, row.body, row.want)
	}
	require.Equal(t, []int{1, 1, 3, 2, 1, 1}, s.cluster.Puts(), "a bad message refuses the whole multi-put")
	require.Equal(t, int64(9), s.depth("t"))
}

// The limits hold also for a request without Content-Length.
func TestPutChunked(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/pub?topic=t", "/mpub?topic=t"} {
		r := httptest.NewRequest(http.MethodPost, path, io.LimitReader(endless{}, 1<<30))
		r.ContentLength = -1
		w := httptest.NewRecorder()
		s.nsqd.ServeHTTP(w, r)
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestDeferredPut(t *testing.T) {
	s := newSite(t)
	s.expect(s.nsqd, "POST /topic/create?topic=t", "", "200")
	s.expect(s.nsqd, "POST /channel/create?topic=t&channel=c", "", "200")
	s.expect(s.nsqd, "POST /pub?topic=t&defer=3600000", "m", "200 OK")
	s.expect(s.nsqd, "POST /mpub?topic=t&defer=60000", "m\nn", "200 OK")
	require.Equal(t, 3, s.cluster.Topics("t", "c", false)[0].Channels[0].DeferredCount)
}

// A producer can distinguish "not stored" from "maybe stored".
func TestFailedPuts(t *testing.T) {
	s := newSite(t)
	for _, row := range []struct {
		err  error
		want string
	}{
		{outcome.ErrRolledBack, message(503, "rolled back, not stored")},
		{fmt.Errorf("1 of 2: %w", outcome.ErrNotEnough), message(503, "1 of 2: not enough in-sync replicas, not stored")},
		{outcome.ErrInDoubt, message(504, "in doubt, may be stored")},
		{outcome.ErrExiting, message(503, "EXITING")},
		{outcome.ErrDiskFull, message(503, "disk reserve reached, not stored")},
		{outcome.ErrTopicNotFound, message(404, "TOPIC_NOT_FOUND")},
	} {
		s.cluster.FailPuts(row.err)
		s.expect(s.nsqd, "POST /pub?topic=t", "m", row.want)
		s.cluster.FailPuts(nil)
		s.cluster.FailAdmit(row.err)
		s.expect(s.nsqd, "POST /mpub?topic=t", "m", row.want)
		s.cluster.FailAdmit(nil)
	}
	for _, row := range outcome.Rows() {
		if row.Uses&outcome.OfPuts != 0 {
			s.cluster.FailPuts(fmt.Errorf("wrapped: %w", row.Err))
			want := row.HTTP.Message
			if want == "" {
				want = "wrapped: " + row.Err.Error()
			}
			s.expect(s.nsqd, "POST /pub?topic=t", "m", message(row.HTTP.Status, want))
		}
	}
	s.cluster.FailPuts(outcome.ErrRolledBack)
	require.Equal(t, "1", do(s.nsqd, "POST", "/pub?topic=t", "m").Header.Get("Retry-After"))
}

func TestTopicsAndChannels(t *testing.T) {
	s := newSite(t)
	missing, unknown := message(400, "MISSING_ARG_TOPIC"), message(404, "TOPIC_NOT_FOUND")
	for _, verb := range []string{"delete", "empty", "pause", "unpause"} {
		s.expect(s.nsqd, "POST /topic/"+verb, "", missing)
		s.expect(s.nsqd, "POST /topic/"+verb+"?topic=t", "", unknown)
	}
	s.expect(s.nsqd, "GET /v1/topic/trash?topic=gone", "", `200 {"topics":[{"topic":"gone","id":"0000000000000007","deleted_at_ms":1,"by":"alice","partitions":2,"channels":1,"messages":3,"bytes":4,"remaining_ms":5,"until_ms":6}]}`)
	s.expect(s.nsqd, "GET /v1/topic/trash?topic=other", "", `200 {"topics":[]}`)
	s.expect(s.nsqd, "GET /v1/cluster/limits", "", `200 {"topics":{"used":1,"limit":20},"partitions":{"used":2,"limit":0},"channels_of_a_topic":{"used":3,"limit":4}}`)
	s.expect(s.nsqd, "POST /topic/delete?topic=t$", "", unknown)
	s.expect(s.nsqd, "POST /topic/empty?topic=t$", "", message(400, "INVALID_TOPIC"))
	s.expect(s.nsqd, "POST /topic/create", "", missing)
	s.expect(s.nsqd, "POST /topic/create?topic=t$", "", message(400, "INVALID_TOPIC"))
	for _, verb := range []string{"create", "delete", "empty", "pause", "unpause"} {
		path := "POST /channel/" + verb
		s.expect(s.nsqd, path, "", missing)
		s.expect(s.nsqd, path+"?topic=t$", "", message(400, "INVALID_ARG_TOPIC"))
		s.expect(s.nsqd, path+"?topic=t", "", message(400, "MISSING_ARG_CHANNEL"))
		s.expect(s.nsqd, path+"?topic=t&channel=c$", "", message(400, "INVALID_ARG_CHANNEL"))
		s.expect(s.nsqd, path+"?topic=t&channel=c", "", unknown)
	}
	require.Equal(t, 200, do(s.nsqd, "POST", "/topic/create?topic=t&partitions=3&min_in_sync=2", "").StatusCode)
	ops := s.cluster.Ops()
	require.Equal(t, api.CreateTopic{Topic: "t", Partitions: 3, MinInSync: 2}, ops[len(ops)-1])
	for _, verb := range []string{"delete", "empty", "pause", "unpause"} {
		s.expect(s.nsqd, "POST /channel/"+verb+"?topic=t&channel=c", "", message(404, "CHANNEL_NOT_FOUND"))
	}
	for _, verb := range []string{"create", "create", "empty", "pause", "unpause", "delete"} {
		s.expect(s.nsqd, "POST /channel/"+verb+"?topic=t&channel=c", "", "200")
	}
	for _, verb := range []string{"empty", "pause", "unpause", "delete"} {
		r := do(s.nsqd, "POST", "/topic/"+verb+"?topic=t", "")
		require.Equal(t, 200, r.StatusCode)
		require.Equal(t, "nsq; version=1.0", r.Header.Get("X-NSQ-Content-Type"))
		require.Empty(t, text(t, r))
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	s := newSite(t)
	for _, h := range []http.Handler{s.nsqd, s.lookup} {
		s.expect(h, "GET /nothing", "", message(404, "NOT_FOUND"))
		s.expect(h, "POST /ping", "", message(405, "METHOD_NOT_ALLOWED"))
		r := do(h, http.MethodHead, "/ping", "")
		require.Equal(t, 405, r.StatusCode)
		require.Contains(t, r.Header.Get("Allow"), "GET")
		require.Equal(t, "nsq; version=1.0", r.Header.Get("X-NSQ-Content-Type"))
		require.Equal(t, "application/json; charset=utf-8", r.Header.Get("Content-Type"))
		r = do(h, "GET", "/info/", "")
		require.Equal(t, 301, r.StatusCode)
		require.Equal(t, "/info", r.Header.Get("Location"))
	}
	s.expect(s.nsqd, "GET /pub", "", message(405, "METHOD_NOT_ALLOWED"))
}

func TestPingAndHealth(t *testing.T) {
	s := newSite(t)
	r := do(s.nsqd, "GET", "/ping", "")
	require.Empty(t, r.Header.Get("X-NSQ-Content-Type"))
	require.Equal(t, "OK", text(t, r))
	s.expect(s.nsqd, "GET /healthz", "", "200 OK")
	s.expect(s.nsqd, "GET /readyz", "", "200 OK")
	s.expect(s.nsqd, "GET /metrics", "", "200 metrics")
	for _, path := range []string{"/healthz", "/readyz"} {
		require.Equal(t, 200, do(s.nsqd, http.MethodHead, path, "").StatusCode, path)
	}
	s.cluster.FailHealth(errors.New("never gonna happen"))
	require.Equal(t, 500, do(s.nsqd, http.MethodHead, "/healthz", "").StatusCode)
	require.Equal(t, 503, do(s.nsqd, http.MethodHead, "/readyz", "").StatusCode)
	s.expect(s.nsqd, "GET /ping", "", "500 NOK - never gonna happen")
	s.expect(s.nsqd, "GET /healthz", "", "500 NOK - never gonna happen")
	s.expect(s.nsqd, "GET /readyz", "", "503 never gonna happen")
	s.expect(s.lookup, "GET /ping", "", "200 OK")
}

func TestInfo(t *testing.T) {
	s := newSite(t)
	s.expect(s.nsqd, "GET /info", "", `200 {"version":"1.3.0","broadcast_address":"b","hostname":"h","http_port":2,"tcp_port":1,`+
		`"start_time":1700000000,"max_heartbeat_interval":60000000000,"max_output_buffer_size":65536,`+
		`"max_output_buffer_timeout":30000000000,"max_deflate_level":6,"topology_zone":"","topology_region":"",`+
		`"node_name":"n1","node_id":0,"durability":"sync","lockstep_version":"0.1.0-dev","commit":"abc","feature_level":1}`)
	s.expect(s.lookup, "GET /info", "", `200 {"version":"1.3.0"}`)
}

func TestConfig(t *testing.T) {
	s := newSite(t)
	for _, row := range []struct{ request, body, want string }{
		{"GET /config/data_path", "", "200 /d"},
		{"GET /config/msg_timeout", "", "200 60000000000"},
		{"GET /config/tls_required", "", "200 0"},
		{"GET /config/nothing", "", message(400, "INVALID_OPTION")},
		{"PUT /config/nsqlookupd_tcp_addresses", `["a:1","b:2"]`, `200 ["a:1","b:2"]`},
		{"GET /config/nsqlookupd_tcp_addresses", "", `200 ["a:1","b:2"]`},
		{"PUT /config/nsqlookupd_tcp_addresses", "x", message(400, "INVALID_VALUE")},
		{"PUT /config/log_level", "fatal", "200 fatal"},
		{"PUT /config/log_level", "bad", message(400, "INVALID_VALUE")},
		{"PUT /config/log_level", "", message(413, "INVALID_VALUE")},
		{"PUT /config/log_level", strings.Repeat("x", 101), message(413, "INVALID_VALUE")},
		{"PUT /config/data_path", "x", message(400, "INVALID_OPTION")},
	} {
		s.expect(s.nsqd, row.request, row.body, row.want)
	}
}

func TestStats(t *testing.T) {
	s := newSite(t)
	r := text(t, do(s.nsqd, "GET", "/stats?format=json", ""))
	require.True(t, strings.HasPrefix(r, `{"version":"1.3.0","health":"OK","start_time":1700000000,"topics":[],"memory":{"heap_objects":`), r)
	require.True(t, strings.HasSuffix(r, `,"producers":[]}`), r)
	s.expect(s.nsqd, "GET /stats?format=json&topic=t&include_mem=0&include_clients=false", "",
		`200 {"version":"1.3.0","health":"OK","start_time":1700000000,"topics":null,"producers":null}`)
	sub, err := s.cluster.Subscribe(context.Background(), api.SubscribeRequest{
		Topic: "t", Channel: "c", Client: func() api.ClientStats { return api.ClientStats{ClientID: "me", Version: "V2"} },
	})
	require.NoError(t, err)
	defer sub.Close(false)
	const topic = `"topics":[{"topic_name":"t","channels":[{"channel_name":"c","depth":0,"backend_depth":0,"in_flight_count":0,` +
		`"deferred_count":0,"message_count":0,"requeue_count":0,"timeout_count":0,"client_count":1,"clients":%s,"paused":false,` +
		`"e2e_processing_latency":{"count":0,"percentiles":null}}],"depth":0,"backend_depth":0,"message_count":0,"message_bytes":0,` +
		`"paused":false,"e2e_processing_latency":{"count":0,"percentiles":null}}]`
	r = text(t, do(s.nsqd, "GET", "/stats?format=json&include_clients=false", ""))
	require.Contains(t, r, fmt.Sprintf(topic, "null"))
	r = text(t, do(s.nsqd, "GET", "/stats?format=json", ""))
	require.Contains(t, r, `"clients":[{"client_id":"me","hostname":"","version":"V2",`)
	r = text(t, do(s.nsqd, "GET", "/stats?format=json&channel=c&include_clients=0", ""))
	require.Contains(t, r, fmt.Sprintf(topic, "null"))
	for _, without := range []string{"channel=d", "topic=t&channel=d"} {
		require.Contains(t, text(t, do(s.nsqd, "GET", "/stats?format=json&"+without, "")), `"topics":[],`, without)
	}
	r = text(t, do(s.nsqd, "GET", "/stats", ""))
	for _, part := range []string{"nsqd v1.3.0 (built w/go", "Health: OK", "Memory:", "[t              ] depth: 0", "[V2 ", "Producers: None"} {
		require.Contains(t, r, part)
	}
}

// follower leads no topic.
type follower struct{}

func (follower) Health() error                                { return nil }
func (follower) Topics(string, string, bool) []api.TopicStats { return nil }

// TestStatsOfATopicThatOthersLead: the topic exists, so its list is empty and not null, as a
// stock nsqd answers for a channel that the topic does not have.
func TestStatsOfATopicThatOthersLead(t *testing.T) {
	s := newSite(t)
	require.NoError(t, s.cluster.Do(t.Context(), api.CreateTopic{Topic: "t"}))
	h := httpapi.NSQD(httpapi.Options{InfoReply: httpapi.InfoReply{Version: "1.3.0"}}, httpapi.Backend{Stats: follower{}, Directory: s.cluster.Directory()})
	for query, want := range map[string]string{
		"topic=t&channel=nope": "[]", "topic=t": "[]", "topic=other": "null", "topic=other&channel=nope": "null",
	} {
		require.Contains(t, text(t, do(h, "GET", "/stats?format=json&include_mem=0&"+query, "")), `"topics":`+want+`,`, query)
	}
}

// busy is a broker with one consumer.
type busy struct{}

func (busy) Health() error { return nil }

func (busy) Topics(string, string, bool) []api.TopicStats {
	latency := api.E2ELatency{Count: 3, Percentiles: []api.Percentile{{Quantile: 1, Value: 2.5e9}, {Quantile: 0.99, Value: 398_409_187}, {Quantile: 0.5, Value: 1500}}}
	return []api.TopicStats{{TopicName: "t", Depth: 1, BackendDepth: 1, MessageCount: 3, E2E: latency, Channels: []api.ChannelStats{{
		ChannelName: "c", Paused: true, InFlightCount: 1, Clients: []api.ClientStats{{
			ClientID: "me", Hostname: "host", RemoteAddress: "10.0.0.1:5000", UserAgent: "go-nsq/1.1.0", Version: "V2", State: 3, InFlightCount: 1, ReadyCount: 2,
		}},
	}}}}
}

// TestStatsText: these lines are those of a stock nsqd with the same numbers.
func TestStatsText(t *testing.T) {
	h := httpapi.NSQD(httpapi.Options{InfoReply: httpapi.InfoReply{Version: "1.3.0"}}, httpapi.Backend{Stats: busy{}, Producers: func() []api.ClientStats {
		return []api.ClientStats{{
			Hostname: "host", RemoteAddress: "10.0.0.1:5001", Version: "V2", PubCounts: []api.PubCount{{Topic: "t", Count: 7}},
		}}
	}})
	r := text(t, do(h, "GET", "/stats", ""))
	for _, part := range []string{
		"\n   [t              ] depth: 1     be-depth: 1     msgs: 3        e2e%: 2.5s, 398.4ms, 1.5us\n" +
			"   *P [c                        ] depth: 0     be-depth: 0     inflt: 1    def: 0    re-q: 0     timeout: 0     msgs: 0        e2e%: \n" +
			"        [V2 host:5000 go-nsq/1.1.0] state: 3 inflt: 1    rdy: 2    fin: 0        re-q: 0        msgs: 0        connected: ",
		"\nProducers:\n   [V2 host:5001            ] msgs: 7        topics: t=7 connected: ",
	} {
		require.Contains(t, r, part)
	}
}

// TestStatsOfATopicCountItsPuts: a request for one topic lists a producer of another topic, as
// with a stock nsqd, without the counts of the other topic.
func TestStatsOfATopicCountItsPuts(t *testing.T) {
	counts := []api.PubCount{{Topic: "a", Count: 7}}
	h := httpapi.NSQD(httpapi.Options{InfoReply: httpapi.InfoReply{Version: "1.3.0"}}, httpapi.Backend{Stats: busy{}, Producers: func() []api.ClientStats {
		return []api.ClientStats{{ClientID: "p", PubCounts: counts}}
	}})
	for query, counted := range map[string]bool{"": true, "&topic=a": true, "&topic=b": false} {
		r := text(t, do(h, "GET", "/stats?format=json"+query, ""))
		require.Contains(t, r, `"producers":[{"client_id":"p"`, query)
		require.Equal(t, counted, strings.Contains(r, `"pub_counts":[{"topic":"a","count":7}]`), "%s: %s", query, r)
	}
	require.Len(t, counts, 1, "what was asked for is left alone")
}

func TestLookup(t *testing.T) {
	s := newSite(t)
	const producer = `"remote_address":"127.0.0.1:1","hostname":"host","broadcast_address":"127.0.0.1","tcp_port":4150,"http_port":4151,` +
		`"version":"1.3.0","topology_zone":"","topology_region":""`
	for _, h := range []http.Handler{s.nsqd, s.lookup} {
		s.expect(h, "GET /lookup", "", message(400, "MISSING_ARG_TOPIC"))
		s.expect(h, "GET /lookup?topic=unknown", "", message(404, "TOPIC_NOT_FOUND"))
		s.expect(h, "GET /channels", "", message(400, "MISSING_ARG_TOPIC"))
		s.expect(h, "GET /channels?topic=unknown", "", `200 {"channels":[]}`)
		s.expect(h, "POST /topic/tombstone", "", message(400, "MISSING_ARG_TOPIC"))
		s.expect(h, "POST /topic/tombstone?topic=t", "", message(400, "MISSING_ARG_NODE"))
	}
	s.expect(s.lookup, "GET /topics", "", `200 {"topics":[]}`)
	s.expect(s.lookup, "POST /channel/create?topic=t&channel=c", "", "200")
	for _, h := range []http.Handler{s.nsqd, s.lookup} {
		s.expect(h, "GET /topics", "", `200 {"topics":["t"]}`)
		s.expect(h, "GET /channels?topic=t", "", `200 {"channels":["c"]}`)
		s.expect(h, "GET /lookup?topic=t", "", `200 {"channels":["c"],"producers":[{`+producer+`}]}`)
		s.expect(h, "GET /nodes", "", `200 {"producers":[{`+producer+`,"tombstones":[false],"topics":["t"]}]}`)
		var table map[string][]map[string]any
		require.NoError(t, json.Unmarshal([]byte(text(t, do(h, "GET", "/debug", ""))), &table))
		require.Len(t, table["client::"], 1)
		require.Len(t, table["topic:t:"], 1)
		require.Len(t, table["channel:t:c"], 1)
	}
	s.expect(s.nsqd, "POST /topic/tombstone?topic=t&node=127.0.0.1:4151", "", "200")
	s.expect(s.nsqd, "GET /lookup?topic=t", "", `200 {"channels":["c"],"producers":[]}`)
}

// A deletion sent to the lookup port never costs a message.
func TestLookupNeverDeletes(t *testing.T) {
	s := newSite(t)
	s.expect(s.lookup, "POST /topic/create?topic=t", "", "200")
	s.expect(s.lookup, "POST /topic/create?topic=t$", "", message(400, "INVALID_ARG_TOPIC"))
	s.expect(s.nsqd, "POST /channel/create?topic=t&channel=c", "", "200")
	s.expect(s.lookup, "POST /topic/delete", "", message(400, "MISSING_ARG_TOPIC"))
	s.expect(s.lookup, "POST /topic/delete?topic=t", "", "200")
	s.expect(s.lookup, "POST /topic/delete?topic=unknown", "", "200")
	s.expect(s.lookup, "POST /channel/delete?topic=t&channel=c", "", "200")
	s.expect(s.lookup, "POST /channel/delete?topic=t&channel=d", "", message(404, "CHANNEL_NOT_FOUND"))
	s.expect(s.lookup, "GET /channels?topic=t", "", `200 {"channels":["c"]}`)
}

func TestDebug(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/heap", "/debug/pprof/goroutine", "/debug/pprof/block", "/debug/pprof/threadcreate"} {
		require.Equal(t, 200, do(s.nsqd, "GET", path, "").StatusCode, path)
	}
	require.Equal(t, 200, do(s.lookup, "GET", "/debug/pprof", "").StatusCode)
	require.Equal(t, 404, do(s.nsqd, "GET", "/debug/pprof/trace", "").StatusCode)
	require.Equal(t, 200, do(s.nsqd, "POST", "/debug/freememory", "").StatusCode)
	bad := do(s.nsqd, "PUT", "/debug/setblockrate?rate=x", "")
	require.Equal(t, 400, bad.StatusCode)
	require.Equal(t, "invalid block rate : strconv.Atoi: parsing \"x\": invalid syntax\n", text(t, bad))
	require.Equal(t, 200, do(s.nsqd, "PUT", "/debug/setblockrate?rate=0", "").StatusCode)
}

func TestRequireTLS(t *testing.T) {
	probes := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("OK")) })
	h := httpapi.RequireTLS(probes, 4152)
	require.Equal(t, "OK", text(t, do(h, "GET", "/healthz", "")))
	require.Equal(t, "OK", text(t, do(h, "GET", "/readyz", "")))
	r := do(h, "GET", "/ping", "")
	require.Equal(t, 403, r.StatusCode)
	require.Equal(t, `{"message": "TLS_REQUIRED", "https_port": 4152}`, text(t, r))
}

func TestClusterView(t *testing.T) {
	var v api.ClusterView
	require.NoError(t, json.Unmarshal([]byte(text(t, do(newSite(t).nsqd, "GET", "/v1/cluster", ""))), &v))
	require.Equal(t, "test", v.Cluster)
}
