package admin

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/admin/moves"
	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// operationTimeout bounds an operation, including the wait for all leaders of a topic.
const operationTimeout = 5 * time.Second

// directory locates leaders (query.Directory).
type directory interface {
	Leader(p ident.Partition) (catalog.Leadership, bool)
	// HidesSelf reports whether this broker is tombstoned for a topic.
	HidesSelf(topic string) bool
}

// gateway publishes and subscribes (gateway.Gateway).
type gateway interface {
	api.Subscribers
	PublishAll(ctx context.Context, topic string, numbers []int, messages []queue.Message) []error
}

// Defaults are the settings of topics that are created without explicit ones.
type Defaults struct {
	Partitions, ReplicationFactor, MinInSync int
	Durability                               metadata.Durability
	Ordered                                  bool
	Options                                  metadata.TopicOptions
	ByName                                   []option.Default // by pattern of the name; the first match wins
	AutoCreate                               bool             // a put or a subscription creates its topic
	DeleteGrace                              time.Duration    // how long a deleted topic can be undeleted; 0: not at all
	Hold                                     time.Duration    // how long the creation of a topic waits for brokers
	// KnownChannels lists the channels that lookupd has for a new topic; nil: no lookupd is configured.
	KnownChannels func(ctx context.Context, topic string) []string
}

// of returns the state of a topic of this name that is created without explicit settings.
func (d Defaults) of(name string) metadata.TopicState {
	s := metadata.TopicState{
		V: metadata.Version, Partitions: d.Partitions, ReplicationFactor: d.ReplicationFactor, MinInSync: d.MinInSync,
		Durability: d.Durability, Ordered: d.Ordered, Options: d.Options,
	}
	at := slices.IndexFunc(d.ByName, func(t option.Default) bool { ok, _ := path.Match(t.Pattern, name); return ok })
	if at < 0 {
		return s
	}
	t := d.ByName[at]
	s.Partitions, s.Durability, s.Ordered = cmp.Or(t.Partitions, s.Partitions), cmp.Or(metadata.Durability(t.Durability), s.Durability), t.Ordered
	if t.ReplicationFactor != 0 {
		s.ReplicationFactor, s.MinInSync = t.ReplicationFactor, cmp.Or(t.MinInSync, DefaultMinInSync(t.ReplicationFactor))
	}
	t.Options.Apply(&s.Options)
	return s
}

// Options: all fields except Limits and Note are required.
type Options struct {
	Self      ident.Node
	Store     metadata.Store
	Keys      metadata.Keys
	Catalog   *catalog.Catalog
	Engine    *engine.Engine
	Directory directory
	Up        func(ident.Node) bool // whether a broker answers
	Low       func(ident.Node) bool // whether a broker is below its disk reserve
	Caller    calls.Caller
	Gateway   gateway
	Defaults  Defaults
	Limits    quota.Limits
	Snapshot  func() plan.Snapshot // the cluster as the controller sees it
	// Note records what a client's put or subscription created, or failed to create (err); nil: nothing is recorded.
	Note  func(who api.Requester, detail string, err error)
	Group *concurrency.Group
	Log   logrus.FieldLogger
}

// Admin carries out operations (api.Admin). With its parts it is api.Planner, api.Channels, api.Receipts,
// api.Tracer and api.Recovery.
type Admin struct {
	*Channels
	*redriver
	*recovery
	*moves.Moves
	*topics
	Queues *Queues
	Quotas *quota.Quotas

	records   *records
	directory directory
	log       logrus.FieldLogger
}

