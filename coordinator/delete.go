package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const deletedTopics = "deleted-topics/"

// tombstoneKey marks a topic id as deleted for good, also after the name was
// taken again: a broker that was away still learns that its folder may go. When
// all brokers have had the time to, the controller removes it (dropMarks).
func (b *Broker) tombstoneKey(id ident.TopicID) string {
	return b.keys.Audit(deletedTopics + id.String())
}

// deleteTopic writes the tombstone and removes the partition keys in one
// transaction, then the channels' keys. It returns when this broker has seen it. The
// key decides which topic has that name, not what this broker has heard of it.
func (b *Broker) deleteTopic(ctx context.Context, name string) error {
	t, err := b.topicKey(ctx, name)
	asked := err == nil || errors.Is(err, edge.ErrTopicNotFound)
	if asked && b.catalog.deletedLately(name, t.DeletedAtMS, deleteRepeat) {
		return nil // the same delete, repeated on another broker
	}
	if err != nil {
		return err
	}
	return b.deleteTopicOf(ctx, name, t)
}

// deleteTopicOf is deleteTopic of a topic as it was read: one that has its name by now
// is another.
func (b *Broker) deleteTopicOf(ctx context.Context, name string, t meta.TopicState) error {
	id := t.ID
	for {
		done, err := b.tryDelete(ctx, name, t)
		if err != nil {
			return fmt.Errorf("%w: delete topic %s: %w", edge.ErrUnavailable, name, err)
		}
		if !done {
			t, err = b.topicKey(ctx, name)
		}
		if err != nil && !errors.Is(err, edge.ErrTopicNotFound) {
			return err
		}
		if done || err != nil || t.ID != id {
			return b.await(ctx, func() bool { now, ok := b.catalog.topic(name); return !ok || now.ID != id })
		}
	}
}

func (b *Broker) tryDelete(ctx context.Context, name string, t meta.TopicState) (bool, error) {
	gone := t
	gone.V, gone.Deleted, gone.DeletedAtMS, gone.FirstChannel = meta.Version, true, time.Now().UnixMilli(), ""
	puts := []meta.Put{
		{Key: b.keys.Topic(name), Value: meta.Encode(gone)},
		{Key: b.tombstoneKey(t.ID), Value: meta.Encode(gone)},
	}
	for n := range t.Partitions {
		puts = append(puts, meta.Put{Key: b.keys.Partition(ident.Partition{Topic: t.ID, Number: uint16(n)}), Delete: true})
	}
	ok, _, err := b.tryTxn(ctx, []meta.Compare{{Key: b.keys.Topic(name), Create: -1, Mod: t.Revision}}, puts)
	if err != nil || !ok {
		return false, err
	}
	return true, b.deleteChannelKeys(ctx, t.ID)
}

// deleteChannelKeys removes what is left of a deleted topic, a transaction's
// worth at a time.
func (b *Broker) deleteChannelKeys(ctx context.Context, id ident.TopicID) error {
	entries, _, err := b.meta.List(ctx, b.keys.Channels(id))
	if err != nil {
		return err
	}
	for len(entries) > 0 {
		n := min(len(entries), meta.MaxTxn)
		var puts []meta.Put
		for _, e := range entries[:n] {
			puts = append(puts, meta.Put{Key: e.Key, Delete: true})
		}
		if _, _, err := b.meta.Txn(ctx, nil, puts); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// sweep trashes folders of topics that were deleted while this broker did not
// look, on the word of their tombstones alone.
func (b *Broker) sweep(ctx context.Context) {
	for _, st := range b.store.Partitions() {
		p := st.ID()
		if _, ok := b.catalog.partition(p); ok || ctx.Err() != nil {
			continue
		}
		_, err := b.readUntil(ctx, b.tombstoneKey(p.Topic))
		if meta.Tombstoned(err) {
			b.trashDeleted(p, "its topic was deleted while this broker was away")
		}
	}
}

// readUntil reads a key until the metadata answers: ErrNotFound, or that ctx ended.
func (b *Broker) readUntil(ctx context.Context, key string) (meta.Entry, error) {
	for {
		get, cancel := context.WithTimeout(ctx, metaTimeout)
		e, err := b.meta.Get(get, key)
		cancel()
		if err == nil || errors.Is(err, meta.ErrNotFound) || !waitFor(ctx, nil, controlEvery) {
			return e, err
		}
	}
}

// keyIsAbsent reads a key linearizably; an error is not absence.
func (b *Broker) keyIsAbsent(ctx context.Context, key string) bool {
	_, err := b.meta.Get(ctx, key)
	return errors.Is(err, meta.ErrNotFound)
}
