package coordinator

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/metrics"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/sirupsen/logrus"
)

// maxLoops bounds the core loops; more do not help, a partition is on one. There
// are half as many as processors: the sockets need the others, and what one loop
// does in one pass two would do in two.
const maxLoops = 4

// Broker is one broker of a cluster. Start makes one; Stop ends it gently, Close
// abruptly.
type Broker struct {
	o       Options
	log     logrus.FieldLogger
	self    ident.Node
	keys    meta.Keys
	meta    meta.Store
	store   *store.Store
	catalog *catalog
	session *session
	members *membership
	rpc     *rpc.Transport
	gateway *gateway.Gateway

	loops    []*loop
	reader   *reader
	proposer *proposer
	moved    *signal
	reach    chan struct{} // capacity 1: who answers has changed; for watch
	creating *flights
	wanted   *wantedChannels
	hidden   *tombstones
	placed   *placedChannels
	failed   chan error // capacity 1
	stopping atomic.Bool
	contact  contact
	marks    *marks // the controller's goroutine alone has it
	space    *space
	agenda   agenda
	pace     *pace
	asking   chan struct{} // a place for each call that may wait for a leader's replicas
	making   chan struct{} // a place for each topic that is being made
	soon     *soon
	fence    atomic.Int64 // of all partitions led here, while every broker answers
	dead     atomic.Bool  // some hosted.dead is set

	ctx     context.Context //nolint:containedctx // the broker's life, cancelled by Close
	cancel  context.CancelFunc
	done    sync.WaitGroup
	opening [openers]sync.Mutex // by partition; see turn
	mu      struct {
		sync.RWMutex
		closed bool
		hosts  map[ident.Partition]*hosted
		list   []*hosted // of hosts, sorted; replaced, never changed
	}
}

