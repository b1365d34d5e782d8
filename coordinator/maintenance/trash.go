package maintenance

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// earlyPause is the least time between two removals for lack of space: the space of the one before
// is free by then.
const earlyPause = 10 * time.Second

// Trash permanently removes topics when their grace is over by the cluster's clock. The grace begins
// when the controller first sees the topic in the trash. The controller alone calls Collect, in one
// goroutine.
type Trash struct {
	*Broker
	space *Space
	clock *clock
	busy  atomic.Bool
	early time.Time // when a topic went early last
}

// NewTrash makes the state.
func NewTrash(b *Broker, s *Space) *Trash {
	return &Trash{Broker: b, space: s, clock: newClock(b.Meta, b.Keys)}
}

// Collect removes the topics whose grace is over. It does not wait. fence is the controller's.
func (t *Trash) Collect(fence metadata.Compare) {
	list := t.Catalog.Trash()
	if len(list) == 0 || t.busy.Swap(true) {
		return
	}
	t.Group.Go(func(ctx context.Context) {
		defer t.busy.Store(false)
		if err := t.collect(ctx, fence, list); err != nil && ctx.Err() == nil {
			t.Log.WithError(err).WithField("action", "empty_trash").Info("controller action failed, trying again")
		}
	})
}

func (t *Trash) collect(ctx context.Context, fence metadata.Compare, list []metadata.TrashState) error {
	now, err := t.clock.Read(ctx, fence)
	if err != nil {
		return err
	}
	var errs []error
	for _, topic := range list {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case topic.Purging:
			errs = append(errs, t.purge(ctx, fence, topic, "a removal was interrupted"))
		case topic.SeenMS == 0:
			errs = append(errs, t.startGrace(ctx, fence, topic, now))
		case now-topic.SeenMS >= topic.GraceMS:
			errs = append(errs, t.purge(ctx, fence, topic, "its grace is over"))
		}
	}
	return errors.Join(append(errs, t.makeRoom(ctx, fence, list))...)
}

// startGrace begins the grace of a topic.
func (t *Trash) startGrace(ctx context.Context, fence metadata.Compare, topic metadata.TrashState, now int64) error {
	key := t.Keys.Trash(topic.Topic.ID)
	topic.V, topic.SeenMS = metadata.Version, now
	_, err := txn.Apply(ctx, t.Meta, []metadata.Compare{fence, {Key: key, Create: -1, Mod: topic.Revision}}, []metadata.Put{{Key: key, Value: metadata.Encode(topic)}})
	return err
}

func (t *Trash) purge(ctx context.Context, fence metadata.Compare, topic metadata.TrashState, why string) error {
	err := t.Admin.PurgeAsRead(ctx, topic, fence)
	if err == nil {
		t.Log.WithField("topic", topic.Name).WithField("topic_id", topic.Topic.ID).WithField("reason", why).Info("topic removed permanently")
	}
	return err
}

// makeRoom removes the topic that was deleted first and lies on a broker below its disk reserve.
func (t *Trash) makeRoom(ctx context.Context, fence metadata.Compare, list []metadata.TrashState) error {
	if !t.DeleteEarly || !t.early.IsZero() && time.Since(t.early) < earlyPause {
		return nil
	}
	for _, topic := range list {
		if !topic.Purging && t.holdsUp(topic) {
			t.early = time.Now()
			return t.purge(ctx, fence, topic, "a broker that holds it is below its disk reserve (--delete-early)")
		}
	}
	return nil
}

// holdsUp reports whether a broker with a replica of the topic is below its disk reserve.
func (t *Trash) holdsUp(topic metadata.TrashState) bool {
	for n := range topic.Topic.Span() {
		p, _ := t.Catalog.Partition(ident.Partition{Topic: topic.Topic.ID, Number: uint16(n)})
		if slices.ContainsFunc(p.Replicas, t.space.Low) {
			return true
		}
	}
	return false
}
