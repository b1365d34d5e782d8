package coordinator

import (
	"context"

	"github.com/lockstepmq/lockstep/nsqd"
)

// dropDeserted deletes an #ephemeral topic when its last channel has gone. The
// leader of partition 0 decides for all: consumers are on every partition.
func (b *Broker) dropDeserted(ctx context.Context, h *hosted) {
	if h.id.Number != 0 || !nsqd.IsEphemeral(h.topic) || !h.queue.Deserted() {
		return
	}
	t, ok := b.catalog.topic(h.topic)
	if !ok || t.ID != h.id.Topic {
		return // deleted already
	}
	ctx, cancel := context.WithTimeout(ctx, channelTimeout)
	defer cancel()
	if err := b.deleteTopicOf(ctx, h.topic, t); err != nil {
		b.log.WithError(err).WithFields(fields(h)).Warn("a deserted topic was not deleted, trying again")
	}
}
