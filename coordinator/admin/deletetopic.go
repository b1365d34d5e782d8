package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// delete deletes a topic everywhere. It returns when the catalog has the deletion. The key decides which topic has that
// name, not the catalog. With a grace (--delete-grace) the topic stays in the trash for that time, unless op.Now is
// set.
func (t *Topics) delete(ctx context.Context, op api.DeleteTopic) error {
	name := op.Topic
	state, err := t.topic(ctx, name)
	gone := errors.Is(err, api.ErrTopicNotFound)
	switch again := t.catalog.DeletedLately(name, state.DeletedAtMS, deleteRepeat); {
	case gone && again:
		return nil // the same delete, repeated on another broker
	case err != nil:
		return err
	case again && op.BrokerByBroker:
		t.log.WithField("topic", name).Warnf("topic not deleted: it was deleted less than %s ago, and a put has created it again since. The request counts as a repeat of that deletion, because nsqadmin asks every broker. To delete the new topic, repeat the request here or use nsqctl topic delete", deleteRepeat)
		return nil
	}
	if op.Now || !t.graced(name) {
		return t.DeleteAsRead(ctx, name, state)
	}
	return t.deleteBy(ctx, name, state, func(ctx context.Context, name string, s metadata.TopicState) (bool, error) {
		return t.tryTrash(ctx, name, s)
	})
}

// graced reports whether a deleted topic goes to the trash. An #ephemeral topic does not.
func (t *Topics) graced(name string) bool {
	return t.defaults.DeleteGrace > 0 && !nsqd.IsEphemeral(name)
}

// DeleteAsRead permanently deletes a topic, but no later topic of its name. It writes the tombstone and removes the
// partition keys in one transaction, then the channels' keys.
func (t *Topics) DeleteAsRead(ctx context.Context, name string, state metadata.TopicState) error {
	return t.deleteBy(ctx, name, state, t.tryDelete)
}

// deleteBy repeats a deletion until its outcome is known. try reports whether it has happened.
func (t *Topics) deleteBy(ctx context.Context, name string, state metadata.TopicState, try func(context.Context, string, metadata.TopicState) (bool, error)) error {
	id := state.ID
	for {
		done, err := try(ctx, name, state)
		if err != nil {
			return fmt.Errorf("%w: delete topic %s: %w", api.ErrUnavailable, name, err)
		}
		seen := state.Revision + 1 // of the deletion, at least
		if !done {
			state, err = t.topic(ctx, name)
			seen = state.Revision // 0: the key is gone
		}
		if err != nil && !errors.Is(err, api.ErrTopicNotFound) {
			return err
		}
		if done || err != nil || state.ID != id {
			return t.catalog.Await(ctx, func() bool {
				now, ok := t.catalog.Topic(name)
				return !ok || now.ID != id || seen > 0 && now.Revision >= seen // another broker has undeleted it
			})
		}
	}
}

func (t *Topics) tryDelete(ctx context.Context, name string, state metadata.TopicState) (bool, error) {
	gone := deleted(state)
	puts := append([]metadata.Put{
		{Key: t.keys.Topic(name), Value: metadata.Encode(gone)},
		{Key: t.keys.Tombstone(state.ID), Value: metadata.Encode(gone)},
	}, t.partitionDeletes(state)...)
	ok, _, err := txn.Try(ctx, t.store, []metadata.Compare{{Key: t.keys.Topic(name), Create: -1, Mod: state.Revision}}, puts)
	if err != nil || !ok {
		return false, err
	}
	return true, txn.DeleteAll(ctx, t.store, t.keys.Channels(state.ID))
}

// deleted is the value of the key of a deleted topic.
func deleted(state metadata.TopicState) metadata.TopicState {
	state.V, state.Deleted, state.DeletedAtMS, state.FirstChannel = metadata.Version, true, time.Now().UnixMilli(), ""
	return state
}

func (t *Topics) partitionDeletes(state metadata.TopicState) (puts []metadata.Put) {
	for n := range state.Span() {
		puts = append(puts, metadata.Put{Key: t.keys.Partition(ident.Partition{Topic: state.ID, Number: uint16(n)}), Delete: true})
	}
	return puts
}
