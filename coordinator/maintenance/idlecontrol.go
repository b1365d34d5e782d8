package maintenance

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// IdleControl deletes what nothing uses: channels (IdleChannels) and topics (IdleTopics). It asks the leaders once
// for both. The controller alone calls Collect, in one goroutine.
type IdleControl struct {
	catalog  *catalog.Catalog
	caller   calls.Caller
	group    *concurrency.Group
	channels *IdleChannels
	topics   *IdleTopics

	busy atomic.Bool
	last time.Time // when the leaders were asked
}

// NewIdleControl makes the state.
func NewIdleControl(c *catalog.Catalog, caller calls.Caller, group *concurrency.Group, channels *IdleChannels, topics *IdleTopics) *IdleControl {
	return &IdleControl{catalog: c, caller: caller, group: group, channels: channels, topics: topics}
}

// Collect looks for channels and topics that nothing uses. It does not wait. fence is the controller's.
func (i *IdleControl) Collect(fence metadata.Compare) {
	if !i.last.IsZero() && time.Since(i.last) < idleEvery {
		return
	}
	i.last = time.Now()
	channels, topics := i.channels.candidates(0), i.topics.candidates()
	i.channels.prune(fence, channels)
	if len(channels)+len(topics) == 0 || i.busy.Swap(true) {
		return
	}
	i.group.Go(func(ctx context.Context) {
		defer i.busy.Store(false)
		answers := askIdle(ctx, i.catalog, i.caller, 0)
		i.channels.collect(ctx, fence, channels, answers)
		i.topics.collect(ctx, fence, topics, answers)
	})
}
