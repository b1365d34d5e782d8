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
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/session"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/coordinator/query"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replicas"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// makeEngine makes the components that a put passes after the gateway. The functions that they get use components that are
// made later; none is called before.
func (b *Broker) makeEngine() {
	b.proposer = txn.NewProposer(txn.ProposerOptions{
		Store: b.o.Meta, Keys: b.keys, Self: b.self, Incarnation: b.session.Incarnation, Wrote: b.delayed.wrote,
		Catalog: b.catalog, Log: b.log,
		Post: func(p ident.Partition, ev replica.Event) { b.engine.Post(p, ev) },
	})
	b.work = maintenance.New(&maintenance.Broker{
		Settings: b.o.Maintenance, Self: b.self, Meta: b.o.Meta, Keys: b.keys, Catalog: b.catalog, Store: b.store, Caller: b.dispatch,
		Group: b.tasks, Metrics: b.o.Metrics, Events: b.o.Events, Log: b.log,
	})
	reachable := &reachability{Contact: b.contact}
	b.engine = engine.New(engine.Options{
		Journal: b.store, Transport: b.rpc, Proposer: b.proposer, Reserve: b.work.Space, Reachability: reachable,
		Moved: b.catalog.Notify, Dead: b.work.Letters.Note,
		Linger: b.o.Linger, CatchUpRate: b.o.CatchUpRate, Slow: b.o.Slow, Trace: b.o.Trace, Silent: b.o.RPC.Silent,
		Self: b.self, Events: b.o.Events, Metrics: b.o.Metrics, Log: b.log,
	})
	b.work.Engine = b.engine
	b.peers = liveness.New(liveness.Options{
		Self: b.self, Machines: b.engine, Catalog: b.catalog, Store: b.o.Meta, Session: b.session, Members: b.o.Members, Caller: b.dispatch,
		Lost:   func(n ident.Node) { b.Gateway.PeerDown(n) },
		Silent: time.Duration(b.o.Replica.ISRMS) * time.Millisecond, RevokeFor: b.o.SessionTTL,
		Group: b.tasks, Log: b.log,
	})
	reachable.Peers = b.peers
	b.work.Space.Begin()
	b.o.Metrics.Gauge("core_loop_busy_seconds", func() float64 {
		return slices.Max(b.engine.Busy()).Seconds()
	})
}

// reachability implements engine.Options.Reachability: which brokers answer, and when the metadata last confirmed this
// broker's registration.
type reachability struct {
	*liveness.Peers
	*session.Contact
}

func (b *Broker) makeComponents() dispatch.Components {
	b.directory, b.Inspector = query.New(query.Options{
		Cluster: b.o.Cluster, Self: b.o.Node, Engine: b.engine, Catalog: b.catalog, Store: b.store, Peers: b.peers, Caller: b.dispatch,
		LowSpace: b.work.Space.Low, Hangs: watchdog{b}.hangs, Unanswered: b.rpc.Unanswered, Unheard: b.contact.Unheard,
		Context: b.tasks.Context(),
	})
	core := &core{Broker: b, Engine: b.engine, Directory: b.directory}
	b.Gateway = gateway.New(core, b.rpc, b.o.Gateway)
	b.replicas = replicas.New(replicas.Options{
		Self: b.self, Incarnation: b.session.Newest, Engine: b.engine, Store: b.store, Catalog: b.catalog,
		Meta: b.o.Meta, Keys: b.keys, Peers: b.peers, Space: b.work.Space, Replica: b.o.Replica, Queue: b.o.Queue,
		MayCache: b.o.NoSync, Group: b.tasks, Log: b.log,
	})
	b.Admin = admin.New(admin.Options{
		Self: b.self, Store: b.o.Meta, Keys: b.keys, Catalog: b.catalog, Engine: b.engine, Directory: b.directory,
		Up: b.peers.Up, Low: b.work.Space.Low, Caller: b.dispatch, Gateway: b.Gateway, Group: b.tasks, Log: b.log, Defaults: b.o.Topics,
		Limits: b.o.Limits, Note: b.o.NoteCreation,
		Snapshot: func() plan.Snapshot { return controller.Snapshot(b.catalog, b.peers.Up, b.work.Space.Low) },
	})
	core.Channels = b.Admin.Channels
	b.Directory = directory{b.directory, b.Admin.Quotas, b}
	b.Console = console{b.Directory, b.Inspector}
	b.work.Admin, b.work.Publisher = b.Admin, b.Gateway
	b.work.Others, b.work.Alive, b.work.Replicas = b.peers.Others, b.directory.Alive, b.directory.Replicas
	return dispatch.Components{
		Engine: b.engine, Gateway: b.Gateway, Peers: b.peers, Events: b.o.Events, Replicas: b.replicas, Queues: b.Admin.Queues,
		Inspector: b.Inspector, Directory: b.directory, Space: b.work.Space, Console: b.answerConsole,
		Idleness: b.work.Idleness, Repair: b.work.Repair,
	}
}

// drive starts the goroutines of the broker, which end with it.
func (b *Broker) drive() {
	for _, run := range []func(context.Context){
		b.watch, b.awaitStore, b.runRegistration, b.engine.RunClock, b.engine.RunNearTimer, b.contact.Run, b.peers.RunUnreachable,
		watchdog{b}.runWatchdog, b.replicas.RunDurability,
		func(ctx context.Context) { b.session.RunObserving(ctx, b.nodesChanged, b.catalog.Nodes) },
		func(ctx context.Context) {
			b.session.RunCounting(ctx, session.Counting{
				Every: b.o.RecountEvery, Changed: b.partitionsChanged, Stopping: b.stopping.Load, WentBack: func(err error) { b.end(err) },
				Written: func() int64 { _, bytes := b.store.Journalled(); return bytes },
			})
		},
		func(ctx context.Context) {
			controller.Run(ctx, controller.Options{
				Self: b.self, Store: b.o.Meta, Keys: b.keys, Catalog: b.catalog, Session: b.session, Up: b.peers.Up,
				Low: b.work.Space.Low, Caller: b.dispatch, Members: b.o.Members, Collect: b.work.Collect,
				IdleMost: b.o.Maintenance.TombstoneGrace, Stopping: b.stopping.Load, Log: b.log,
			})
		},
	} {
		b.tasks.Go(run)
	}
	b.work.Start()
}

// core implements gateway.Core. Puts go straight to the engine (Propose, Flush).
type core struct {
	*Broker
	*engine.Engine
	*query.Directory
	*admin.Channels // nil until makeComponents has run
}

func (c *core) Topic(name string) (metadata.TopicState, bool) { return c.catalog.Topic(name) }

func (c *core) EnsureTopic(ctx context.Context, name string) error { return c.Admin.Ensure(ctx, name) }

func (c *core) Leads(id ident.Partition) bool {
	p, ok := c.engine.Partition(id)
	return ok && p.Leading()
}

func (c *core) Queue(id ident.Partition) (*nsqd.Partition, bool) {
	p, ok := c.engine.Partition(id)
	if !ok {
		return nil, false
	}
	return p.Queue(), true
}

func (c *core) Filter(t ident.TopicID, channel string) string {
	return c.catalog.Channels(t)[channel].Policy.Filter
}
