package coordinator

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/dispatch"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/liveness"
	"github.com/lockstepmq/lockstep/coordinator/maintenance"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/coordinator/metadata/session"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/coordinator/query"
	"github.com/lockstepmq/lockstep/coordinator/replicas"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

// Broker is one broker of a cluster. Start makes one; Stop ends it gently, Close
// abruptly. The parts stand in the order in which they come up.
type Broker struct {
	o    Options
	log  logrus.FieldLogger
	self ident.Node
	keys metadata.Keys

	tasks    *concurrency.Group
	catalog  *catalog.Catalog
	dispatch *dispatch.Dispatcher

	session   *session.Session
	store     *store.Store
	contact   *session.Contact
	rpc       *rpc.Transport
	proposer  *txn.Proposer
	engine    *engine.Engine
	peers     *liveness.Peers
	directory *query.Directory
	inspector *query.Inspector
	gateway   *gateway.Gateway
	replicas  *replicas.Local
	admin     *admin.Admin
	space     *maintenance.Space
	letters   *maintenance.DeadLetters
	idle      *maintenance.IdleChannels

	changed  changes
	history  history
	console  atomic.Pointer[func(ctx context.Context, question []byte) ([]byte, error)]
	delayed  watchDelay
	failed   chan error // capacity 1
	stopping atomic.Bool
}

// changes are those of the metadata that the boot counters go by.
type changes struct {
	partitions concurrency.Edge // of partitions here
	nodes      concurrency.Edge // of brokers' permanent keys
}

// Start opens the store, registers, and serves. Edges may be opened when it
// returns. ctx bounds the start alone.
func Start(ctx context.Context, o Options) (*Broker, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		o: o, log: o.Log, self: o.Node.Name, keys: metadata.Keys{Cluster: o.Cluster},
		tasks: concurrency.NewGroup(), dispatch: dispatch.New(o.Node.Name),
		changed: changes{partitions: concurrency.NewEdge(), nodes: concurrency.NewEdge()}, failed: make(chan error, 1),
	}
	b.catalog = catalog.New(b.keys, b.log)
	if err := b.start(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// start is the order in which a broker comes up; Close undoes it backwards.
func (b *Broker) start(ctx context.Context) error {
	// 1. Is this broker's name free, and is this data path the one that the cluster has on record
	// of it, or a restored one?
	restored, err := b.takeName(ctx)
	if err != nil {
		return err
	}
	// 2. The disk. Only when it is opened does the path count as started: a crash before
	// asks the same question again.
	if err := b.openStore(restored); err != nil {
		return err
	}
	if err := b.session.Announce(ctx); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	if err := b.session.CheckLevel(ctx); err != nil { // it may have been raised until now, not from now on
		return err
	}
	// 3. The incarnation of this run.
	if err := b.register(ctx); err != nil {
		return err
	}
	// 4. The connections to other brokers, and the parts, from the ground up. Nothing comes
	// in before all are there.
	b.rpc = rpc.New(rpc.Options{
		Self:   rpc.Hello{Cluster: b.o.Cluster, Node: b.self, Incarnation: b.session.Incarnation()},
		Listen: b.o.Listen, Handler: b.dispatch, TLS: b.o.TLS, Token: b.o.Token, Times: b.o.RPC, Dial: b.o.Dial, Log: b.log,
		Connections: b.o.Connections, Limits: calls.Limits, Registered: func(n ident.Node) ident.Incarnation {
			r, _ := b.catalog.LiveNode(n)
			return r.Incarnation
		},
	})
	b.o.Metrics.Gauge("rpc_connections", func() float64 {
		return float64(b.rpc.Counters().Accepted.Admitted)
	})
	b.o.Metrics.Gauge("rpc_handshakes", func() float64 {
		return float64(b.rpc.Counters().Accepted.Waiting)
	})
	b.o.Metrics.Counter("rpc_refused_connections_total", func() float64 {
		c := b.rpc.Counters().Accepted
		return float64(c.Displaced + c.Refused)
	})
	b.o.Metrics.Counter("rpc_corrupt_connections_total", func() float64 {
		return float64(b.rpc.Counters().Corrupt)
	})
	b.makeEngine()
	components := b.makeComponents()
	b.dispatch.Open(b.rpc, components)
	// 5. The goroutines that drive them.
	b.drive(components.Repair)
	if err := b.awaitCatalog(ctx); err != nil {
		return err
	}
	b.report()
	return nil
}

// register takes an incarnation. The metadata has answered from here on: a leader that
// never reaches its replicas has a fence too.
func (b *Broker) register(ctx context.Context) error {
	b.contact = session.NewContact(b.session)
	b.o.Metrics.Gauge("metadata_unheard_seconds", func() float64 {
		return b.contact.Unheard().Seconds()
	})
	if err := b.session.Register(ctx); err != nil {
		return err
	}
	b.o.Metrics.Event(metrics.EventRegistered)
	return nil
}

// takeName makes the session, and reports whether the data path is a restored one.
func (b *Broker) takeName(ctx context.Context) (restored bool, err error) {
	file := b.o.NodeFile
	if file == nil {
		if file, err = nodefile.Open(b.o.FS, b.o.Dir, b.o.Cluster, b.self); err != nil {
			return false, err
		}
	}
	b.session = session.New(session.Options{
		Store: b.o.Meta, Keys: b.keys, Node: b.o.Node, File: file, TTL: b.o.SessionTTL,
		OnlyMember: b.o.OnlyMember, Mark: b.o.Mark, Log: b.log,
	})
	if err := b.session.AwaitName(ctx); err != nil {
		return false, err
	}
	if restored, err = b.session.Restored(ctx); err != nil {
		return false, err
	}
	return restored, b.session.CheckLevel(ctx)
}

// awaitCatalog waits for the first state of the watch with this broker in it.
func (b *Broker) awaitCatalog(ctx context.Context) error {
	return b.catalog.Await(ctx, func() bool {
		r, ok := b.catalog.LiveNode(b.self)
		return ok && r.Incarnation == b.Incarnation()
	})
}
