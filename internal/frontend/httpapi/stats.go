package httpapi

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
)

// stats: GET /stats?format=&topic=&channel=&include_clients=&include_mem=.
func (a *endpoints) stats(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	reply := a.gather(values)
	if values.Get("format") == "json" {
		return reply, nil
	}
	return reply.Text(), nil
}

func (a *endpoints) gather(values url.Values) Reply {
	topic, channel, clients := values.Get("topic"), values.Get("channel"), flag(values, "include_clients", true)
	reply := Reply{
		Version: a.opts.Version, Health: a.health(), StartTime: a.opts.StartTime.Unix(), Began: a.opts.StartTime,
		Topics: a.b.Stats.Topics(topic, channel, clients),
	}
	unknown := topic != "" && len(reply.Topics) == 0 && !a.hasTopic(topic)
	if channel != "" { // a topic without the channel is not requested
		reply.Topics = slices.DeleteFunc(reply.Topics, func(t api.TopicStats) bool { return len(t.Channels) == 0 })
	}
	reply.Topics = Normal(reply.Topics, clients, unknown)
	if flag(values, "include_mem", true) {
		m := ReadMemory()
		reply.Memory = &m
	}
	if clients {
		reply.Producers = []api.ClientStats{}
		if a.b.Producers != nil {
			reply.Producers = append(reply.Producers, a.b.Producers()...)
			CountsOf(topic, reply.Producers)
		}
	}
	return reply
}

// hasTopic reports whether the topic exists in the cluster. This broker need not lead a
// partition of it.
func (a *endpoints) hasTopic(topic string) bool {
	return a.b.Directory != nil && slices.Contains(a.b.Directory.Topics(), topic)
}
