package replicas

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

func (l *Local) drop(t metadata.TopicState) {
	var gone []ident.Partition
	for n := range t.Span() {
		p := t.Partition(n)
		if _, stored := l.o.Store.Partition(p); stored {
			l.o.Engine.Remove(p)
			delete(l.introduced, p)
			gone = append(gone, p)
		}
	}
	l.o.Group.Go(func(context.Context) { // each takes a few syncs, which the goroutine of the metadata must not wait for
		for _, p := range gone {
			l.trashDeleted(p, "its topic was deleted")
		}
	})
}

// Sweep trashes folders of topics that were deleted while this broker did not watch.
func (l *Local) Sweep(ctx context.Context) {
	l.sweep(ctx, "its topic was deleted while this broker was away", func(p ident.Partition) bool {
		_, ok := l.o.Catalog.Partition(p)
		return !ok
	})
}

// sweep trashes the selected folders whose topics have a tombstone: only that proves a deletion.
func (l *Local) sweep(ctx context.Context, why string, which func(ident.Partition) bool) {
	for _, st := range l.o.Store.Partitions() {
		p := st.ID()
		if !which(p) || ctx.Err() != nil {
			continue
		}
		if _, err := txn.ReadUntil(ctx, l.o.Meta, l.o.Keys.Tombstone(p.Topic)); metadata.Tombstoned(err) {
			l.trashDeleted(p, why)
		}
	}
}

// trashLocked stops a replica and moves its files to the trash.
func (l *Local) trashLocked(p ident.Partition, why string) {
	l.o.Engine.Remove(p)
	log := l.o.Log.WithFields(logrus.Fields{"topic_id": p.Topic, "partition": p.Number})
	if err := l.o.Store.Trash(p); err != nil {
		log.WithError(err).Error("cannot trash a replica")
		return
	}
	log.WithField("reason", why).Info("replica trashed")
}

// trashDeleted trashes a replica of a deleted topic: its id never comes back.
func (l *Local) trashDeleted(p ident.Partition, why string) {
	defer l.lock(p)()
	if _, stored := l.o.Store.Partition(p); stored {
		l.trashLocked(p, why)
	}
}

// moveAway removes a replica that was reassigned. It first stops acknowledging, then rereads the partition's key
// linearizably; if the key no longer lists this broker, it trashes the files. If the replica was moved back, the change
// of the key unmutes it. Its machine stays until the replica is trashed, because only the machine has the end of the
// log.
func (l *Local) moveAway(ctx context.Context, id ident.Partition) {
	muted := l.whileAway(id, func() {
		if p, ok := l.o.Engine.Partition(id); ok {
			p.Mute()
		}
	})
	if !muted {
		return
	}
	e, err := txn.ReadUntil(ctx, l.o.Meta, l.o.Keys.Partition(id))
	if err != nil {
		return
	}
	if s, err := metadata.DecodePartition(e); err != nil || !l.isAway(s) {
		return
	}
	l.whileAway(id, func() { l.trashLocked(id, "it was moved to other brokers") })
}

// whileAway calls do for a partition that was moved to other brokers according to this broker's
// catalog. Nothing opens the partition during the call.
func (l *Local) whileAway(p ident.Partition, do func()) bool {
	defer l.lock(p)()
	s, ok := l.o.Catalog.Partition(p)
	if _, stored := l.o.Store.Partition(p); !ok || !stored || !l.isAway(s) {
		return false
	}
	do()
	return true
}

// isAway reports whether this broker is neither a replica of the partition nor in its in-sync set.
func (l *Local) isAway(s metadata.PartitionState) bool {
	return !slices.Contains(s.Replicas, l.o.Self) &&
		!ident.HasMember(s.ISR, l.o.Self)
}

// Discard trashes the replica that an operator has given up (calls.Discard), unless it is in sync
// according to the partition's key, read linearizably after the replica has stopped acknowledging.
// The next change of the key recreates it.
func (l *Local) Discard(ctx context.Context, req calls.DiscardRequest) error {
	id := req.Partition
	defer l.lock(id)()
	st, stored := l.o.Store.Partition(id)
	if !stored || st.StoreID() != req.Store {
		return fmt.Errorf("%w: the replica on %s was replaced since, read its state again", outcome.ErrInvalid, l.o.Self)
	}
	p, hosted := l.o.Engine.Partition(id)
	if hosted {
		p.Mute()
	}
	refuse := func(err error) error {
		if hosted {
			p.Unmute()
		}
		return err
	}
	e, err := l.o.Meta.Get(ctx, l.o.Keys.Partition(id))
	if err != nil {
		return refuse(fmt.Errorf("%w: %w", outcome.ErrUnavailable, err))
	}
	s, err := metadata.DecodePartition(e)
	if err != nil {
		return refuse(err)
	}
	isMember := ident.HasMember(s.ISR, l.o.Self)
	if isMember || s.Abandoned == 0 {
		return refuse(fmt.Errorf("%w: the replica on %s is in sync, or nothing was recovered", outcome.ErrInvalid, l.o.Self))
	}
	l.trashLocked(id, "an operator gave it up after an unclean recovery")
	return nil
}

// TrashChanged marks the replicas of a topic in the trash, unmarks those of a topic that was
// restored, and trashes the folders of a topic that was permanently removed. In the last two cases the
// topic's key in the trash ends; only a tombstone proves that the topic is permanently deleted.
func (l *Local) TrashChanged(id ident.TopicID) {
	t, hosted := l.o.Catalog.Hosted(id)
	if !hosted {
		l.o.Group.Go(func(ctx context.Context) {
			l.sweep(ctx, "its topic was deleted and its grace is over", func(p ident.Partition) bool { return p.Topic == id })
		})
		return
	}
	_, trashed := l.o.Catalog.Trashed(id)
	for _, p := range l.o.Engine.PartitionsOf(id, t.Span()) {
		p.SetTrashed(trashed)
		p.SetOptions(optionsOf(t))
	}
}
