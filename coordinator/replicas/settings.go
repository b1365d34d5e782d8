package replicas

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TopicChanged notifies replicas of new limits, and trashes those of a topic with a tombstone.
func (l *Local) TopicChanged(name string) {
	t, ok := l.o.Catalog.Record(name)
	switch {
	case !ok:
	case t.Deleted && t.Trashed: // see TrashChanged
	case t.Deleted:
		l.drop(t)
	default:
		hosted := l.o.Engine.PartitionsOf(t.ID, t.Span())
		for _, p := range hosted {
			p.SetLimits(limitsOf(t))
		}
		if l.o.MayCache && len(hosted) > 0 && !l.allowsCache(t.ID) {
			l.o.Group.Go(func(context.Context) {
				if err := l.requireSync(name, t.ID); err != nil {
					l.o.Log.WithError(err).WithField("topic", name).Error("cannot sync a topic that requires it")
				}
			})
		}
	}
}

// limits are those of a topic's partitions; none while the topic is not known here.
func (l *Local) limits(id ident.TopicID) engine.Limits {
	if t, ok := l.o.Catalog.Hosted(id); ok {
		return limitsOf(t)
	}
	return engine.Limits{}
}

func limitsOf(t metadata.TopicState) engine.Limits {
	return engine.Limits{Bytes: t.PartitionMaxBytes(), Options: t.Options}
}

// ChannelsChanged passes a topic's policies to the channels here.
func (l *Local) ChannelsChanged(t ident.TopicID) {
	state, _ := l.o.Catalog.Hosted(t)
	for _, p := range l.o.Engine.PartitionsOf(state.ID, state.Span()) {
		for _, name := range p.Queue().Channels() {
			if c, ok := p.Queue().Channel(name); ok {
				c.SetPolicy(l.o.Catalog.Policy(t, name))
			}
		}
	}
}
