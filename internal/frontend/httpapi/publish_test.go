package httpapi_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	settings "github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// --max-body-size may be up to 256 MiB, but a batch is at most 64 MiB: a larger one could not
// be read again.
func TestMultiPutLargerThanABatch(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	cluster := edgetest.New()
	t.Cleanup(cluster.Close)
	h := httpapi.NSQD(httpapi.Options{InfoReply: httpapi.InfoReply{Version: "1.3.0"}, Messages: settings.Messages{MaxMsgSize: 32 << 20, MaxBodySize: 128 << 20, MaxDeferTimeout: time.Hour}},
		httpapi.Backend{Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: log})
	body := binary.BigEndian.AppendUint32(make([]byte, 0, 91<<20), 3)
	for range 3 {
		body = binary.BigEndian.AppendUint32(body, 30<<20)
		body = append(body, make([]byte, 30<<20)...)
	}
	require.Greater(t, len(body), queue.MaxBatchBytes)
	r := do(h, "POST", "/mpub?topic=t&binary=true", string(body))
	require.Equal(t, 413, r.StatusCode, text(t, r))
}

// withBodies returns the handler of a broker whose bodies of puts share 1 MiB.
func withBodies(t *testing.T, maxMsgSize int64) (http.Handler, *limits.Budget) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	cluster := edgetest.New()
	t.Cleanup(cluster.Close)
	bodies := limits.New(1 << 20)
	return httpapi.NSQD(httpapi.Options{InfoReply: httpapi.InfoReply{Version: "1.3.0"}, Messages: settings.Messages{MaxMsgSize: maxMsgSize, MaxBodySize: 1 << 20, MaxDeferTimeout: time.Hour}},
		httpapi.Backend{Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: log, Memory: bodies}), bodies
}

// TestLargeBodiesShareMemory: a body that finds no memory is refused definitely, also one that does
// not announce its size.
func TestLargeBodiesShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, bodies := withBodies(t, 1<<20)
		large := strings.Repeat("m", 600<<10)
		for _, path := range []string{"/pub?topic=t", "/mpub?topic=t"} {
			require.Equal(t, 200, do(h, "POST", path, large).StatusCode)
		}
		require.Zero(t, bodies.Used())
		other := bodies.Share("other")
		require.True(t, other.Reserve(t.Context(), limits.Bodies, 600<<10))
		var waits sync.WaitGroup
		for _, path := range []string{"/pub?topic=t", "/mpub?topic=t"} {
			waits.Go(func() {
				r := do(h, "POST", path, large)
				assert.Equal(t, 503, r.StatusCode)
				assert.Equal(t, "1", r.Header.Get("Retry-After"))
				assert.Contains(t, text(t, r), "too many puts waiting, not stored")
			})
			waits.Go(func() {
				w := httptest.NewRecorder()
				r := httptest.NewRequest("POST", path, io.MultiReader(strings.NewReader("of unknown size")))
				h.ServeHTTP(w, r)
				assert.EqualValues(t, -1, r.ContentLength)
				assert.Equal(t, 503, w.Code)
			})
		}
		began := time.Now()
		require.Equal(t, 200, do(h, "POST", "/pub?topic=t", "small").StatusCode)
		require.Zero(t, time.Since(began))
		waits.Wait()
		require.Equal(t, limits.MaxWait, time.Since(began))
		other.Release(limits.Bodies, 600<<10)
		require.Zero(t, bodies.Used())
	})
}

