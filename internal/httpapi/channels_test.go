package httpapi_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/httpapi"
)

// askedChannels remembers what it was asked.
type askedChannels struct {
	ids   []edge.MessageID
	limit int
}

func (a *askedChannels) Policy(topic, _ string) (edge.ChannelPolicy, error) {
	if topic != "t" {
		return edge.ChannelPolicy{}, edge.ErrTopicNotFound
	}
	return edge.ChannelPolicy{MaxAttempts: 3, DeadLetterTopic: "dead"}, nil
}

func (a *askedChannels) Deferred(_ context.Context, _, _ string, limit int) ([]edge.DeferredMessage, error) {
	a.limit = limit
	return []edge.DeferredMessage{{ID: "0123456789abcdef", DeadlineNS: 5}}, nil
}

func (a *askedChannels) CancelDeferred(_ context.Context, _, _ string, ids []edge.MessageID) (int, error) {
	a.ids = ids
	return len(ids), nil
}

func (a *askedChannels) Redrive(_ context.Context, _, _ string, limit int) (int, error) {
	if a.limit = limit; limit == 7 {
		return 3, edge.ErrNoLeader
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
		{"POST /v1/channel/redrive" + where + "&limit=7", message(503, "3 were moved, then: no leader, not stored")},
		{"POST /channel/setorder" + where + "&order=true", message(404, "TOPIC_NOT_FOUND")},
		{"GET /v1/channel/policy?topic=x&channel=c", message(404, "TOPIC_NOT_FOUND")},
		{"GET /v1/channel/policy" + where, `200 {"max_attempts":3,"dead_letter_topic":"dead","retry_backoff_ms":0,` +
			`"retry_backoff_factor":0,"retry_backoff_max_ms":0,"retry_backoff_jitter":0}`},
	} {
		s.expect(h, x.request, "", x.want)
	}
	require.Equal(t, 7, asked.limit)
	require.Equal(t, "fedcba9876543210", string(asked.ids[1][:]))
}

// A put with a life of its own carries it in its header.
func TestPutWithTTL(t *testing.T) {
	s := newSite(t)
	s.expect(s.nsqd, "POST /pub?topic=t&ttl=1500", "m", "200 OK")
	sub, err := s.cluster.Subscribe(t.Context(), edge.SubscribeRequest{Topic: "t", Channel: "c", Partition: -1})
	require.NoError(t, err)
	got := sub.Pull(1, nil)
	require.Len(t, got, 1)
	require.JSONEq(t, `{"##ttl_ms":1500}`, string(got[0].Message.Header))
	sub.Close(true)
	require.Equal(t, http.StatusBadRequest, do(s.nsqd, "POST", "/pub?topic=t&ttl=-1", "m").StatusCode)
}
