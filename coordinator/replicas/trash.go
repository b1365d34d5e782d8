package replicas

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TrashChanged hides the replicas of a topic that came into the trash, shows those of one that was
// undeleted, and lets go of those of one that was permanently removed. The end of its key alone does
// not tell these two apart: only a tombstone proves that a topic is permanently deleted.
func (h *Hosting) TrashChanged(id ident.TopicID) {
	t, hosted := h.o.Catalog.Hosted(id)
	if !hosted {
		h.o.Group.Go(func(ctx context.Context) { h.sweepTopic(ctx, id) })
		return
	}
	_, trashed := h.o.Catalog.Trashed(id)
	for _, p := range h.o.Engine.PartitionsOf(id, t.Span()) {
		p.Hide(trashed)
		p.SetLimits(limitsOf(t))
	}
}

// sweepTopic trashes the folders of a topic whose tombstone is there.
func (h *Hosting) sweepTopic(ctx context.Context, id ident.TopicID) {
	var here []ident.Partition
	for _, st := range h.o.Store.Partitions() {
		if st.ID().Topic == id {
			here = append(here, st.ID())
		}
	}
	if len(here) == 0 {
		return
	}
	if _, err := txn.ReadUntil(ctx, h.o.Meta, h.o.Keys.Tombstone(id)); !metadata.Tombstoned(err) {
		return
	}
	for _, p := range here {
		h.trashDeleted(p, "its topic was deleted and its grace is over")
	}
}