// Start opens the store, registers, and serves. Edges may be opened when it
// returns. ctx bounds the start alone.
func Start(ctx context.Context, o Options) (*Broker, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b := newBroker(o)
	if err := b.start(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func newBroker(o Options) *Broker {
	b := &Broker{
		o: o, log: o.Log, self: o.Node.Name, keys: meta.Keys{Cluster: o.Cluster}, meta: o.Meta,
		moved: newSignal(), reach: make(chan struct{}, 1), creating: newFlights(), wanted: newWanted(), placed: newPlaced(), hidden: newTombstones(o.TombstoneLifetime), space: newSpace(), soon: newSoon(),
		pace:   newPace(),
		asking: make(chan struct{}, askers), making: make(chan struct{}, makers),
		failed: make(chan error, 1),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.mu.hosts = map[ident.Partition]*hosted{}
	b.catalog = newCatalog(b.keys, b.log)
	b.members = newMembership(b)
	b.session = &session{
		store: o.Meta, keys: b.keys, node: o.Node, log: b.log,
		ttl: max(1, int64((o.SessionTTL+time.Second-1)/time.Second)),
	}
	return b
}

// start is the order in which a broker comes up; Close undoes it backwards.
func (b *Broker) start(ctx context.Context) error {
	// 1. Is this data path what the cluster knows of it, or a restored one?
	path := nodeFile{fs: b.o.FS, dir: b.o.Dir, cluster: b.o.Cluster}
	local, err := path.load(b.self)
	if err != nil {
		return err
	}
	restored, err := b.session.restored(ctx, local)
	if err != nil {
		return err
	}
	if err := b.checkLevel(ctx); err != nil {
		return err
	}
	// 2. What is on the disk. Only when that is settled does the path count as
	// started: a crash before asks the same question again.
	if err := b.openStore(restored); err != nil {
		return err
	}
	if err := b.session.announce(ctx, local, func(boot int64) error { return path.save(b.self, boot) }); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	if err := b.checkLevel(ctx); err != nil { // it may have been raised until now, not from now on
		return err
	}
	// 3. Who we are in this run: the incarnation. The metadata has answered from
	// here on: a leader that never reaches its replicas has a fence too.
	b.contact.since = time.Now()
	b.o.Metrics.Gauge("metadata_unheard_seconds", "How long the metadata has not answered; 0 if for less than --session-ttl.", func() float64 {
		return b.metadataUnheard().Seconds()
	})
	if err := b.session.registerUntil(ctx); err != nil {
		return err
	}
	b.o.Metrics.Event(metrics.EventRegistered)
	// 4. The other brokers.
	b.rpc = rpc.New(rpc.Options{
		Self:   rpc.Hello{Cluster: b.o.Cluster, Node: b.self, Incarnation: b.session.incarnation()},
		Listen: b.o.Listen, Handler: b.members, TLS: b.o.TLS, Token: b.o.Token, Times: b.o.RPC, Dial: b.o.Dial, Log: b.log,
	})
	b.gateway = gateway.New(b, b.rpc, b.o.Gateway)
	// 5. The machines and what drives them.
	b.startLoops()
	b.background(b.watch)
	b.background(b.keepRegistered)
	b.background(b.keepCounting)
	b.background(b.keepTime)
	b.background(b.soon.keep)
	b.background(b.keepRetention)
	b.background(b.keepDead)
	b.background(b.keepContact)
	b.background(b.keepSpace)
	b.background(b.keepUnreached)
	b.background(b.keepUnhindered)
	b.background(b.keepWhole)
	b.background(b.runController)
	return b.awaitCatalog(ctx)
}

func (b *Broker) startLoops() {
	b.reader = newReader()
	b.proposer = &proposer{
		store: b.meta, keys: b.keys, self: b.self, inc: b.session.incarnation,
		catalog: b.catalog, post: b.post, log: b.log,
	}
	b.proposer.start()
	for range min(maxLoops, (runtime.GOMAXPROCS(0)+1)/2) {
		l := newLoop(&loop{
			journal: b.store, peers: b.rpc, reader: b.reader, proposer: b.proposer,
			moved: b.moved, space: b.space, pace: b.pace, metrics: b.o.Metrics, linger: b.o.Linger, log: b.log, failed: b.fail,
		})
		b.loops = append(b.loops, l)
		go l.run()
	}
}

// awaitCatalog waits for the first state of the watch with this broker in it.
func (b *Broker) awaitCatalog(ctx context.Context) error {
	return b.await(ctx, func() bool {
		r, ok := b.catalog.liveNode(b.self)
		return ok && r.Incarnation == b.Incarnation()
	})
}

// await waits until ok, which is asked again after each change. ErrUnavailable: it has
// not come about in time.
func (b *Broker) await(ctx context.Context, ok func() bool) error {
	for {
		changed := b.Changed()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: this broker has not heard of the change: %w", edge.ErrUnavailable, ctx.Err())
		case <-b.ctx.Done():
			return fmt.Errorf("%w: %w", edge.ErrUnavailable, context.Canceled)
		}
	}
}

// background runs f in a goroutine that Close waits for; f ends with its ctx.
func (b *Broker) background(f func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.closed {
		b.done.Go(func() { f(b.ctx) })
	}
}

// loopOf is where a partition lives, for ever.
func (b *Broker) loopOf(p ident.Partition) *loop {
	return b.loops[hash(p)%uint64(len(b.loops))]
}

// post hands an event to the machine of a partition, if it is hosted.
func (b *Broker) post(p ident.Partition, ev replica.Event) { b.loopOf(p).post(p, ev) }

// host finds a partition hosted here.
func (b *Broker) host(p ident.Partition) (*hosted, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	h, ok := b.mu.hosts[p]
	return h, ok
}

// hosted lists the partitions hosted here, sorted. The list is shared: it must
// not be changed.
func (b *Broker) hosted() []*hosted {
	b.mu.RLock()
	list := b.mu.list
	b.mu.RUnlock()
	if list != nil {
		return list
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.list == nil {
		b.mu.list = slices.SortedFunc(maps.Values(b.mu.hosts), func(x, y *hosted) int { return comparePartitions(x.id, y.id) })
	}
	return b.mu.list
}

// hostedOf lists a topic's partitions that are hosted here.
func (b *Broker) hostedOf(t meta.TopicState) []*hosted {
	var list []*hosted
	for n := range t.Partitions {
		if h, ok := b.host(ident.Partition{Topic: t.ID, Number: uint16(n)}); ok {
			list = append(list, h)
		}
	}
	return list
}

// setHost hosts a partition, or no more if h is nil. The list is made anew when
// somebody asks, so that the many who walk it need no lock, and thousands that
// are made in a row are not sorted thousands of times.
func (b *Broker) setHost(p ident.Partition, h *hosted) (was *hosted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was = b.mu.hosts[p]
	if h != nil {
		b.mu.hosts[p] = h
	} else {
		delete(b.mu.hosts, p)
	}
	b.mu.list = nil
	return was
}

// hash spreads partitions over loops: those of one topic follow each other, and
// topic ids are random.
func hash(p ident.Partition) uint64 { return uint64(p.Topic) + uint64(p.Number) }

func hashText(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}
