package protocol

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// Consumers describes the connections here that have subscribed to a channel.
func (h *Handler) Consumers(topic, channel string) []edge.ConsumerStats {
	var out []edge.ConsumerStats
	for _, c := range h.snapshot() {
		if of := c.consumes.Load(); of != nil && of.topic == topic && of.channel == channel {
			x := edge.ConsumerStats{ClientStats: c.stats(), LastActivity: time.Unix(0, c.active.Load())}
			if sub := c.attached.Load(); sub != nil {
				x.Oldest = (*sub).Oldest()
			}
			out = append(out, x)
		}
	}
	return out
}
