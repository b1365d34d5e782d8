package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// createTopic: POST /topic/create?topic= and, beyond NSQ, partitions,
// replication_factor, min_in_sync, ordered, retention_time, retention_bytes,
// max_bytes. The last three also change a topic that is there.
func (a *api) createTopic(r *http.Request) (any, error) {
	topic, values, err := putTopic(r)
	if err != nil {
		return nil, err
	}
	return nil, a.b.Admin.Do(r.Context(), edge.AdminOp{Verb: "topic.create", Topic: topic, Args: arguments(values)})
}

// arguments passes on what is not the name of a topic or a channel.
func arguments(values url.Values) map[string]string {
	args := map[string]string{}
	for name, v := range values {
		if name != "topic" && name != "channel" {
			args[name] = v[0]
		}
	}
	return args
}

// clusterOp: POST /v1/cluster/balance spreads replicas and leaders over the brokers,
// /v1/broker/decommission?node=[&cancel=true] frees one of them.
func (a *api) clusterOp(verb string) endpoint {
	return func(r *http.Request) (any, error) {
		values, err := query(r)
		if err != nil {
			return nil, err
		}
		return nil, a.b.Admin.Do(r.Context(), edge.AdminOp{Verb: verb, Args: arguments(values)})
	}
}

// topicOp: POST /topic/{delete,pause,unpause}?topic=, and beyond NSQ
// /v1/topic/move?topic=&partition=&from=&to= and
// /v1/topic/replication?topic=&replication_factor=&min_in_sync=. Like NSQ they do
// not check the name: what does not exist is not found.
func (a *api) topicOp(verb string) endpoint {
	return func(r *http.Request) (any, error) {
		topic, values, err := topicOf(r)
		if err != nil {
			return nil, err
		}
		return nil, a.b.Admin.Do(r.Context(), edge.AdminOp{Verb: verb, Topic: topic, Args: arguments(values)})
	}
}

// emptyTopic: POST /topic/empty?topic=.
func (a *api) emptyTopic(r *http.Request) (any, error) {
	topic, values, err := putTopic(r)
	if err != nil {
		return nil, err
	}
	return nil, a.b.Admin.Do(r.Context(), edge.AdminOp{Verb: "topic.empty", Topic: topic, Args: arguments(values)})
}

// channelOp: POST /channel/{create,delete,empty,pause,unpause}?topic=&channel=.
func (a *api) channelOp(verb string) endpoint {
	return func(r *http.Request) (any, error) {
		op, err := channelArguments(r)
		if err != nil {
			return nil, err
		}
		op.Verb = verb
		return nil, a.b.Admin.Do(r.Context(), op)
	}
}

// channelArguments reads and checks the names of a topic and a channel.
func channelArguments(r *http.Request) (op edge.AdminOp, err error) {
	values, err := query(r)
	if err != nil {
		return op, err
	}
	if op.Topic, err = checked(values, "topic"); err != nil {
		return op, err
	}
	if op.Channel, err = checked(values, "channel"); err != nil {
		return op, err
	}
	op.Args = arguments(values)
	return op, nil
}

// checked returns an argument that must be there and be a name.
func checked(values url.Values, name string) (string, error) {
	upper := strings.ToUpper(name)
	v, err := required(values, name, "MISSING_ARG_"+upper)
	if err == nil && !edge.ValidName(v) {
		err = fail(http.StatusBadRequest, "INVALID_ARG_"+upper)
	}
	return v, err
}
