package maintenance

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
)

// Idle deletes topics and channels that nothing uses. It asks the leaders once for both (Idleness).
//
// It moves a topic into the trash that nothing has used for the time in its option (metadata.TopicOptions.IdleMS), as
// the leaders of all its partitions report, and once more directly before. A put or a subscription may come after the
// last answer and before the transaction: the put is in the trash with the topic, the subscription ends and recreates
// the topic.
//
// It deletes a channel that nothing has used for the time in its topic's option (ChannelIdleMS). A channel has no
// trash, so the grace comes before the deletion: the channel is announced when the leaders of all partitions report
// that nothing has used it, and is deleted one grace later. A use ends the announcement. The announcements are in the
// memory of the controller: a new controller restarts each grace.
type Idle struct {
	*Broker
	busy atomic.Bool
	last time.Time // when the leaders were asked

	mu        sync.Mutex
	tenure    int64 // the fence since which the announcements are valid
	announced map[channelKey]announcement
}

// NewIdle makes the state.
func NewIdle(b *Broker) *Idle { return &Idle{Broker: b, announced: map[channelKey]announcement{}} }

// Collect finds channels and topics that nothing uses. It does not wait. fence is the controller's, which alone calls
// it, in one goroutine.
func (i *Idle) Collect(fence metadata.Compare) {
	if !i.last.IsZero() && time.Since(i.last) < idleEvery {
		return
	}
	i.last = time.Now()
	channels, topics := i.channelCandidates(0), i.topicCandidates()
	i.prune(fence, channels)
	if len(channels)+len(topics) == 0 || i.busy.Swap(true) {
		return
	}
	i.Group.Go(func(ctx context.Context) {
		defer i.busy.Store(false)
		answers := i.ask(ctx, 0)
		i.collectChannels(ctx, fence, channels, answers)
		i.collectTopics(ctx, fence, topics, answers)
	})
}
