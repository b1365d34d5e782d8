package httpapi

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// statsReply is GET /stats?format=json, in NSQ's key order.
type statsReply struct {
	Version   string             `json:"version"`
	Health    string             `json:"health"`
	StartTime int64              `json:"start_time"`
	Topics    []edge.TopicStats  `json:"topics"`
	Memory    *Memory            `json:"memory,omitempty"`
	Producers []edge.ClientStats `json:"producers"`
}

// stats: GET /stats?format=&topic=&channel=&include_clients=&include_mem=.
func (a *api) stats(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	reply := a.gather(values)
	if values.Get("format") == "json" {
		return reply, nil
	}
	return a.statsText(reply), nil
}

func (a *api) gather(values url.Values) statsReply {
	topic, channel, clients := values.Get("topic"), values.Get("channel"), flag(values, "include_clients", true)
	reply := statsReply{
		Version: a.opts.Version, Health: a.health(), StartTime: a.opts.StartTime.Unix(),
		Topics: a.b.Stats.Topics(topic, channel, clients),
	}
	unknown := topic != "" && len(reply.Topics) == 0 && !a.hasTopic(topic)
	if channel != "" { // a topic without the channel is not requested
		reply.Topics = slices.DeleteFunc(reply.Topics, func(t edge.TopicStats) bool { return len(t.Channels) == 0 })
	}
	reply.Topics = normal(reply.Topics, clients, unknown)
	if flag(values, "include_mem", true) {
		m := ReadMemory()
		reply.Memory = &m
	}
	if clients {
		reply.Producers = []edge.ClientStats{}
		if a.b.Producers != nil {
			reply.Producers = append(reply.Producers, a.b.Producers()...)
			countsOf(topic, reply.Producers)
		}
	}
	return reply
}

// hasTopic reports whether the topic exists in the cluster. This broker need not lead a
// partition of it.
func (a *api) hasTopic(topic string) bool {
	return a.b.Directory != nil && slices.Contains(a.b.Directory.Topics(), topic)
}

// countsOf removes the counts of all other topics if the request names one.
func countsOf(topic string, producers []edge.ClientStats) {
	for i, p := range producers {
		if topic != "" && len(p.PubCounts) > 0 && p.PubCounts[0].Topic != topic {
			producers[i].PubCounts = nil
		}
	}
}

// normal sets empty lists as NSQ's tools expect them: no topics are [], but null if the
// requested topic does not exist; clients that were not requested are null.
func normal(topics []edge.TopicStats, clients, unknown bool) []edge.TopicStats {
	if len(topics) == 0 {
		if unknown {
			return nil
		}
		return []edge.TopicStats{}
	}
	for i := range topics {
		topics[i].Channels = list(topics[i].Channels)
		for j := range topics[i].Channels {
			ch := &topics[i].Channels[j]
			if clients {
				ch.Clients = list(ch.Clients)
			} else {
				ch.Clients = nil
			}
		}
	}
	return topics
}
