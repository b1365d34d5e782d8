package tcp

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

// Consumers describes the connections here that have subscribed to a channel.
func (h *Handler) Consumers(topic, channel string) []api.ConsumerStats {
	var out []api.ConsumerStats
	for _, c := range h.snapshot() {
		if of := c.consumes.Load(); of != nil && of.topic == topic && of.channel == channel {
			x := api.ConsumerStats{ClientStats: c.stats(), LastActivity: time.Unix(0, c.active.Load())}
			if sub := c.attached.Load(); sub != nil {
				x.Oldest = (*sub).Oldest()
			}
			out = append(out, x)
		}
	}
	return out
}
