package replicas

import (
	"context"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// durabilityEvery is the least time between two looks at the requirements of the topics here.
const durabilityEvery = time.Second

// The durability of a topic is in its key. A broker started with --durability=replicated
// acknowledges from its page cache only while every topic with a replica here allows that;
// else it syncs everything, for all partitions share one journal. A broker started with
// --durability=sync always does.

// requireSync makes the store sync all partitions if the topic of a replica requires syncs. The
// replica's folder exists already, so KeepDurability does not undo it.
func (h *Hosting) requireSync(topic string, id ident.TopicID) error {
	if !h.o.MayCache || h.allowsCache(id) {
		return nil
	}
	h.durability.Lock()
	defer h.durability.Unlock()
	return h.setSync(true, topic)
}

// syncFor is requireSync for a topic that has changed.
func (h *Hosting) syncFor(topic string, id ident.TopicID) {
	if err := h.requireSync(topic, id); err != nil {
		h.o.Log.WithError(err).WithField("topic", topic).Error("cannot sync a topic that requires it")
	}
}

// KeepDurability brings the store to the durability that the topics with a replica here
// require. It returns when ctx ends.
func (h *Hosting) KeepDurability(ctx context.Context) {
	if !h.o.MayCache {
		return
	}
	for {
		changed := h.o.Catalog.Changed()
		if err := h.judgeDurability(); err != nil {
			h.o.Log.WithError(err).Warn("cannot change the durability of the store yet")
		}
		if !concurrency.Sleep(ctx, durabilityEvery) || !concurrency.SleepUntil(ctx, changed, time.Minute) {
			return
		}
	}
}

func (h *Hosting) judgeDurability() error {
	h.durability.Lock()
	defer h.durability.Unlock()
	for _, p := range h.o.Store.Partitions() {
		if !h.allowsCache(p.ID().Topic) {
			return h.setSync(true, p.Topic())
		}
	}
	return h.setSync(false, "")
}

// setSync is called under the lock of the durability.
func (h *Hosting) setSync(on bool, topic string) error {
	if h.o.Store.Synced() == on {
		return nil
	}
	if err := h.o.Store.SetSync(on); err != nil {
		return err
	}
	if on {
		h.o.Log.WithField("topic", topic).Info("durability of all partitions here changed to sync: this topic requires it")
	} else {
		h.o.Log.Info("durability of all partitions here changed to replicated: no topic here requires sync")
	}
	return nil
}

// allowsCache reports whether puts to a topic may be acknowledged from the page cache. A topic
// without a durability follows the broker. A topic that this broker does not have in its
// metadata yet may require syncs: false.
func (h *Hosting) allowsCache(id ident.TopicID) bool {
	t, ok := h.o.Catalog.Hosted(id)
	return ok && t.Durability != metadata.DurabilitySync
}
