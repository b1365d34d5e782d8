package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

// operation is one as operators name it.
type operation struct {
	Verb, Topic, Channel string
	Args                 map[string]string
	Accept               string // of NSQ's tools; "": of others
}

// ofNSQAdmin is the Accept header of nsqadmin.
const ofNSQAdmin = "application/vnd.nsq; version=1.0"

// paths are those of the verbs that are no /topic/ or /channel/ of the same name.
var paths = map[string]string{
	"topic.undelete": "/v1/topic/undelete", "topic.purge": "/v1/topic/purge",
	"topic.move": "/v1/topic/move", "topic.replication": "/v1/topic/replication",
	"broker.decommission": "/v1/broker/decommission", "broker.drain": "/v1/broker/drain", "topic.partitions": "/v1/topic/partitions", "topic.set": "/v1/topic/set", "cluster.balance": "/v1/cluster/balance",
	"channel.seek": "/v1/channel/seek", "channel.policy": "/v1/channel/policy", "channel.order": "/channel/setorder",
}

// recording is a broker that keeps its last error, so that the test does not depend on the text in the HTTP answer.
type recording struct {
	*broker
	err error
}

func (r *recording) Do(ctx context.Context, op api.Operation) error {
	r.err = r.broker.Do(ctx, op)
	return r.err
}

func (r *recording) Seek(ctx context.Context, op api.SeekChannel) (api.SeekResult, error) {
	result, err := r.broker.Seek(ctx, op)
	r.err = err
	return result, err
}

// do carries an operation out on a broker, through its HTTP API: so its arguments are read as they are for operators.
func do(ctx context.Context, b *broker, o operation) error {
	path := paths[o.Verb]
	if path == "" {
		path = "/" + strings.ReplaceAll(o.Verb, ".", "/")
	}
	q := url.Values{}
	for name, value := range o.Args {
		q.Set(name, value)
	}
	if o.Topic != "" {
		q.Set("topic", o.Topic)
	}
	if o.Channel != "" {
		q.Set("channel", o.Channel)
	}
	r := &recording{broker: b}
	answer, request := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, path+"?"+q.Encode(), nil)
	if o.Accept != "" {
		request.Header.Set("Accept", o.Accept)
	}
	httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admin: r, Planner: b, Channels: r}).ServeHTTP(answer, request)
	if r.err == nil && answer.Code != http.StatusOK {
		return errors.Join(outcome.ErrInvalid, fmt.Errorf("%d %s", answer.Code, answer.Body))
	}
	return r.err
}
