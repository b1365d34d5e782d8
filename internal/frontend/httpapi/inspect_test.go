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
	"github.com/lockstepmq/lockstep/internal/ident"
)

// replicas returns preset answers and records its last call.
type replicas struct {
	err   error
	asked string
}

func (r *replicas) Peek(_ context.Context, q api.PeekRequest) (api.Peeked, error) {
	r.asked = fmt.Sprintf("%+v", q)
	return api.Peeked{End: 1, Next: 1, Messages: []api.PeekedMessage{{ID: "00", Body: "<m0>"}}}, r.err
}

func (r *replicas) Digest(q api.DigestRequest) (api.Digest, error) {
	r.asked = fmt.Sprintf("%+v", q)
	return api.Digest{Node: "n1", Role: "leader", Batches: []api.BatchDigest{}}, r.err
}

func (r *replicas) Remains(_ context.Context, topic string, partition int) (api.Remains, error) {
	r.asked = fmt.Sprintf("remains %s/%d", topic, partition)
	return api.Remains{Topic: topic, Partition: partition, InSync: []api.Member{}, Replicas: []api.Holding{}}, r.err
}

func (r *replicas) Recover(_ context.Context, topic string, partition int, from ident.Node) (api.Remains, error) {
	r.asked = fmt.Sprintf("recover %s/%d from %s", topic, partition, from)
	return api.Remains{Topic: topic, Partition: partition, InSync: []api.Member{}, Replicas: []api.Holding{}}, r.err
}

func (r *replicas) Discard(_ context.Context, topic string, partition int, on ident.Node) error {
	r.asked = fmt.Sprintf("discard %s/%d on %s", topic, partition, on)
	return r.err
}

// oneTopic is a directory with the topic t.
type oneTopic struct{ api.Directory }

func (oneTopic) TopicSettings(topic string) (api.TopicSettings, bool) {
	return api.TopicSettings{Topic: topic, ID: 7}, topic == "t"
}

