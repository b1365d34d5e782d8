package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

// traced has one message of topic t.
type traced struct{}

func (traced) Trace(_ context.Context, topic string, id api.MessageID) (api.MessageTrace, error) {
	switch {
	case topic != "t":
		return api.MessageTrace{}, outcome.ErrTopicNotFound
	case string(id[:]) != "0123456789abcdef":
		return api.MessageTrace{}, fmt.Errorf("%w: no message of it", outcome.ErrInvalid)
	}
	return api.MessageTrace{ID: string(id[:]), Topic: topic, State: api.TraceStored, Channels: []api.ChannelTrace{}}, nil
}

func TestTraceIsRead(t *testing.T) {
	cluster := edgetest.New()
	defer cluster.Close()
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Tracer: traced{}})
	for query, want := range map[string]string{
		"topic=t&id=0123456789abcdef": `200 {"id":"0123456789abcdef","topic":"t","partition":0,"sequence":0,"state":"stored","leader":"","epoch":0,"replicas":null,"isr":null,"committed_sequence":0,"channels":[]}`,
		"topic=u&id=0123456789abcdef": message(404, "TOPIC_NOT_FOUND"),
		"topic=t&id=f123456789abcdef": message(400, "invalid argument: no message of it"),
		"topic=t&id=x":                message(400, "INVALID_ARG_ID"),
		"topic=t":                     message(400, "MISSING_ARG_ID"),
		"id=0123456789abcdef":         message(400, "MISSING_ARG_TOPIC"),
	} {
		r := do(h, http.MethodGet, "/v1/trace?"+query, "")
		require.Equal(t, want, fmt.Sprintf("%d %s", r.StatusCode, withoutDetail(text(t, r))), query)
	}
}
