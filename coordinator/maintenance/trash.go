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

// earlyPause is the least time between two removals for lack of space: by then the first has freed its space.
const earlyPause = 10 * time.Second

// trash permanently removes topics when their grace is over by the cluster's clock. The grace begins when the controller first
// sees the topic in the trash.
type trash struct {
	*Broker
	space *Space
	clock *clock
	busy  atomic.Bool
	early time.Time // when the last early removal happened
}

// collect removes the topics whose grace is over. It does not block.
func (t *trash) collect(fence metadata.Compare) {
	list := t.Catalog.Trash()
	if len(list) == 0 || t.busy.Swap(true) {
		return
	}
	t.Group.Go(func(ctx context.Context) {
		defer t.busy.Store(false)
		if err := t.remove(ctx, fence, list); err != nil && ctx.Err() == nil {
			t.Log.WithError(err).WithField("action", "empty_trash").Info("controller action failed, trying again")
		}
	})
}

func (t *trash) remove(ctx context.Context, fence metadata.Compare, list []metadata.TrashState) error {
	now, err := t.clock.read(ctx, fence)
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

func (t *trash) startGrace(ctx context.Context, fence metadata.Compare, topic metadata.TrashState, now int64) error {
	key := t.Keys.Trash(topic.Topic.ID)
	topic.V, topic.SeenMS = metadata.Version, now
	_, err := txn.Apply(ctx, t.Meta, []metadata.Compare{fence, {Key: key, Create: -1, Mod: topic.Revision}}, []metadata.Put{{Key: key, Value: metadata.Encode(topic)}})
	return err
}

func (t *trash) purge(ctx context.Context, fence metadata.Compare, topic metadata.TrashState, why string) error {
	err := t.Admin.PurgeAsRead(ctx, topic, fence)
	if err == nil {
		t.Log.WithField("topic", topic.Name).WithField("topic_id", topic.Topic.ID).WithField("reason", why).Info("topic removed permanently")
	}
	return err
}

// makeRoom removes, of the trashed topics on brokers below their disk reserve, the one that was deleted first.
func (t *trash) makeRoom(ctx context.Context, fence metadata.Compare, list []metadata.TrashState) error {
	if !t.DeleteEarly || !t.early.IsZero() && time.Since(t.early) < earlyPause {
		return nil
	}
	for _, topic := range list {
		if !topic.Purging && t.onFullDisk(topic) {
			t.early = time.Now()
			return t.purge(ctx, fence, topic, "a broker that holds it is below its disk reserve (--delete-early)")
		}
	}
	return nil
}

func (t *trash) onFullDisk(topic metadata.TrashState) bool {
	for n := range topic.Topic.Span() {
		p, _ := t.Catalog.Partition(ident.Partition{Topic: topic.Topic.ID, Number: uint16(n)})
		if slices.ContainsFunc(p.Replicas, t.space.Low) {
			return true
		}
	}
	return false
}

// clockEvery is how often the cluster's clock is written while it is used: the next controller continues from the
// written value.
const clockEvery = 10 * time.Second

// clock is the cluster's clock (metadata.ClockState), for times after which something is destroyed. It counts by the
// monotonic clock of the controller's process, so a wrong time of day does not move it. It never runs ahead, because
// the time of a change of controllers is not counted. Only the controller reads it, in one goroutine.
type clock struct {
	store metadata.Store
	key   string

	fence   int64     // the tenure as controller in which the rest is valid; 0: none
	base    int64     // in ms, as read
	at      time.Time // when base was read
	rev     int64     // of the key
	written int64     // in ms
}

func newClock(store metadata.Store, keys metadata.Keys) *clock {
	return &clock{store: store, key: keys.Clock()}
}

// read returns the cluster's clock in ms, at least 1.
func (c *clock) read(ctx context.Context, fence metadata.Compare) (int64, error) {
	if c.fence == 0 || c.fence != fence.Create {
		if err := c.begin(ctx); err != nil {
			return 0, err
		}
		c.fence = fence.Create
	}
	now := c.base + time.Since(c.at).Milliseconds()
	if c.rev != 0 && now-c.written < clockEvery.Milliseconds() {
		return now, nil
	}
	compare := metadata.Compare{Key: c.key}
	if c.rev != 0 {
		compare.Create, compare.Mod = -1, c.rev
	}
	value := metadata.Encode(metadata.ClockState{V: metadata.Version, ElapsedMS: now})
	ok, rev, err := txn.Try(ctx, c.store, []metadata.Compare{fence, compare}, []metadata.Put{{Key: c.key, Value: value}})
	if err != nil || !ok {
		c.fence = 0 // another broker is the controller, or the answer was lost
		return 0, errors.Join(err, txn.ErrCompare)
	}
	c.rev, c.written = rev, now
	return now, nil
}

func (c *clock) begin(ctx context.Context) error {
	e, err := c.store.Get(ctx, c.key)
	if errors.Is(err, metadata.ErrNotFound) {
		c.base, c.rev, c.at = 1, 0, time.Now()
		return nil
	}
	if err != nil {
		return err
	}
	s, err := metadata.DecodeClock(e)
	if err != nil {
		return err
	}
	c.base, c.written, c.rev, c.at = max(s.ElapsedMS, 1), s.ElapsedMS, s.Revision, time.Now()
	return nil
}
