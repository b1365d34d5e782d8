package coordinator

import (
	"context"
	"errors"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/nsqd"
)

// dropDeserted deletes an #ephemeral topic when its last channel has gone. The
// leader of partition 0 decides for all: consumers are on every partition.
func (b *Broker) dropDeserted(ctx context.Context, h *hosted) {
	if h.id.Number != 0 || !nsqd.IsEphemeral(h.topic) || !h.queue.Deserted() {
		return
	}
	if t, ok := b.catalog.topic(h.topic); !ok || t.ID != h.id.Topic {
		return // deleted already
	}
	ctx, cancel := context.WithTimeout(ctx, channelTimeout)
	defer cancel()
	if err := b.deleteTopic(ctx, h.topic); err != nil && !errors.Is(err, edge.ErrTopicNotFound) {
		b.log.WithError(err).WithFields(fields(h)).Warn("a deserted topic was not deleted, trying again")
	}
}
