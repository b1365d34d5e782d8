package httpapi

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

// The form of GET /stats, as JSON and as text: the keys, their order and the lines of a stock
// nsqd, which tools and scripts parse. It measures the heap for it, too.
//
// It gathers nothing: internal/frontend/httpapi asks the broker.
//
// Invariants: keys of a stock nsqd keep their names, order and types, new ones come behind; where a stock nsqd has
// an empty list or null, so does this one (Normal).
//
// It has no state and no goroutines.

// Reply is GET /stats?format=json, in NSQ's key order.
type Reply struct {
	Version   string            `json:"version"`
	Health    string            `json:"health"`
	StartTime int64             `json:"start_time"`
	Topics    []api.TopicStats  `json:"topics"`
	Memory    *Memory           `json:"memory,omitempty"`
	Producers []api.ClientStats `json:"producers"`

	Began time.Time `json:"-"` // StartTime, for Text
}

// CountsOf removes the counts of all other topics if the request names one.
func CountsOf(topic string, producers []api.ClientStats) {
	for i, p := range producers {
		if topic != "" && len(p.PubCounts) > 0 && p.PubCounts[0].Topic != topic {
			producers[i].PubCounts = nil
		}
	}
}

// Normal sets empty lists as NSQ's tools expect them: no topics are [], but null if the
// requested topic does not exist; clients that were not requested are null.
func Normal(topics []api.TopicStats, clients, unknown bool) []api.TopicStats {
	if len(topics) == 0 {
		if unknown {
			return nil
		}
		return []api.TopicStats{}
	}
	for i := range topics {
		topics[i].Channels = orEmpty(topics[i].Channels)
		for j := range topics[i].Channels {
			ch := &topics[i].Channels[j]
			if clients {
				ch.Clients = orEmpty(ch.Clients)
			} else {
				ch.Clients = nil
			}
		}
	}
	return topics
}

// orEmpty is a list that JSON shows as [].
func orEmpty[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
