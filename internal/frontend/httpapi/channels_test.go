package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

// askedChannels records its calls.
type askedChannels struct {
	ids    []api.MessageID
	limit  int
	seek   api.SeekChannel
	finish api.FinishElsewhere
}

func (a *askedChannels) Seek(_ context.Context, op api.SeekChannel) (api.SeekResult, error) {
	a.seek = op
	one, two := uint64(1), uint64(2)
	r := api.SeekResult{DryRun: op.DryRun, Skips: &two, Repeats: &one, Partitions: []api.SeekMove{{Partition: 3, Skips: &two, Repeats: &one}}}
	if op.To == "lost" {
		r.Skips, r.Repeats, r.Partitions = nil, nil, []api.SeekMove{{}}
	}
	return r, api.Validate(op)
}

func (a *askedChannels) ChannelViews(topic string) ([]api.ChannelView, error) {
	if topic != "t" {
		return nil, outcome.ErrTopicNotFound
	}
	return []api.ChannelView{{Channel: "c", Ordered: true}}, nil
}

func (a *askedChannels) Policy(topic, _ string) (api.ChannelPolicy, error) {
	if topic != "t" {
		return api.ChannelPolicy{}, outcome.ErrTopicNotFound
	}
	return api.ChannelPolicy{MaxAttempts: 3, DeadLetterTopic: "dead"}, nil
}

func (a *askedChannels) Deferred(_ context.Context, _, _ string, limit int) ([]api.DeferredMessage, error) {
	a.limit = limit
	return []api.DeferredMessage{{ID: "0123456789abcdef", DeadlineNS: 5}}, nil
}

func (a *askedChannels) CancelDeferred(_ context.Context, _, _ string, ids []api.MessageID) (int, error) {
	a.ids = ids
	return len(ids), nil
}

func (a *askedChannels) FinishElsewhere(_ context.Context, op api.FinishElsewhere) (api.FinishedElsewhere, error) {
	a.finish = op
	return api.FinishedElsewhere{Finished: 3, Kept: 1}, nil
}

func (a *askedChannels) Positions(_ context.Context, topic string) ([]api.ChannelPosition, error) {
	if topic != "t" {
		return nil, outcome.ErrTopicNotFound
	}
	return []api.ChannelPosition{{
		Channel: "c", Confirmed: 7, Settled: []api.SequenceSpan{{From: 9, To: 11}},
		Deferred: []msgstream.DeferredPosition{{Sequence: 3, DeadlineNS: 5, Attempts: 2}}, Consumers: 1,
	}}, nil
}

func (a *askedChannels) Redrive(_ context.Context, _, _ string, limit int) (int, error) {
	if a.limit = limit; limit == 7 {
		return 3, outcome.ErrNoLeader
	}
	return limit, nil
}

func TestChannelEndpoints(t *testing.T) {
	s := newSite(t)
	asked := &askedChannels{}
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admin: s.cluster, Directory: s.cluster.Directory(), Channels: asked, Stats: s.cluster, Publisher: s.cluster})
	const where = "?topic=t&channel=c"
	for _, x := range []struct{ request, want string }{
		{"GET /v1/channel/deferred" + where, `200 {"messages":[{"id":"0123456789abcdef","partition":0,"deadline":5,"attempts":0}]}`},
		{"GET /v1/channel/deferred?topic=t", message(400, "MISSING_ARG_CHANNEL")},
		{"GET /v1/channel/deferred" + where + "&limit=0", message(400, "INVALID_ARG_LIMIT")},
		{"POST /v1/channel/deferred/cancel" + where, message(400, "MISSING_ARG_ID")},
		{"POST /v1/channel/deferred/cancel" + where + "&id=1", message(400, "INVALID_ARG_ID")},
		{"POST /v1/channel/deferred/cancel" + where + "&id=0123456789abcdef&id=fedcba9876543210", `200 {"cancelled":2}`},
		{"POST /v1/channel/redrive" + where, `200 {"redriven":1000}`},
		{"POST /v1/channel/redrive" + where + "&limit=7", message(503, "3 were redriven, then: no leader, not stored")},
		{"POST /channel/setorder" + where + "&order=true", message(404, "TOPIC_NOT_FOUND")},
		{"GET /v1/topic/positions?topic=t", `200 {"positions":[{"channel":"c","partition":0,"confirmed":7,"settled":[{"from":9,"to":11}],` +
			`"deferred":[{"sequence":3,"deadline":5,"attempts":2}],"consumers":1}]}`},
		{"GET /v1/topic/positions?topic=x", message(404, "TOPIC_NOT_FOUND")},
		{"GET /v1/topic/channels?topic=t", `200 {"channels":[{"channel":"c","ordered":true,"paused":false}]}`},
		{"GET /v1/topic/channels?topic=x", message(404, "TOPIC_NOT_FOUND")},
		{"GET /v1/topic/channels", message(400, "MISSING_ARG_TOPIC")},
		{"GET /v1/channel/policy?topic=x&channel=c", message(404, "TOPIC_NOT_FOUND")},
		{"GET /v1/channel/policy" + where, `200 {"max_attempts":3,"dead_letter_topic":"dead","retry_backoff_ms":0,` +
			`"retry_backoff_factor":0,"retry_backoff_max_ms":0,"retry_backoff_jitter":0}`},
	} {
		s.expect(h, x.request, "", x.want)
	}
	require.Equal(t, 7, asked.limit)
	require.Equal(t, "fedcba9876543210", string(asked.ids[1][:]))
}

