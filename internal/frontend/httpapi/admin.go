package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
)

// createTopic: POST /topic/create?topic= and, beyond NSQ, the arguments of argsNewTopic. A request with such an
// argument, or one that accepts JSON, is answered with the effective settings. NSQ's own request is answered without a
// body.
func (a *endpoints) createTopic(r *http.Request) (any, error) {
	topic, values, err := putTopic(r)
	if err != nil {
		return nil, err
	}
	if err := a.b.Admin.Do(r.Context(), readCreateTopic(topic, values)); err != nil {
		return nil, err
	}
	if len(values) < 2 && !strings.Contains(r.Header.Get("Accept"), "application/json") {
		return nil, nil
	}
	return a.settings(topic), nil
}

// settings are the effective settings of a topic; nil if the topic has been deleted.
func (a *endpoints) settings(topic string) any {
	if a.b.Directory != nil {
		if settings, ok := a.b.Directory.TopicSettings(topic); ok {
			return settings
		}
	}
	return nil
}

// setTopic: POST /v1/topic/set?topic= and the arguments of argsSetTopic.
func (a *endpoints) setTopic(r *http.Request) (any, error) {
	topic, values, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	if err := a.b.Admin.Do(r.Context(), readSetTopic(topic, values)); err != nil {
		return nil, err
	}
	return a.settings(topic), nil
}

// acceptOfNSQ is in the Accept header of the requests of NSQ's own tools. nsqadmin carries an operation out by a
// request to every broker that has the topic.
const acceptOfNSQ = "application/vnd.nsq"

// deleteTopic: POST /topic/delete?topic=[&now=true].
func (a *endpoints) deleteTopic(r *http.Request) (any, error) {
	topic, values, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	return nil, a.b.Admin.Do(r.Context(), readDeleteTopic(topic, values, strings.Contains(r.Header.Get("Accept"), acceptOfNSQ)))
}

// clusterOp: POST /v1/cluster/balance spreads replicas and leaders over the brokers;
// /v1/broker/decommission?node=[&cancel=true] moves all replicas off one of them;
// /v1/broker/drain?node=[&replicas=true][&cancel=true] its leaderships, and its replicas.
func (a *endpoints) clusterOp(read func(url.Values) api.Operation) endpoint {
	return func(r *http.Request) (any, error) {
		values, err := query(r)
		if err != nil {
			return nil, err
		}
		return nil, a.b.Admin.Do(r.Context(), read(values))
	}
}

// topicOp: POST /topic/{pause,unpause}?topic=, and beyond NSQ
// /v1/topic/{undelete,purge}?topic=[&id=],
// /v1/topic/move?topic=&partition=&from=&to= and
// /v1/topic/replication?topic=&replication_factor=&min_in_sync= and
// /v1/topic/partitions?topic=&partitions=[&reorder=true]. As in NSQ the name is not
// checked: an invalid name is a topic that is not found.
func (a *endpoints) topicOp(read func(topic string, values url.Values) api.Operation) endpoint {
	return func(r *http.Request) (any, error) {
		topic, values, err := topicOf(r)
		if err != nil {
			return nil, err
		}
		return nil, a.b.Admin.Do(r.Context(), read(topic, values))
	}
}

// trash: GET /v1/topic/trash[?topic=].
func (a *endpoints) trash(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	topics := a.b.Directory.Trash()
	if name := values.Get("topic"); name != "" {
		topics = slices.DeleteFunc(topics, func(t api.TrashedTopic) bool { return t.Topic != name })
	}
	return trashReply{list(topics)}, nil
}

// limits: GET /v1/cluster/limits.
func (a *endpoints) limits(*http.Request) (any, error) { return a.b.Directory.Limits(), nil }

// emptyTopic: POST /topic/empty?topic=.
func (a *endpoints) emptyTopic(r *http.Request) (any, error) {
	topic, _, err := putTopic(r)
	if err != nil {
		return nil, err
	}
	return nil, a.b.Admin.Do(r.Context(), api.EmptyTopic{Topic: topic})
}

// channelOp: POST /channel/{create,delete,empty,pause,unpause,setorder}?topic=&channel=
// and /v1/channel/policy.
func (a *endpoints) channelOp(read func(names) api.Operation) endpoint {
	return func(r *http.Request) (any, error) {
		n, err := channelNames(r)
		if err != nil {
			return nil, err
		}
		return nil, a.b.Admin.Do(r.Context(), read(n))
	}
}

// names are the topic and the channel of a request, with its other arguments.
type names struct {
	topic, channel string
	values         url.Values
}

// channelNames reads and checks the names of a topic and a channel.
func channelNames(r *http.Request) (n names, err error) {
	if n.values, err = query(r); err != nil {
		return n, err
	}
	if n.topic, err = checked(n.values, "topic"); err != nil {
		return n, err
	}
	n.channel, err = checked(n.values, "channel")
	return n, err
}

// checked returns an argument that must be present and be a valid name.
func checked(values url.Values, name string) (string, error) {
	upper := strings.ToUpper(name)
	v, err := required(values, name, "MISSING_ARG_"+upper)
	if err == nil && !api.ValidName(v) {
		err = explain(http.StatusBadRequest, "INVALID_ARG_"+upper, "%q is no name of a %s: %s", clipped(v), name, invalidName)
	}
	return v, err
}
