package stats

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// Reply is GET /stats?format=json, in NSQ's key order.
type Reply struct {
	Version   string             `json:"version"`
	Health    string             `json:"health"`
	StartTime int64              `json:"start_time"`
	Topics    []edge.TopicStats  `json:"topics"`
	Memory    *Memory            `json:"memory,omitempty"`
	Producers []edge.ClientStats `json:"producers"`

	Began time.Time `json:"-"` // StartTime, for Text
}

// CountsOf removes the counts of all other topics if the request names one.
func CountsOf(topic string, producers []edge.ClientStats) {
	for i, p := range producers {
		if topic != "" && len(p.PubCounts) > 0 && p.PubCounts[0].Topic != topic {
			producers[i].PubCounts = nil
		}
	}
}

// Normal sets empty lists as NSQ's tools expect them: no topics are [], but null if the
// requested topic does not exist; clients that were not requested are null.
func Normal(topics []edge.TopicStats, clients, unknown bool) []edge.TopicStats {
	if len(topics) == 0 {
		if unknown {
			return nil
		}
		return []edge.TopicStats{}
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
