package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// records reads and changes the keys of topics and channels in the store. After a change it waits until the catalog has
// it.
type records struct {
	store   metadata.Store
	keys    metadata.Keys
	catalog *catalog.Catalog
}

// requireTopic refuses a topic that does not exist. If the catalog does not have the topic, the store is read, because
// another broker may just have created it. "" means the whole cluster.
func (r *records) requireTopic(ctx context.Context, name string) error {
	if _, ok := r.catalog.Topic(name); ok || name == "" {
		return nil
	}
	if _, err := r.topic(ctx, name); err != nil {
		return err
	}
	return r.catalog.Await(ctx, func() bool { _, ok := r.catalog.Topic(name); return ok })
}

func checkPartition(t metadata.TopicState, n int) error {
	if n < 0 || n >= t.Partitions {
		return fmt.Errorf("%w: partition must be 0 to %d", outcome.ErrInvalid, t.Partitions-1)
	}
	return nil
}

func (r *records) topic(ctx context.Context, name string) (metadata.TopicState, error) {
	e, err := r.store.Get(ctx, r.keys.Topic(name))
	if errors.Is(err, metadata.ErrNotFound) {
		return metadata.TopicState{}, outcome.ErrTopicNotFound
	}
	if err != nil {
		return metadata.TopicState{}, fmt.Errorf("%w: read topic %s: %w", outcome.ErrUnavailable, name, err)
	}
	t, err := metadata.DecodeTopic(e)
	if err != nil || t.Deleted {
		return t, outcome.ErrTopicNotFound
	}
	return t, nil
}

// changeTopic rewrites a topic's key, and returns when the catalog has the new value.
func (r *records) changeTopic(ctx context.Context, name string, change func(metadata.TopicState) (metadata.TopicState, error)) error {
	t, err := r.rewriteTopic(ctx, name, change)
	if err != nil {
		return err
	}
	return r.awaitTopic(ctx, name, t.Revision)
}

// rewriteTopic applies change to a topic's key, writes the result and returns it. change is called again if another
// writer came first. An unchanged key is not written.
func (r *records) rewriteTopic(ctx context.Context, name string, change func(metadata.TopicState) (metadata.TopicState, error)) (metadata.TopicState, error) {
	for {
		old, err := r.topic(ctx, name)
		if err != nil {
			return old, err
		}
		t, err := change(old)
		if err != nil || t == old {
			return old, err
		}
		t.V = metadata.Version
		key := r.keys.Topic(name)
		t.Revision, err = txn.Apply(ctx, r.store, []metadata.Compare{{Key: key, Create: -1, Mod: old.Revision}}, []metadata.Put{{Key: key, Value: metadata.Encode(t)}})
		if err == nil {
			return t, nil
		}
		if !errors.Is(err, txn.ErrCompare) {
			return old, fmt.Errorf("%w: change of %s: %w", outcome.ErrUnavailable, name, err)
		}
	}
}

// awaitTopic waits until the catalog has a topic's key at this revision or later, or until the key is gone.
func (r *records) awaitTopic(ctx context.Context, name string, revision int64) error {
	return r.catalog.Await(ctx, func() bool { t, ok := r.catalog.Record(name); return !ok || t.Revision >= revision })
}

// learnChannel waits until the catalog has a channel that exists in the store. If there is none, it returns nil.
func (r *records) learnChannel(ctx context.Context, topic, channel string) error {
	t, ok := r.catalog.Topic(topic)
	known := func() bool { _, ok := r.catalog.Channels(t.ID)[channel]; return ok }
	if !ok || known() {
		return nil
	}
	_, _, there, err := r.channel(ctx, t.ID, channel)
	if err != nil || !there {
		return err
	}
	return r.catalog.Await(ctx, known)
}

// channel reads a channel's key; false: there is none.
func (r *records) channel(ctx context.Context, t ident.TopicID, channel string) (metadata.Entry, metadata.ChannelState, bool, error) {
	e, err := r.store.Get(ctx, r.keys.Channel(t, channel))
	if errors.Is(err, metadata.ErrNotFound) {
		return e, metadata.ChannelState{}, false, nil
	}
	if err != nil {
		return e, metadata.ChannelState{}, false, fmt.Errorf("%w: read channel %s: %w", outcome.ErrUnavailable, channel, err)
	}
	c, err := metadata.DecodeChannel(e)
	return e, c, true, err
}

// editChannel changes a channel's key and returns the new value.
func (r *records) editChannel(ctx context.Context, t ident.TopicID, channel string, edit func(*metadata.ChannelState) error) (metadata.ChannelState, error) {
	for {
		e, before, there, err := r.channel(ctx, t, channel)
		if err != nil {
			return before, err
		}
		if !there {
			return before, outcome.ErrChannelNotFound
		}
		c := before
		if err := edit(&c); err != nil || c == before {
			return c, err
		}
		c.V = metadata.Version
		c.Revision, err = txn.Apply(ctx, r.store, []metadata.Compare{{Key: e.Key, Create: -1, Mod: e.Mod}}, []metadata.Put{{Key: e.Key, Value: metadata.Encode(c)}})
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, txn.ErrCompare) {
			return c, fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
		}
	}
}

// awaitChannel waits until the catalog has a channel's key at this revision or later, or until the key is gone.
func (r *records) awaitChannel(ctx context.Context, t ident.TopicID, channel string, revision int64) error {
	return r.catalog.Await(ctx, func() bool { c, ok := r.catalog.Channels(t)[channel]; return !ok || c.Revision >= revision })
}
