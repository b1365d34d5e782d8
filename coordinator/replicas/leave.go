package replicas

import (
	"context"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

// drop lets go of the replicas of a deleted topic.
func (h *Hosting) drop(t metadata.TopicState) {
	var gone []ident.Partition
	for n := range t.Span() {
		p := ident.Partition{Topic: t.ID, Number: uint16(n)}
		if _, stored := h.o.Store.Partition(p); stored {
			h.o.Engine.Remove(p)
			delete(h.introduced, p)
			gone = append(gone, p)
		}
	}
	h.o.Group.Go(func(context.Context) { // each takes some syncs, and the metadata continues
		for _, p := range gone {
			h.trashDeleted(p, "its topic was deleted")
		}
	})
}

// Sweep trashes folders of topics that were deleted while this broker did not watch. Only
// a tombstone proves a deletion. Sweep returns when ctx ends.
func (h *Hosting) Sweep(ctx context.Context) {
	for _, st := range h.o.Store.Partitions() {
		p := st.ID()
		if _, ok := h.o.Catalog.Partition(p); ok || ctx.Err() != nil {
			continue
		}
		_, err := txn.ReadUntil(ctx, h.o.Meta, h.o.Keys.Tombstone(p.Topic))
		if metadata.Tombstoned(err) {
			h.trashDeleted(p, "its topic was deleted while this broker was away")
		}
	}
}

// trashLocked lets go of a replica.
func (h *Hosting) trashLocked(p ident.Partition, why string) {
	h.o.Engine.Remove(p)
	log := h.o.Log.WithFields(logrus.Fields{"topic_id": p.Topic, "partition": p.Number})
	if err := h.o.Store.Trash(p); err != nil {
		log.WithError(err).Error("cannot trash a replica")
		return
	}
	log.WithField("reason", why).Info("replica trashed")
}

// trashDeleted trashes a replica of a deleted topic: its id never comes back.
func (h *Hosting) trashDeleted(p ident.Partition, why string) {
	defer h.lock(p)()
	if _, stored := h.o.Store.Partition(p); stored {
		h.trashLocked(p, why)
	}
}

// moveAway removes a replica that was reassigned. It first stops acknowledging, then rereads the
// partition's key linearizably; if the key no longer lists this broker, it trashes the files. If the
// replica was moved back, that change unmutes it. Its machine stays until the replica is trashed, because only the machine has
// the end of the log.
func (h *Hosting) moveAway(ctx context.Context, id ident.Partition) {
	muted := h.whileAway(id, func() {
		if p, ok := h.o.Engine.Partition(id); ok {
			p.Mute()
		}
	})
	if !muted {
		return
	}
	e, err := txn.ReadUntil(ctx, h.o.Meta, h.o.Keys.Partition(id))
	if err != nil {
		return
	}
	if s, err := metadata.DecodePartition(e); err != nil || !h.isAway(s) {
		return
	}
	h.whileAway(id, func() { h.trashLocked(id, "it was moved to other brokers") })
}

// whileAway calls do for a partition that, as far as this broker's catalog goes, was moved to
// other brokers. Nothing opens it until then.
func (h *Hosting) whileAway(p ident.Partition, do func()) bool {
	defer h.lock(p)()
	s, ok := h.o.Catalog.Partition(p)
	if _, stored := h.o.Store.Partition(p); !ok || !stored || !h.isAway(s) {
		return false
	}
	do()
	return true
}

// isAway: this broker neither is to hold the partition nor counts for it still.
func (h *Hosting) isAway(s metadata.PartitionState) bool {
	return !slices.Contains(s.Replicas, h.o.Self) &&
		!ident.HasMember(s.ISR, h.o.Self)
}
