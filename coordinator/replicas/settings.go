package replicas

import (
	"context"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// durabilityEvery is the least time between two checks of the topics' requirements.
const durabilityEvery = time.Second

// The durability of a topic is in its key. A broker started with --durability=replicated acknowledges from its page
// cache only while every topic with a replica here allows that. Otherwise it syncs everything, because all partitions
// share one journal. A broker started with --durability=sync always syncs everything.

// requireSync makes the store sync all partitions if the topic of a replica requires syncs. The replica's folder
// already exists, so RunDurability does not undo it.
func (l *Local) requireSync(topic string, id ident.TopicID) error {
	if !l.o.MayCache || l.allowsCache(id) {
		return nil
	}
	l.durability.Lock()
	defer l.durability.Unlock()
	return l.setSync(true, topic)
}

// RunDurability brings the store to the durability that the topics with a replica here
// require. It returns when ctx ends.
func (l *Local) RunDurability(ctx context.Context) {
	if !l.o.MayCache {
		return
	}
	for {
		changed := l.o.Catalog.Changed()
		if err := l.applyDurability(); err != nil {
			l.o.Log.WithError(err).Warn("cannot change the durability of the store yet")
		}
		if !concurrency.Sleep(ctx, durabilityEvery) || !concurrency.SleepUntil(ctx, changed, time.Minute) {
			return
		}
	}
}

func (l *Local) applyDurability() error {
	l.durability.Lock()
	defer l.durability.Unlock()
	for _, p := range l.o.Store.Partitions() {
		if !l.allowsCache(p.ID().Topic) {
			return l.setSync(true, p.Topic())
		}
	}
	return l.setSync(false, "")
}

// setSync is called with the durability lock.
func (l *Local) setSync(on bool, topic string) error {
	if l.o.Store.Synced() == on {
		return nil
	}
	if err := l.o.Store.SetSync(on); err != nil {
		return err
	}
	if on {
		l.o.Log.WithField("topic", topic).Info("durability of all partitions here changed to sync: this topic requires it")
	} else {
		l.o.Log.Info("durability of all partitions here changed to replicated: no topic here requires sync")
	}
	return nil
}

// allowsCache reports whether puts to a topic may be acknowledged from the page cache. A topic
// without a durability follows the broker. It is false for a topic that this broker does not have in
// its metadata yet, because the topic may require syncs.
func (l *Local) allowsCache(id ident.TopicID) bool {
	t, ok := l.o.Catalog.Hosted(id)
	return ok && t.Durability != metadata.DurabilitySync
}

// TopicChanged notifies replicas of new options, and trashes those of a topic with a tombstone.
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
			p.SetOptions(optionsOf(t))
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

func optionsOf(t metadata.TopicState) engine.TopicOptions {
	return engine.TopicOptions{Topic: t.Options, PartitionMaxBytes: t.PartitionMaxBytes()}
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