// TestRefusedPutsHoldNoMemory: when a put is refused, the memory of its body is free again.
func TestRefusedPutsHoldNoMemory(t *testing.T) {
	h, bodies := withBodies(t, 200<<10)
	require.Equal(t, 200, do(h, "POST", "/topic/create?topic=t", "").StatusCode)
	const large = 100 << 10
	for _, x := range []struct {
		path, header, value string
		bytes               int
		refusal             string
	}{
		{"/pub?topic=t", "X-Nsq-Message-Id", "", large, "INVALID_MESSAGE_ID"},
		{"/pub?topic=t", "X-Nsq-Headers", "none", large, "INVALID_HEADERS"},
		{"/pub?topic=t&defer=no", "", "", large, "INVALID_DEFER"},
		{"/pub?topic=t", "", "", 300 << 10, "MSG_TOO_BIG"},
		{"/mpub?topic=t", "X-Nsq-Message-Id", "", large, "INVALID_MESSAGE_ID"},
		{"/mpub?topic=t", "X-Nsq-Headers", "none", large, "INVALID_HEADERS"},
		{"/mpub?topic=t&defer=no", "", "", large, "INVALID_DEFER"},
		{"/mpub?topic=t", "", "", 300 << 10, "MSG_TOO_BIG"},
		{"/mpub?topic=t&binary=true", "", "", large, "BAD_BODY"},
		{"/v1/topic/append?topic=t&partition=0", "", "", large, "the stream is damaged"},
	} {
		r := httptest.NewRequest(http.MethodPost, x.path, strings.NewReader(strings.Repeat("m", x.bytes)))
		if x.header != "" {
			r.Header.Set(x.header, x.value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Contains(t, w.Body.String(), x.refusal, x.path)
		require.Zero(t, bodies.Used(), "%s: %s", x.path, x.refusal)
	}
}

// TestMessageThatIsCutOff: a binary multi-put whose last message is incomplete stores nothing, in all its forms.
func TestMessageThatIsCutOff(t *testing.T) {
	a := newSite(t)
	sub, err := a.cluster.Subscribe(t.Context(), api.SubscribeRequest{Topic: "t", Channel: "ch", Partition: -1, MsgTimeoutMS: 60_000})
	require.NoError(t, err)
	for _, x := range []struct{ path, header string }{{"", ""}, {"&defer=1", ""}, {"&ttl=5m", ""}, {"", `{"a":"b"}`}} {
		r := httptest.NewRequest(http.MethodPost, "/mpub?topic=t&binary=true"+x.path, strings.NewReader("\x00\x00\x00\x02\x00\x00\x00\x01m\x00\x00\x00\x03n"))
		if x.header != "" {
			r.Header.Set("X-Nsq-Headers", x.header)
		}
		w := httptest.NewRecorder()
		a.nsqd.ServeHTTP(w, r)
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code, w.Body)
		require.Empty(t, sub.Pull(10, nil))
	}
}

// TestPutHeaders: X-Nsq-Headers is one JSON object of strings. The messages of the put have it, with
// the life that ?ttl= limits.
func TestPutHeaders(t *testing.T) {
	a := newSite(t)
	put := func(path, body string, headers ...string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		for _, h := range headers {
			r.Header.Add("X-Nsq-Headers", h)
		}
		w := httptest.NewRecorder()
		a.nsqd.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	sub, err := a.cluster.Subscribe(t.Context(), api.SubscribeRequest{Topic: "t", Channel: "ch", Partition: -1, MsgTimeoutMS: 60_000})
	require.NoError(t, err)
	for _, x := range []struct{ path, body, given, stored string }{
		{"/pub?topic=t", "m", `{"Region":"eü<&>","a":""}`, `{"Region":"eü<&>","a":""}`},
		{"/pub?topic=t", "m", ` { "a" : "b" } `, `{"a":"b"}`},
		{"/pub?topic=t&ttl=5ms", "m", `{"a":"b"}`, `{"##ttl_ms":5,"a":"b"}`},
		{"/pub?topic=t&ttl=5ms", "m", `{}`, `{"##ttl_ms":5}`},
		{"/pub?topic=t", "m", `{}`, ""},
		{"/pub?topic=t", "m", `{"##client_dispatch_tag":"blue"}`, `{"##client_dispatch_tag":"blue"}`},
		{"/mpub?topic=t", "m\nn", `{"a":"b"}`, `{"a":"b"}`},
		{"/mpub?topic=t&binary=true", "\x00\x00\x00\x01\x00\x00\x00\x01m", `{"a":"b"}`, `{"a":"b"}`},
	} {
		code, text := put(x.path, x.body, x.given)
		require.Equal(t, "200 OK", fmt.Sprint(code, " ", text), x.given)
		got := sub.Pull(10, nil)
		require.Len(t, got, 1+strings.Count(x.body, "\n"))
		for _, d := range got {
			require.Equal(t, x.stored, string(d.Message.Header))
			require.NoError(t, sub.Finish(d.ID))
		}
	}
	for _, bad := range []string{
		"a=b", "[]", "null", `{"a":1}`, `{"a":null}`, `{"a":{}}`, `{"":"x"}`, `{"##ttl_ms":"1"}`, `{"##only_channel":"c"}`, `{"##epoch":"1"}`,
		`{"a":"b"} {}`, "{\"a\":\"\xff\"}", `{"` + strings.Repeat("n", 129) + `":"x"}`, `{"a\u0000":"x"}`,
	} {
		code, text := put("/pub?topic=t", "m", bad)
		require.Equal(t, 400, code, bad)
		require.Contains(t, text, "INVALID_HEADERS", bad)
		code, _ = put("/mpub?topic=t", "m", bad)
		require.Equal(t, 400, code, bad)
	}
	code, text := put("/pub?topic=t", "m", `{"a":"b"}`, `{"c":"d"}`)
	require.Equal(t, 400, code)
	require.Contains(t, text, "INVALID_HEADERS")
	code, text = put("/pub?topic=t", "m", `{"a":"`+strings.Repeat("x", 65536)+`"}`)
	require.Equal(t, 413, code)
	require.Contains(t, text, "HEADERS_TOO_BIG")
	require.Empty(t, sub.Pull(10, nil), "a refused put stores nothing")
}
