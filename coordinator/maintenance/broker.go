package maintenance

import (
	"context"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

// Settings of the periodic work.
type Settings struct {
	// MinFreeBytes and MaxDiskBytes are the disk reserve: while less is free, or the logs take more, puts to all partitions
	// with a replica on this broker are refused. 0: no limit.
	MinFreeBytes, MaxDiskBytes int64
	RepeatFor                  time.Duration // how long logs are kept because a broker may repeat a put, even if channels have finished it
	// DeleteGrace is how long a deleted topic can be undeleted, and how long before its deletion an idle channel is
	// announced. 0 disables both.
	DeleteGrace    time.Duration
	DeleteEarly    bool          // deleted topics are removed earlier while a disk is below its reserve
	TrashGrace     time.Duration // how long the files of removed topics are kept
	TombstoneGrace time.Duration // how long all brokers have to be live before a tombstone is removed
	// MayPublish reports whether a user may publish to a topic now; nil: rights are not enforced.
	MayPublish func(user, topic string) bool
}

// Broker holds the components that the work uses. Its owner sets each component before it starts the work that uses it.
type Broker struct {
	Settings
	Self      ident.Node
	Meta      metadata.Store
	Keys      metadata.Keys
	Catalog   *catalog.Catalog
	Store     *store.Store
	Engine    *engine.Engine
	Caller    calls.Caller
	Admin     admin
	Publisher publisher
	Others    func() []ident.Node                // live brokers that answer
	Alive     func(ident.Node) bool              // whether a broker is registered and answers
	Replicas  func(ident.Partition) []ident.Node // the other brokers that answer and have a replica of a partition
	Group     *concurrency.Group
	Metrics   *metrics.Recorder // nil: nothing is recorded
	Events    *events.Recorder  // nil: nothing is recorded
	Log       logrus.FieldLogger
}

// admin deletes topics and channels that have not changed since they were read (admin.Admin). txn.ErrCompare: they have
// changed, or this broker is no longer the controller.
type admin interface {
	EnsureDeadLetters(ctx context.Context, topic string) error
	DeleteAsRead(ctx context.Context, name string, t metadata.TopicState) error
	TrashIdle(ctx context.Context, name string, t metadata.TopicState, fence ...metadata.Compare) error
	PurgeAsRead(ctx context.Context, t metadata.TrashState, fence ...metadata.Compare) error
	DeleteIdle(ctx context.Context, topic string, t metadata.TopicState, channel string, c metadata.ChannelState, fence ...metadata.Compare) error
}

// publisher publishes messages that this broker itself creates (gateway.Gateway).
type publisher interface {
	PublishAll(ctx context.Context, topic string, numbers []int, messages []queue.Message) []error
}

// Work is the periodic work of one broker.
type Work struct {
	*Broker
	Space    *Space
	Letters  *deadLetters
	Repair   *Repair
	Idleness *Idleness
	Idle     *idleDeleter

	retention  *retention
	tombstones *tombstones
	trash      *trash
}

// New makes the work of a broker, and starts none of it.
func New(b *Broker) *Work {
	space := newSpace(b)
	return &Work{
		Broker: b, Space: space, Letters: newDeadLetters(b), Repair: newRepair(b),
		Idleness: &Idleness{Broker: b, unused: unused[*engine.Partition, trace]{}, unusedIn: unused[channelIn, channelTrace]{}},
		Idle:     &idleDeleter{Broker: b, announced: map[channelKey]announcement{}}, retention: newRetention(b, space),
		tombstones: &tombstones{Broker: b}, trash: &trash{Broker: b, space: space, clock: newClock(b.Meta, b.Keys)},
	}
}

// Start starts the work of every broker, in goroutines of the group.
func (w *Work) Start() {
	w.Group.Go(func(ctx context.Context) { every(ctx, retainEvery, nil, w.retention.run) })
	w.Group.Go(func(ctx context.Context) { every(ctx, deadLettersEvery, nil, w.Letters.run) })
	w.Group.Go(func(ctx context.Context) { every(ctx, spaceEvery, nil, w.Space.run) })
	w.Group.Go(func(ctx context.Context) { every(ctx, repairEvery, w.Store.Damaged(), w.Repair.run) })
}

// Collect does the work of the controller, while this broker is the controller. It does not block. One goroutine calls
// it.
func (w *Work) Collect(fence metadata.Compare) {
	w.tombstones.collect(fence)
	w.trash.collect(fence)
	w.Idle.collect(fence)
}

// every calls run once per period, and when wake receives. A run that takes longer than the period delays the next one.
func every(ctx context.Context, period time.Duration, wake <-chan struct{}, run func(context.Context)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
		}
		run(ctx)
	}
}