// TestReplicaEndpoints: these endpoints answer with a line of JSON, without the header
// of NSQ's API.
func TestReplicaEndpoints(t *testing.T) {
	r := &replicas{}
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Inspector: r, Recovery: r, Directory: oneTopic{}})
	const remains = `{"topic":"t","partition":3,"leader":"","epoch":0,"in_sync":[],"replicas":[]}`
	for _, c := range []struct {
		method, target, asked string
		err                   error
		status                int
		want                  string
	}{
		{"GET", "/v1/topic/peek?topic=t", "{Topic:t Partition:0 From: Limit:100 Node: Uncommitted:false Leader:false}", nil, 200,
			`{"start":0,"end":1,"next":1,"messages":[{"id":"00","partition":0,"sequence":0,"timestamp":0,"body":"\u003cm0\u003e"}]}`},
		{"GET", "/v1/topic/peek?topic=t&partition=2&from=7&limit=5", "{Topic:t Partition:2 From:7 Limit:5 Node: Uncommitted:false Leader:false}", fmt.Errorf("%w: no replica", outcome.ErrTopicNotFound), 404, `{"message":"topic not found: no replica"}`},
		{"GET", "/v1/topic/peek?topic=t&node=n2&uncommitted=true", "{Topic:t Partition:0 From: Limit:100 Node:n2 Uncommitted:true Leader:false}", outcome.ErrUnavailable, 503, `{"message":"the cluster cannot do this now"}`},
		{"GET", "/v1/topic/peek?topic=t&topic_id=0000000000000007", "{Topic:t Partition:0 From: Limit:100 Node: Uncommitted:false Leader:false}", outcome.ErrInvalid, 400, `{"message":"invalid argument"}`},
		{"GET", "/v1/topic/peek?topic=t&topic_id=0000000000000008", "", nil, 404, `{"message":"topic not found"}`},
		{"GET", "/v1/topic/peek?topic=gone&topic_id=0000000000000007", "", nil, 404, `{"message":"topic not found"}`},
		{"GET", "/v1/topic/peek?topic=t&topic_id=x", "", nil, 400, `{"message":"INVALID_REQUEST","detail":"topic_id must be an id as /v1/cluster shows it"}`},
		{"GET", "/v1/topic/peek?topic=t&node=n9", "{Topic:t Partition:0 From: Limit:100 Node:n9 Uncommitted:false Leader:false}", fmt.Errorf("%w: n9", outcome.ErrBrokerNotFound), 404, `{"message":"broker not found: n9"}`},
		{"GET", "/v1/topic/peek?topic=t&uncommitted=true", "", nil, 400, `{"message":"uncommitted=true requires node=: each replica has its own end"}`},
		{"GET", "/v1/topic/peek?topic=t&uncommitted=perhaps&node=n1", "", nil, 400, `{"message":"INVALID_REQUEST","detail":"partition and limit must be numbers, uncommitted and leader must be true or false"}`},
		{"GET", "/v1/topic/peek?limit=x", "", nil, 400, `{"message":"INVALID_REQUEST","detail":"partition and limit must be numbers, uncommitted and leader must be true or false"}`},
		{"GET", "/v1/topic/peek?topic=t", "{Topic:t Partition:0 From: Limit:100 Node: Uncommitted:false Leader:false}", outcome.ErrInvalid, 400, `{"message":"invalid argument"}`},
		{"GET", "/v1/topic/peek?topic=t", "{Topic:t Partition:0 From: Limit:100 Node: Uncommitted:false Leader:false}", context.Canceled, 500, `{"message":"context canceled"}`},
		{"GET", "/v1/partition/digest?topic=t&partition=1&from=9", "{Topic:t Partition:1 From:9}", nil, 200,
			`{"node":"n1","store":"0000000000000000","role":"leader","epoch":0,"start":0,"committed":0,"end":0,"next":0,"batches":[],"committed_sequence":0,"end_sequence":0}`},
		{"GET", "/v1/partition/digest?topic=t", "", nil, 400, `{"message":"INVALID_REQUEST","detail":"partition and from must be numbers"}`},
		{"GET", "/v1/partition/digest?topic=t&partition=1", "{Topic:t Partition:1 From:0}", outcome.ErrTopicNotFound, 404, `{"message":"TOPIC_NOT_FOUND","detail":"the cluster has no topic of this name"}`},
		{"GET", "/v1/topic/recover?topic=t&partition=3", "remains t/3", nil, 200, remains},
		{"GET", "/v1/topic/recover?topic=t&partition=x", "", nil, 400, `{"message":"INVALID_PARTITION","detail":"partition must be a number from 0 to 65535"}`},
		{"POST", "/v1/topic/recover?topic=t&partition=3&from=n2", "", nil, 400,
			`{"message":"invalid argument: confirm must be t/3: messages that were acknowledged are lost"}`},
		{"POST", "/v1/topic/recover?topic=t&partition=3&from=n2&confirm=t/3", "recover t/3 from n2", nil, 200, remains},
		{"POST", "/v1/topic/recover?topic=t&partition=3&discard=n2", "", nil, 400,
			`{"message":"invalid argument: confirm must be t/3: messages that were acknowledged are lost"}`},
		{"POST", "/v1/topic/recover?topic=t&partition=3&discard=n2&confirm=t/3", "discard t/3 on n2", outcome.ErrInvalid, 400, `{"message":"invalid argument"}`},
		{"POST", "/v1/topic/recover?topic=t&partition=3&discard=n2&confirm=t/3", "remains t/3", nil, 200, remains},
		{"POST", "/v1/topic/recover?topic=t&partition=3&from=n2&confirm=t/3", "recover t/3 from n2", outcome.ErrUnavailable, 503, `{"message":"the cluster cannot do this now"}`},
	} {
		r.asked, r.err = "", c.err
		answer := do(h, c.method, c.target, "")
		require.Equal(t, c.status, answer.StatusCode, c.target)
		require.Equal(t, c.want+"\n", text(t, answer), c.target)
		require.Equal(t, c.asked, r.asked, c.target)
		require.Equal(t, "application/json; charset=utf-8", answer.Header.Get("Content-Type"))
		require.NotContains(t, answer.Header, http.CanonicalHeaderKey("X-NSQ-Content-Type"))
	}
}
