package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// A topic that is deleted with a grace keeps its id. The key of its name is marked as deleted, and a key under its id
// holds the topic's state. The keys of its partitions and channels stay. So its replicas keep running without puts and
// deliveries: they catch up, move to other brokers, and elect leaders. An undelete finds them up to date after any
// failure. Closing the replicas was rejected: the in-sync sets in the keys would become stale, and the replicas of a
// broker that is replaced would be lost.

// idle is the client named in the audit and in the trash when an unused topic is deleted.
var idle = api.Requester{Identity: "idle", Action: "idle_after"}

// TrashIdle moves an unused topic into the trash, if it has not changed since it was read. txn.ErrCompare: it has
// changed, this broker is no longer the controller, or there is no grace.
func (t *topics) TrashIdle(ctx context.Context, name string, state metadata.TopicState, fence ...metadata.Compare) error {
	if !t.graced(name) {
		return txn.ErrCompare
	}
	ctx = api.WithRequester(ctx, func() api.Requester { return idle })
	ok, err := t.tryTrash(ctx, name, state, fence...)
	if err == nil && !ok {
		err = txn.ErrCompare
	}
	if err == nil {
		t.quotas.Implied(ctx, fmt.Sprintf("deleted topic %s, which nothing has used for %s", name, time.Duration(state.Options.IdleMS)*time.Millisecond))
	}
	return err
}

func (t *topics) tryTrash(ctx context.Context, name string, state metadata.TopicState, fence ...metadata.Compare) (bool, error) {
	gone := deleted(state)
	gone.Trashed = true
	who := api.RequesterOf(ctx)
	trash := metadata.TrashState{
		V: metadata.Version, Name: name, Topic: state, GraceMS: t.o.Defaults.DeleteGrace.Milliseconds(), By: who.Identity, DeletedAtMS: gone.DeletedAtMS,
	}
	trash.Topic.V, trash.Topic.DeletedAtMS = metadata.Version, 0
	puts := []metadata.Put{
		{Key: t.keys.Topic(name), Value: metadata.Encode(gone)},
		{Key: t.keys.Trash(state.ID), Value: metadata.Encode(trash)},
	}
	ok, _, err := txn.Try(ctx, t.store, append(fence, metadata.Compare{Key: t.keys.Topic(name), Create: -1, Mod: state.Revision}, metadata.Compare{Key: t.keys.Trash(state.ID)}), puts)
	return ok, err
}

// undelete restores a topic from the trash: the topic with the id or, without an id, the topic of the name that was
// deleted last. ErrConflict: another topic has the name, or the topic is being removed permanently. It returns when the
// catalog has the topic.
func (t *topics) undelete(ctx context.Context, op api.UndeleteTopic) error {
	unlock, err := lock(ctx, t.locks, op.Topic)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := t.trashedTopics(ctx, op.Topic, op.ID)
	if err != nil {
		return err
	}
	trash := found[len(found)-1]
	done, err := t.quotas.Topic(ctx, op.Topic, 0) // its partitions count already
	if err != nil {
		return err
	}
	defer done()
	for {
		ok, err := t.tryUndelete(ctx, trash)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if found, err = t.trashedTopics(ctx, op.Topic, trash.Topic.ID); err != nil && !errors.Is(err, outcome.ErrTopicNotFound) {
			return err
		}
		if err != nil { // it has left the trash, perhaps by this undelete, whose answer was lost
			if now, e := t.topic(ctx, op.Topic); e != nil || now.ID != trash.Topic.ID {
				return err
			}
			break
		}
		trash = found[0]
	}
	return t.catalog.Await(ctx, func() bool { now, ok := t.catalog.Topic(op.Topic); return ok && now.ID == trash.Topic.ID })
}

// tryUndelete restores the topic's key and removes the trash key, if neither has changed.
func (t *topics) tryUndelete(ctx context.Context, trash metadata.TrashState) (bool, error) {
	if trash.Purging {
		return false, fmt.Errorf("%w: topic %s is being removed permanently and can no longer be undeleted", outcome.ErrConflict, trash.Name)
	}
	name := metadata.Compare{Key: t.keys.Topic(trash.Name)} // not there
	switch e, err := t.store.Get(ctx, name.Key); {
	case err == nil:
		now, err := metadata.DecodeTopic(e)
		if err != nil {
			return false, err
		}
		if !now.Deleted {
			return false, fmt.Errorf("%w: another topic has the name %s; delete it first, then undelete with id %s", outcome.ErrConflict, trash.Name, trash.Topic.ID)
		}
		name.Create, name.Mod = -1, e.Mod
	case !errors.Is(err, metadata.ErrNotFound):
		return false, fmt.Errorf("%w: undelete topic %s: %w", outcome.ErrUnavailable, trash.Name, err)
	}
	key := t.keys.Trash(trash.Topic.ID)
	ok, _, err := txn.Try(ctx, t.store, []metadata.Compare{name, {Key: key, Create: -1, Mod: trash.Revision}}, []metadata.Put{
		{Key: name.Key, Value: metadata.Encode(trash.Topic)},
		{Key: key, Delete: true},
	})
	if err != nil {
		return false, fmt.Errorf("%w: undelete topic %s: %w", outcome.ErrUnavailable, trash.Name, err)
	}
	return ok, nil
}

