package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

// Broker is one broker of a cluster. Start makes one; Stop ends it gently, Close abruptly. The components are in the order in
// which they start. The exported ones implement the interfaces of the front ends (internal/api, console.Cluster), and exist
// when Start has returned.
type Broker struct {
	Gateway   *gateway.Gateway
	Admin     *admin.Admin
	Inspector *query.Inspector
	Directory directory
	Console   console

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
	replicas  *replicas.Local
	work      *maintenance.Work

	partitionsChanged, nodesChanged concurrency.Edge // signal changes of partitions here and of brokers' permanent keys to the session

	history  history
	answerer atomic.Pointer[func(ctx context.Context, question []byte) ([]byte, error)] // of the console here
	delayed  watchDelay
	failed   chan error // capacity 1
	stopping atomic.Bool
}

// Start opens the store, registers, and serves. When it returns, front ends may be opened. ctx only bounds the start.
func Start(ctx context.Context, o Options) (*Broker, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		o: o, log: o.Log, self: o.Node.Name, keys: metadata.Keys{Cluster: o.Cluster},
		tasks: concurrency.NewGroup(), dispatch: dispatch.New(o.Node.Name),
		partitionsChanged: concurrency.NewEdge(), nodesChanged: concurrency.NewEdge(), failed: make(chan error, 1),
	}
	b.catalog = catalog.New(b.keys, b.log)
	if err := b.start(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// start starts the components in their order; Close undoes it in reverse.
func (b *Broker) start(ctx context.Context) error {
	// 1. The name: no other broker may use it. The data path may be older than the cluster's record of this broker.
	restored, err := b.takeName(ctx)
	if err != nil {
		return err
	}
	// 2. The disk. The start is counted only once the disk is open: after a crash before that, the next start repeats
	// the check of step 1.
	if err := b.openStore(restored); err != nil {
		return err
	}
	if err := b.session.Announce(ctx); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	if err := b.session.CheckLevel(ctx); err != nil { // it may have been raised before Announce, not after
		return err
	}
	// 3. The incarnation of this run. Contact tracking begins before, so that a leader that never reaches its replicas
	// is fenced too.
	b.contact = session.NewContact(b.session)
	b.o.Metrics.Gauge("metadata_unheard_seconds", func() float64 { return b.contact.Unheard().Seconds() })
	if err := b.session.Register(ctx); err != nil {
		return err
	}
	b.o.Metrics.Add(metrics.EventRegistered, 1)
	// 4. The connections to other brokers, and the components. Nothing is received before all of them exist.
	b.rpc = rpc.New(rpc.Options{
		Self:   rpc.Hello{Cluster: b.o.Cluster, Node: b.self, Incarnation: b.session.Incarnation()},
		Listen: b.o.Listen, Handler: b.dispatch, TLS: b.o.TLS, Token: b.o.Token, Times: b.o.RPC, Dial: b.o.Dial, Log: b.log,
		Connections: b.o.Connections, Limits: calls.Limits, Registered: func(n ident.Node) ident.Incarnation {
			r, _ := b.catalog.LiveNode(n)
			return r.Incarnation
		},
	})
	b.makeEngine()
	b.dispatch.Open(b.rpc, b.makeComponents())
	// 5. The goroutines that drive them, and the first state of the watch with this broker in it.
	b.drive()
	b.report()
	return b.catalog.Await(ctx, func() bool {
		r, ok := b.catalog.LiveNode(b.self)
		return ok && r.Incarnation == b.Incarnation()
	})
}

// takeName makes the session, and reports whether the data path is a restored one.
func (b *Broker) takeName(ctx context.Context) (restored bool, err error) {
	file := b.o.NodeFile
	if file == nil {
		file, err = nodefile.Open(b.o.FS, b.o.Dir, b.o.Cluster, b.self)
	}
	if err != nil {
		return false, err
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

// errRestored is why the replicas of a restored data path are new members.
var errRestored = errors.New("coordinator: this data path is older than what the cluster has of this broker")

func (b *Broker) openStore(restored bool) error {
	var doubt error // the reason why the store must not trust its content
	if restored {
		doubt = errRestored
	}
	var slow time.Time // when a slow sync was last logged: at most once a second; calls do not overlap
	s, err := store.Open(store.Options{
		FS: b.o.FS, Dir: b.o.Dir, BootID: b.o.BootID, Mixed: b.o.NoSync,
		SegmentBytes: b.o.SegmentBytes, JournalBytes: b.o.JournalBytes, OpenFiles: b.o.OpenFiles, SyncTogether: b.o.SyncTogether,
		RepeatFor: time.Duration(b.o.Replica.RepeatMS) * time.Millisecond, Log: b.log, Compact: replicas.Compact, Doubt: doubt,
		Checkpointed: func(took time.Duration) { b.o.Metrics.Took(metrics.Checkpoint, took) },
		JournalSynced: func(took time.Duration) {
			b.o.Metrics.Took(metrics.JournalSync, took)
			if b.o.Slow != 0 && took >= b.o.Slow && time.Since(slow) >= time.Second {
				slow = time.Now()
				b.log.WithField("stage", "sync").WithField("took", took).Info("slow disk: every put waits for a sync of the journal")
			}
		},
	})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	b.store = s
	if err := s.Doubt(); err != nil {
		b.o.Events.Add(events.Event{
			Kind: events.Alarm, Code: events.DataMissing, State: "degraded", Broker: b.self, Where: []string{string(b.self)},
			Text: fmt.Sprintf("acknowledged data may be missing on the disk of %s: its replicas count as new, and are copied from the others (%s)", b.self, err),
			Do:   "nothing, if there are other replicas; replace a disk that loses data. docs/operations/failures.md, Disk",
		})
	}
	b.o.Metrics.Source([]string{"journal_syncs_total", "journal_bytes_total", "journal_busy_seconds", "damaged_places"}, func(emit metrics.Emit) {
		syncs, bytes := s.Journalled()
		emit("journal_syncs_total", float64(syncs))
		emit("journal_bytes_total", float64(bytes))
		emit("journal_busy_seconds", s.Busy().Seconds())
		places := 0
		for _, p := range s.Partitions() {
			places += len(p.Damaged())
		}
		emit("damaged_places", float64(places))
	})
	return nil
}