// The time to live of a put is in the message's header.
func TestPutWithTTL(t *testing.T) {
	s := newSite(t)
	s.expect(s.nsqd, "POST /pub?topic=t&ttl=1500ms", "m", "200 OK")
	sub, err := s.cluster.Subscribe(t.Context(), api.SubscribeRequest{Topic: "t", Channel: "c", Partition: -1})
	require.NoError(t, err)
	got := sub.Pull(1, nil)
	require.Len(t, got, 1)
	require.JSONEq(t, `{"##ttl_ms":1500}`, string(got[0].Message.Header))
	sub.Close(true)
	require.Equal(t, http.StatusBadRequest, do(s.nsqd, "POST", "/pub?topic=t&ttl=-1", "m").StatusCode)
}

// TestMultiPutsHaveALife: ?ttl= limits the life of every message of /mpub, in each of its
// forms. The time begins when the message is due.
func TestMultiPutsHaveALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		binary := "\x00\x00\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x01b"
		for _, x := range []struct{ target, body string }{
			{"/mpub?topic=t&ttl=1500ms", "a\nb\n"},
			{"/mpub?topic=t&ttl=1.5s", "a\nb\n"},
			{"/mpub?topic=t&ttl=1500ms&binary=true", binary},
			{"/mpub?topic=t&ttl=1500ms&binary=true&defer=1", binary},
		} {
			s := newSite(t)
			sub, err := s.cluster.Subscribe(t.Context(), api.SubscribeRequest{Topic: "t", Channel: "c", Partition: -1, MsgTimeoutMS: 60_000})
			require.NoError(t, err)
			s.expect(s.nsqd, "POST "+x.target, x.body, "200 OK")
			time.Sleep(time.Millisecond)
			synctest.Wait()
			got := sub.Pull(9, nil)
			require.Len(t, got, 2)
			for _, d := range got {
				require.JSONEq(t, `{"##ttl_ms":1500}`, string(d.Message.Header), x.target)
			}
		}
		s := newSite(t)
		for _, bad := range []string{"", "0", "-1", "x", "500us", "-5s", "4398046511105ms", "1500", "60"} {
			s.expect(s.nsqd, "POST /mpub?topic=t&ttl="+bad, "a\n", message(400, "INVALID_TTL"))
		}
		require.Empty(t, s.cluster.Directory().Topics())
	})
}

// TestCreatedTopicsAreAnswered: the answer has the settings of the topic, unless the request is
// NSQ's own.
func TestCreatedTopicsAreAnswered(t *testing.T) {
	s := newSite(t)
	const settings = `{"topic":"t","partitions":1,"replication_factor":1,"min_in_sync":1,"ordered":false,"retention_ms":0,"retention_bytes":0,"max_bytes":0,"message_ttl_ms":0,"max_put_rate":0,"max_put_bytes_rate":0,"dedupe_window_ms":0,"dedupe":"","idle_after_ms":0,"channel_idle_after_ms":0}`
	s.expect(s.nsqd, "POST /topic/create?topic=t", "", "200")
	s.expect(s.nsqd, "POST /topic/create?topic=t&partitions=1", "", "200 "+settings)
	r := httptest.NewRequest("POST", "/topic/create?topic=t", nil)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	s.nsqd.ServeHTTP(w, r)
	require.Equal(t, settings, w.Body.String())
	s.expect(s.lookup, "POST /topic/create?topic=t&partitions=1", "", "200")
}