// New makes an Admin.
func New(o Options) *Admin {
	r := &records{store: o.Store, keys: o.Keys, catalog: o.Catalog}
	l := &leaders{directory: o.Directory, caller: o.Caller, catalog: o.Catalog, slots: make(chan struct{}, askers)}
	locks, q := txn.NewKeyedLock(), quota.New(o.Limits, o.Catalog, o.Note)
	a := &Admin{Quotas: q, records: r, directory: o.Directory, log: o.Log}
	a.Channels = &Channels{records: r, leaders: l, locks: locks, quotas: q, pending: newPendingChannels(), created: &createdChannels{known: map[createdChannel]uint64{}}}
	a.topics = &topics{records: r, o: o, channels: a.Channels, quotas: q, locks: locks, slots: make(chan struct{}, makers)}
	a.Channels.topics = a.topics
	a.Moves = moves.New(moves.Options{Store: o.Store, Keys: o.Keys, Catalog: o.Catalog, Snapshot: o.Snapshot, Low: o.Low})
	a.redriver = &redriver{records: r, channels: a.Channels, directory: o.Directory, gateway: o.Gateway}
	a.recovery = &recovery{records: r, o: o}
	a.Queues = &Queues{engine: o.Engine, records: r, quotas: q, locks: locks}
	return a
}

// Do carries out an administrative operation (api.Admin).
func (a *Admin) Do(ctx context.Context, op api.Operation) error {
	switch op := op.(type) { // their time depends on the number of partitions
	case api.CreateTopic:
		return a.topics.createExplicitly(ctx, op)
	case api.SetPartitions:
		return a.topics.setPartitions(ctx, op)
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	if err := a.require(ctx, op); err != nil {
		return err
	}
	switch op := op.(type) {
	case api.SetTopic:
		return a.topics.set(ctx, op)
	case api.DeleteTopic:
		if op.BrokerByBroker && a.directory.HidesSelf(op.Topic) {
			// After "tombstone node" nsqadmin requests the deletion of one broker's copy. It would report a refusal as
			// a failure of the tombstone, although the tombstone is in force. All brokers share one topic, so there is
			// no copy to delete.
			a.log.WithField("topic", op.Topic).Warn("topic not deleted: this broker is tombstoned for the topic, so the request only concerns this broker; ask another broker to delete the topic")
			return nil
		}
		return a.topics.delete(ctx, op)
	case api.UndeleteTopic:
		return a.topics.undelete(ctx, op)
	case api.PurgeTopic:
		return a.topics.purge(ctx, op)
	case api.PauseTopic:
		return a.Channels.pauseTopic(ctx, op)
	case api.SetReplication:
		return a.topics.setReplication(ctx, op)
	case api.MoveReplica, api.Balance, api.Decommission, api.Drain:
		return a.Moves.Do(ctx, op)
	case api.CreateChannel:
		return a.Channels.createExplicitly(ctx, op)
	case api.DeleteChannel:
		return a.Channels.delete(ctx, op.Topic, op.Channel)
	case api.PauseChannel:
		return a.Channels.pause(ctx, op)
	case api.OrderChannel:
		return a.Channels.order(ctx, op.Topic, op.Channel, op.Ordered)
	case api.SeekChannel:
		_, err := a.Channels.seek(ctx, op)
		return err
	case api.SetPolicy:
		return a.Channels.setPolicy(ctx, op)
	case api.EmptyTopic:
		return a.Channels.empty(ctx, op.Topic, calls.QueueOp{Verb: calls.TopicEmpty})
	case api.EmptyChannel:
		return a.Channels.empty(ctx, op.Topic, calls.QueueOp{Verb: calls.ChannelEmpty, Channel: op.Channel})
	}
	return fmt.Errorf("%w: operation %T", outcome.ErrInvalid, op)
}

// Seek carries out a seek and returns its effect (api.Channels).
func (a *Admin) Seek(ctx context.Context, op api.SeekChannel) (api.SeekResult, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	if err := a.require(ctx, op); err != nil {
		return api.SeekResult{}, err
	}
	return a.Channels.seek(ctx, op)
}

// require refuses a topic that does not exist, waits for a channel that another broker has just created, and checks the
// arguments.
func (a *Admin) require(ctx context.Context, op api.Operation) error {
	topic, channel := api.Target(op)
	switch op.(type) {
	case api.CreateTopic, api.SetPartitions, api.DeleteTopic, api.UndeleteTopic, api.PurgeTopic: // these read the store
	default:
		if err := a.records.requireTopic(ctx, topic); err != nil {
			return err
		}
	}
	if _, creation := op.(api.CreateChannel); channel != "" && !creation {
		if err := a.records.learnChannel(ctx, topic, channel); err != nil {
			return err
		}
	}
	return api.Validate(op)
}