// trashedTopics returns the trashed topics named name, oldest deletion first. If id is set, only that one.
// outcome.ErrTopicNotFound: there is none.
func (t *topics) trashedTopics(ctx context.Context, name string, id ident.TopicID) (found []metadata.TrashState, err error) {
	entries, _, err := t.store.List(ctx, t.keys.Trashes())
	if err != nil {
		return nil, fmt.Errorf("%w: read the trash for topic %s: %w", outcome.ErrUnavailable, name, err)
	}
	for _, e := range entries {
		trash, err := metadata.DecodeTrash(e)
		if err != nil {
			return nil, err
		}
		if trash.Name == name && (id == 0 || trash.Topic.ID == id) {
			found = append(found, trash)
		}
	}
	if len(found) == 0 {
		return nil, outcome.ErrTopicNotFound
	}
	slices.SortFunc(found, func(a, b metadata.TrashState) int { return int(a.Created - b.Created) })
	return found, nil
}

// purge permanently removes the trashed topics of a name. With an id it removes the topic of that id only.
func (t *topics) purge(ctx context.Context, op api.PurgeTopic) error {
	found, err := t.trashedTopics(ctx, op.Topic, op.ID)
	if err != nil {
		return err
	}
	for _, trash := range found {
		if err := t.purgeOne(ctx, trash); err != nil {
			return fmt.Errorf("%w: remove topic %s permanently: %w", outcome.ErrUnavailable, op.Topic, err)
		}
	}
	return t.catalog.Await(ctx, func() bool {
		return !slices.ContainsFunc(found, func(s metadata.TrashState) bool { _, there := t.catalog.Trashed(s.Topic.ID); return there })
	})
}

// purgeOne permanently removes a topic in the trash. If the controller changes its key concurrently, the key is read
// again. A missing key means that the topic was removed, or undeleted.
func (t *topics) purgeOne(ctx context.Context, trash metadata.TrashState) error {
	for {
		err := t.PurgeAsRead(ctx, trash)
		if !errors.Is(err, txn.ErrCompare) {
			return err
		}
		found, err := t.trashedTopics(ctx, trash.Name, trash.Topic.ID)
		if errors.Is(err, outcome.ErrTopicNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		trash = found[0]
	}
}

// PurgeAsRead permanently removes a topic in the trash, if it has not changed since it was read. After its first
// transaction the topic cannot be undeleted. Then it removes the keys of its channels, which may exceed a transaction,
// and finally those of its partitions with the tombstone. An interrupted purge is repeated, because the trash key
// remains. Both transactions compare the fence.
func (t *topics) PurgeAsRead(ctx context.Context, trash metadata.TrashState, fence ...metadata.Compare) error {
	key := t.keys.Trash(trash.Topic.ID)
	if !trash.Purging {
		trash.V, trash.Purging = metadata.Version, true
		rev, err := txn.Apply(ctx, t.store, append(fence, metadata.Compare{Key: key, Create: -1, Mod: trash.Revision}), []metadata.Put{{Key: key, Value: metadata.Encode(trash)}})
		if err != nil {
			return err
		}
		trash.Revision = rev
	}
	if err := txn.DeleteAll(ctx, t.store, t.keys.Channels(trash.Topic.ID)); err != nil {
		return err
	}
	puts := append([]metadata.Put{
		{Key: key, Delete: true},
		{Key: t.keys.Tombstone(trash.Topic.ID), Value: metadata.Encode(deleted(trash.Topic))},
	}, t.partitionDeletes(trash.Topic)...)
	_, err := txn.Apply(ctx, t.store, append(fence, metadata.Compare{Key: key, Create: -1, Mod: trash.Revision}), puts)
	return err
}

// delete deletes a topic everywhere. It returns when the catalog has the deletion. The key, not the catalog, determines
// which topic has that name. With a grace (--delete-grace) the topic stays in the trash for that time, unless op.Now is
// set.
func (t *topics) delete(ctx context.Context, op api.DeleteTopic) error {
	name := op.Topic
	state, err := t.topic(ctx, name)
	gone := errors.Is(err, outcome.ErrTopicNotFound)
	switch again := t.catalog.DeletedLately(name, state.DeletedAtMS, deleteRepeat); {
	case gone && again:
		return nil // the same delete, repeated on another broker
	case err != nil:
		return err
	case again && op.BrokerByBroker:
		t.o.Log.WithField("topic", name).Warnf("topic not deleted: it was deleted less than %s ago, and a put has created it again since. The request counts as a repeat of that deletion, because nsqadmin asks every broker. To delete the new topic, repeat the request here or use nsqctl topic delete", deleteRepeat)
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
func (t *topics) graced(name string) bool {
	return t.o.Defaults.DeleteGrace > 0 && !nsqd.IsEphemeral(name)
}

// DeleteAsRead permanently deletes a topic, but no later topic of its name. It writes the tombstone and removes the
// partition keys in one transaction, then the channels' keys.
func (t *topics) DeleteAsRead(ctx context.Context, name string, state metadata.TopicState) error {
	return t.deleteBy(ctx, name, state, t.tryDelete)
}

// deleteBy repeats a deletion until its outcome is known. try reports whether it has happened.
func (t *topics) deleteBy(ctx context.Context, name string, state metadata.TopicState, try func(context.Context, string, metadata.TopicState) (bool, error)) error {
	id := state.ID
	for {
		done, err := try(ctx, name, state)
		if err != nil {
			return fmt.Errorf("%w: delete topic %s: %w", outcome.ErrUnavailable, name, err)
		}
		seen := state.Revision + 1 // the lowest revision that the deletion can have
		if !done {
			state, err = t.topic(ctx, name)
			seen = state.Revision // 0: the key is gone
		}
		if err != nil && !errors.Is(err, outcome.ErrTopicNotFound) {
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

func (t *topics) tryDelete(ctx context.Context, name string, state metadata.TopicState) (bool, error) {
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

func (t *topics) partitionDeletes(state metadata.TopicState) (puts []metadata.Put) {
	for n := range state.Span() {
		puts = append(puts, metadata.Put{Key: t.keys.Partition(state.Partition(n)), Delete: true})
	}
	return puts
}
