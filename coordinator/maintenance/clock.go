package maintenance

import (
	"context"
	"errors"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
)

// clockEvery is how often the cluster's clock is written while it is read: a controller that takes
// over continues from what was written last.
const clockEvery = 10 * time.Second

// clock is the cluster's clock (metadata.ClockState), for times after which something is destroyed. It
// counts by the monotonic clock of the controller's process, so a time of day that is set wrong
// does not move it. It is never ahead of the time that has passed: the time of a change of
// controllers is lost, not counted. The controller alone reads it, in one goroutine.
type clock struct {
	store metadata.Store
	key   string

	fence   int64     // names the tenure as controller since which the rest is valid; 0 = none
	base    int64     // in ms, as read
	at      time.Time // when base was read
	rev     int64     // of the key
	written int64     // in ms
}

// newClock makes the state of one broker's readings.
func newClock(store metadata.Store, keys metadata.Keys) *clock {
	return &clock{store: store, key: keys.Clock()}
}

// Read gives the cluster's clock in ms, at least 1. fence is the controller's.
func (c *clock) Read(ctx context.Context, fence metadata.Compare) (int64, error) {
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
	value := metadata.Encode(metadata.ClockState{V: metadata.Version, ElapsedMS: now})
	ok, rev, err := txn.Try(ctx, c.store, []metadata.Compare{fence, c.compare()}, []metadata.Put{{Key: c.key, Value: value}})
	if err != nil || !ok {
		c.fence = 0 // another broker controls, or the answer was lost: it is read again
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

func (c *clock) compare() metadata.Compare {
	if c.rev == 0 {
		return metadata.Compare{Key: c.key}
	}
	return metadata.Compare{Key: c.key, Create: -1, Mod: c.rev}
}
