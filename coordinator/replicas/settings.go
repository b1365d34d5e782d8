package replicas

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TopicChanged notifies replicas of new limits, and lets go of those that a tombstone names.
func (h *Hosting) TopicChanged(name string) {
	t, ok := h.o.Catalog.Record(name)
	switch {
	case !ok:
	case t.Deleted && t.Trashed: // see TrashChanged
	case t.Deleted:
		h.drop(t)
	default:
		hosted := h.o.Engine.PartitionsOf(t.ID, t.Span())
		for _, p := range hosted {
			p.SetLimits(limitsOf(t))
		}
		if h.o.MayCache && len(hosted) > 0 && !h.allowsCache(t.ID) {
			h.o.Group.Go(func(context.Context) { h.syncFor(name, t.ID) })
		}
	}
}

// limits are those of a topic's partitions; none while the topic is not known here.
func (h *Hosting) limits(id ident.TopicID) engine.Limits {
	if t, ok := h.o.Catalog.Hosted(id); ok {
		return limitsOf(t)
	}
	return engine.Limits{}
}

func limitsOf(t metadata.TopicState) engine.Limits {
	return engine.Limits{Bytes: t.PartitionMaxBytes(), Options: t.Options}
}

// ChannelsChanged hands a topic's policies to the channels hosted here.
func (h *Hosting) ChannelsChanged(t ident.TopicID) {
	state, _ := h.o.Catalog.Hosted(t)
	for _, p := range h.o.Engine.PartitionsOf(state.ID, state.Span()) {
		for _, name := range p.Queue().Channels() {
			if c, ok := p.Queue().Channel(name); ok {
				c.SetPolicy(h.o.Catalog.Policy(t, name))
			}
		}
	}
}