// conflicting answers that the topic exists with other settings.
type conflicting struct{}

func (conflicting) Do(context.Context, api.Operation) error {
	return fmt.Errorf("%w: topic t has partitions=1, not partitions=2", outcome.ErrConflict)
}

func TestConflictsAreToldApart(t *testing.T) {
	s := newSite(t)
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admin: conflicting{}})
	s.expect(h, "POST /topic/create?topic=t&partitions=2", "", message(409, "it exists with other settings: topic t has partitions=1, not partitions=2"))
}

// TestSeekIsReadAndAnswered: the arguments of a seek, and an answer that writes unknown numbers as null.
func TestSeekIsReadAndAnswered(t *testing.T) {
	s := newSite(t)
	asked := &askedChannels{}
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admin: s.cluster, Directory: s.cluster.Directory(), Channels: asked, Stats: s.cluster, Publisher: s.cluster})
	const where = "/v1/channel/seek?topic=t&channel=c"
	for request, want := range map[string]api.SeekChannel{
		where + "&to=7":             {Topic: "t", Channel: "c", To: "7", Partition: -1},
		where + "&to=7&partition=3": {Topic: "t", Channel: "c", To: "7", Partition: 3},
		where + "&to=7&dry_run=1":   {Topic: "t", Channel: "c", To: "7", Partition: -1, DryRun: true},
	} {
		answer := do(h, "POST", request, "")
		require.Equal(t, 200, answer.StatusCode)
		require.Equal(t, want, asked.seek)
		require.JSONEq(t, fmt.Sprintf(`{"dry_run":%v,"skips":2,"repeats":1,"partitions":[{"partition":3,"from":null,"to":null,"skips":2,"repeats":1}]}`, want.DryRun), text(t, answer))
	}
	require.JSONEq(t, `{"dry_run":false,"skips":null,"repeats":null,"partitions":[{"partition":0,"from":null,"to":null,"skips":null,"repeats":null}]}`,
		text(t, do(h, "POST", where+"&to=lost", "")), "unknown is not 0")
	for request, want := range map[string]string{
		where:                           "to must be earliest, latest, a time or a sequence",
		where + "&to=7&partition=x":     "partition must be a number",
		where + "&to=7&partition=65536": "partition must be a number",
		where + "&to=7&dry_run=maybe":   "dry_run",
	} {
		answer := do(h, "POST", request, "")
		require.Equal(t, 400, answer.StatusCode, request)
		require.Contains(t, text(t, answer), want)
	}
}

// TestFinishElsewhereIsReadAndAnswered: the topic, the partition and the spans are required.
func TestFinishElsewhereIsReadAndAnswered(t *testing.T) {
	s := newSite(t)
	asked := &askedChannels{}
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admin: s.cluster, Directory: s.cluster.Directory(), Channels: asked, Stats: s.cluster, Publisher: s.cluster})
	const where = "/v1/channel/finish?topic=t&channel=c"
	answer := do(h, "POST", where+"&topic_id=0000000000000007&partition=3&span=0-4&span=6-9", "")
	require.Equal(t, 200, answer.StatusCode)
	require.JSONEq(t, `{"finished":3,"kept":1,"stays":false}`, text(t, answer))
	require.Equal(t, api.FinishElsewhere{Topic: "t", Channel: "c", TopicID: 7, Partition: 3, Spans: []api.SequenceSpan{{From: 0, To: 4}, {From: 6, To: 9}}}, asked.finish)
	for request, want := range map[string]string{
		where + "&topic_id=0000000000000007&span=0-4":                 "INVALID_ARG_PARTITION",
		where + "&partition=0&span=0-4":                               "INVALID_ARG_TOPIC_ID",
		where + "&topic_id=0000000000000007&partition=0&span=4-4":     "span must be FROM-END",
		where + "&topic_id=0000000000000007&partition=0&span=4":       "span must be FROM-END",
		where + "&topic_id=0000000000000007&partition=0&span=-1-4":    "span must be FROM-END",
		where + "&topic_id=0000000000000007&partition=0":              "span must be FROM-END",
		where + "&topic_id=0000000000000007&partition=0&spans=0-4":    "spans",
		where + "&topic_id=0000000000000007&partition=65536&span=0-4": "INVALID_ARG_PARTITION",
	} {
		answer := do(h, "POST", request, "")
		require.Equal(t, 400, answer.StatusCode, request)
		require.Contains(t, text(t, answer), want)
	}
}
