package coordinator

import (
	"context"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/controller"
	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/dispatch"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/liveness"
	"github.com/lockstepmq/lockstep/coordinator/maintenance"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/coordinator/query"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replicas"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// makeEngine makes the parts on the way of a put, below the gateway. The functions that
// they are given reach parts that are made later; none is called before those are there.
func (b *Broker) makeEngine() {
	b.proposer = txn.NewProposer(txn.ProposerOptions{
		Store: b.o.Meta, Keys: b.keys, Self: b.self, Incarnation: b.session.Incarnation, Wrote: b.delayed.wrote,
		Registrations: b.catalog, Log: b.log,
		Post: func(p ident.Partition, ev replica.Event) { b.engine.Post(p, ev) },
	})
	b.space = maintenance.NewSpace(maintenance.SpaceOptions{
		Self: b.self, Store: b.store, Others: func() []ident.Node { return b.peers.Others() }, Caller: b.dispatch,
		Partitions: func() []*engine.Partition { return b.engine.Partitions() }, Alive: func(n ident.Node) bool { return b.directory.Alive(n) },
		MinFreeBytes: b.o.MinFreeBytes, MaxDiskBytes: b.o.MaxDiskBytes, TrashBytes: b.trashBytes, Log: b.log,
	})
	b.engine = engine.New(engine.Options{
		Journal: b.store, Transport: b.rpc, Proposer: b.proposer, Reserve: b.space, Reachability: reachability{b},
		Moved: b.catalog.Notify, Dead: func(p *engine.Partition) { b.letters.Note(p) },
		Linger: b.o.Linger, CatchUpRate: b.o.CatchUpRate, Slow: b.o.Slow, Trace: b.o.Trace, Silent: b.o.RPC.Silent, Self: b.self, Events: b.o.Events, Metrics: b.o.Metrics, Log: b.log,
	})
	b.space.Begin()
	b.o.Metrics.Gauge("core_loop_busy_seconds", func() float64 {
		return slices.Max(b.engine.Busy()).Seconds()
	})
}

// reachability implements engine.Reachability for the broker.
type reachability struct{ b *Broker }

// Up implements engine.Reachability.
func (r reachability) Up(n ident.Node) bool { return r.b.peers.Up(n) }

// AllUp implements engine.Reachability.
func (r reachability) AllUp() bool { return r.b.peers.AllUp() }

// Named implements engine.Reachability.
func (r reachability) Named(now time.Time) time.Time { return r.b.contact.Named(now) }

// makeComponents makes the components around the engine.
func (b *Broker) makeComponents() dispatch.Components {
	b.peers = b.makePeers()
	b.inspector = &query.Inspector{
		Self: b.self, Engine: b.engine, Catalog: b.catalog, Store: b.store, Caller: b.dispatch, Holders: b.holders,
	}
	b.directory = query.New(query.Options{
		Cluster: b.o.Cluster, Self: b.o.Node, Engine: b.engine, Catalog: b.catalog, Peers: b.peers, Caller: b.dispatch,
		Counters: b.inspector.Counters, Damaged: b.inspector.Damaged, LowSpace: b.space.Low, Hangs: watchdog{b}.hangs, Unanswered: b.rpc.Unanswered, Unheard: b.contact.Unheard,
		HiddenFor: b.o.TombstoneLifetime, Context: b.tasks.Context(),
	})
	b.gateway = gateway.New(core{b, b.engine}, b.rpc, b.o.Gateway)
	b.hosting = replicas.New(replicas.Options{
		Self: b.self, Incarnation: b.session.Newest, Engine: b.engine, Store: b.store, Catalog: b.catalog,
		Meta: b.o.Meta, Keys: b.keys, Peers: b.peers, Space: b.space, Replica: b.o.Replica, Queue: b.o.Queue, MayCache: b.o.NoSync, Group: b.tasks, Log: b.log,
	})
	b.admin = admin.New(admin.Options{
		Self: b.self, Store: b.o.Meta, Keys: b.keys, Catalog: b.catalog, Engine: b.engine, Directory: b.directory,
		Up: b.peers.Up, Low: b.space.Low, Caller: b.dispatch, Gateway: b.gateway, Group: b.tasks, Log: b.log, Defaults: b.o.topicDefaults(),
		Limits: b.o.Limits, Note: b.o.NoteCreation,
		Snapshot: func() plan.Snapshot { return controller.Snapshot(b.catalog, b.peers.Up, b.space.Low) },
	})
	b.letters = maintenance.NewDeadLetters(maintenance.DeadLettersOptions{
		Channels: b.catalog.Channels, Topics: b.admin.Channels, Publisher: b.gateway, MayPublish: b.o.MayPublish, Group: b.tasks, Log: b.log,
	})
	return dispatch.Components{
		Engine: b.engine, Gateway: b.gateway, Peers: b.peers, Events: b.o.Events, Hosting: b.hosting, Queues: b.admin.Queues,
		Inspector: b.inspector, Directory: b.directory, Space: b.space, Console: b.answerConsole,
		Idleness: maintenance.NewIdleness(b.engine, b.catalog.Topic, b.catalog.Channels),
		Repair: maintenance.NewRepair(maintenance.RepairOptions{
			Engine: b.engine, Damaged: b.store.Damaged(), Replicas: b.otherReplicas, Caller: b.dispatch, Metrics: b.o.Metrics, Log: b.log,
		}),
	}
}

func (b *Broker) makePeers() *liveness.Peers {
	o := liveness.Options{
		Self: b.self, Machines: b.engine, Catalog: b.catalog, Store: b.o.Meta, Session: b.session, Caller: b.dispatch,
		Lost:   func(n ident.Node) { b.gateway.PeerDown(n) },
		Silent: time.Duration(b.o.Replica.ISRMS) * time.Millisecond, RevokeFor: b.o.SessionTTL,
		Group: b.tasks, Log: b.log,
	}
	if b.o.Members != nil {
		o.Members = b.o.Members
	}
	return liveness.New(o)
}

// otherReplicas are those of a partition that answer, this broker left out.
func (b *Broker) otherReplicas(p ident.Partition) []ident.Node {
	s, _ := b.catalog.Partition(p)
	return slices.DeleteFunc(slices.Clone(s.Replicas), func(n ident.Node) bool { return n == b.self || !b.peers.Up(n) })
}

// holders are the other replicas of a partition that answer, the leader's first.
func (b *Broker) holders(p ident.Partition) []ident.Node {
	list := b.otherReplicas(p)
	if l, ok := b.directory.Leader(p); ok && slices.Contains(list, l.Node) {
		rest := slices.DeleteFunc(list, func(n ident.Node) bool { return n == l.Node })
		list = append([]ident.Node{l.Node}, rest...)
	}
	return list
}

// trashBytes is the size of the replicas here whose topics lie in the trash.
func (b *Broker) trashBytes() (sum int64) {
	for _, p := range b.engine.Partitions() {
		if p.Trashed() {
			sum += p.Store().DiskBytes()
		}
	}
	return sum
}

// drive starts the goroutines of the broker.
func (b *Broker) drive(repair *maintenance.Repair) {
	b.tasks.Go(b.watch)
	b.tasks.Go(b.awaitStore)
	b.tasks.Go(b.runRegistration)
	b.tasks.Go(func(ctx context.Context) { b.session.RunCounting(ctx, b.counting()) })
	b.tasks.Go(func(ctx context.Context) { b.session.RunObserving(ctx, b.changed.nodes, b.catalog.Nodes) })
	b.tasks.Go(b.engine.RunClock)
	b.tasks.Go(b.engine.RunNearTimer)
	b.tasks.Go(b.contact.Run)
	b.tasks.Go(b.peers.RunUnreachable)
	b.tasks.Go(watchdog{b}.runWatchdog)
	b.tasks.Go(b.hosting.RunDurability)
	retention := maintenance.NewRetention(maintenance.RetentionOptions{
		Engine: b.engine, Topic: b.catalog.Topic, DeleteTopic: b.admin.Topics.DeleteAsRead, EmptyTrash: b.store.EmptyTrash,
		Space: b.space, RepeatFor: b.o.RepeatFor, TrashGrace: b.o.TrashGrace, Early: b.o.DeleteEarly, Log: b.log,
	})
	maintenance.Runner{Group: b.tasks}.Start(retention.Job(), b.letters.Job(), b.space.Job(), repair.Job())
	b.tasks.Go(b.controller().Run)
}

func (b *Broker) controller() *controller.Control {
	b.idle = maintenance.NewIdleChannels(maintenance.IdleChannelOptions{
		Self: b.self, Catalog: b.catalog, Caller: b.dispatch, Grace: b.o.DeleteGrace, Delete: b.admin.Channels.DeleteIdle,
		Metrics: b.o.Metrics, Events: b.o.Events, Log: b.log,
	})
	topics := maintenance.NewIdleTopics(maintenance.IdleOptions{
		Catalog: b.catalog, Caller: b.dispatch, Trash: b.admin.Topics.TrashIdle, Metrics: b.o.Metrics, Log: b.log,
	})
	o := controller.Options{
		Self: b.self, Store: b.o.Meta, Keys: b.keys, Catalog: b.catalog, Session: b.session, Up: b.peers.Up, Low: b.space.Low, Caller: b.dispatch,
		Tombstones: maintenance.NewTombstones(maintenance.TombstoneOptions{
			Store: b.o.Meta, Keys: b.keys, Catalog: b.catalog, Grace: b.o.TombstoneGrace, Group: b.tasks, Log: b.log,
		}),
		Trash: maintenance.NewTrash(maintenance.TrashOptions{
			Store: b.o.Meta, Keys: b.keys, Catalog: b.catalog, Clock: maintenance.NewClock(b.o.Meta, b.keys), Purge: b.admin.Topics.PurgeAsRead,
			Early: b.o.DeleteEarly, Low: b.space.Low, Group: b.tasks, Log: b.log,
		}),
		Idle:     maintenance.NewIdleControl(b.catalog, b.dispatch, b.tasks, b.idle, topics),
		IdleMost: b.o.TombstoneGrace, Stopping: b.stopping.Load, Log: b.log,
	}
	if b.o.Members != nil {
		o.Members = b.o.Members
	}
	return controller.New(o)
}
