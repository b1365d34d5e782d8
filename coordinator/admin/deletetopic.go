package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/txn"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Delete deletes a topic everywhere. It returns when this broker has seen it. The key
// decides which topic has that name, not the catalog.
func (t *Topics) Delete(ctx context.Context, name string) error {
	state, err := t.topic(ctx, name)
	asked := err == nil || errors.Is(err, edge.ErrTopicNotFound)
	if asked && t.catalog.DeletedLately(name, state.DeletedAtMS, deleteRepeat) {
		return nil // the same delete, repeated on another broker
	}
	if err != nil {
		return err
	}
	return t.DeleteAsRead(ctx, name, state)
}

// DeleteAsRead is Delete of a topic as it was read: one that has its name by now is
// another. It writes the tombstone and removes the partition keys in one transaction, then
// the channels' keys.
func (t *Topics) DeleteAsRead(ctx context.Context, name string, state meta.TopicState) error {
	id := state.ID
	for {
		done, err := t.tryDelete(ctx, name, state)
		if err != nil {
			return fmt.Errorf("%w: delete topic %s: %w", edge.ErrUnavailable, name, err)
		}
		if !done {
			state, err = t.topic(ctx, name)
		}
		if err != nil && !errors.Is(err, edge.ErrTopicNotFound) {
			return err
		}
		if done || err != nil || state.ID != id {
			return t.catalog.Await(ctx, func() bool { now, ok := t.catalog.Topic(name); return !ok || now.ID != id })
		}
	}
}

func (t *Topics) tryDelete(ctx context.Context, name string, state meta.TopicState) (bool, error) {
	gone := state
	gone.V, gone.Deleted, gone.DeletedAtMS, gone.FirstChannel = meta.Version, true, time.Now().UnixMilli(), ""
	puts := []meta.Put{
		{Key: t.keys.Topic(name), Value: meta.Encode(gone)},
		{Key: t.keys.Tombstone(state.ID), Value: meta.Encode(gone)},
	}
	for n := range state.Span() {
		puts = append(puts, meta.Put{Key: t.keys.Partition(ident.Partition{Topic: state.ID, Number: uint16(n)}), Delete: true})
	}
	ok, _, err := txn.Try(ctx, t.store, []meta.Compare{{Key: t.keys.Topic(name), Create: -1, Mod: state.Revision}}, puts)
	if err != nil || !ok {
		return false, err
	}
	return true, txn.DeleteAll(ctx, t.store, t.keys.Channels(state.ID))
}
