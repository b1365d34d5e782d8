package gateway

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Core is the part of this broker that the gateway uses. Any goroutine may call its methods. Only those with a context
// block.
type Core interface {
	Self() ident.Node
	Incarnation() ident.Incarnation // of the newest registration
	// Changed is closed at the next change of the metadata, of a leadership or of the peers.
	Changed() <-chan struct{}
	// Topic looks a topic up in the watched metadata.
	Topic(name string) (metadata.TopicState, bool)
	// EnsureTopic creates the topic if that is allowed, and returns once the watched metadata has it. Of several
	// callers, one at a time tries to create it.
	EnsureTopic(ctx context.Context, name string) error
	// Leader is the leadership in the metadata; false while that incarnation is not live.
	Leader(p ident.Partition) (Leadership, bool)
	// Leads reports whether this broker leads p and its marker is committed.
	Leads(p ident.Partition) bool
	// Replicates reports whether a minimum of p's in-sync set answers this broker.
	Replicates(p ident.Partition) bool
	// Queue returns the channels of a local replica.
	Queue(p ident.Partition) (*nsqd.Partition, bool)
	// Propose submits a put to the core loop. c.Complete is called exactly once.
	Propose(p ident.Partition, d queue.Draft, c outcome.Completer)
	// Flush must follow Propose once the caller has no lock: it may wait for the disk.
	Flush()
	// CreateChannel makes the channel exist cluster-wide and returns once every partition's leader has replicated its
	// position. Idempotent.
	CreateChannel(ctx context.Context, topic, channel, from string, ordered bool) error
	// RepositionChannel is CreateChannel, and moves a channel that has no consumers, in one partition or in all (-1).
	RepositionChannel(ctx context.Context, topic, channel, from string, partition int, ordered bool) error
	// ChannelMissing reports that a leader does not have a channel that CreateChannel has created: the next CreateChannel
	// creates it again.
	ChannelMissing(topic ident.TopicID, channel string)
	// Filter is the text of a channel's filter; "": it has none, or there is no such channel.
	Filter(topic ident.TopicID, channel string) string
	// AskSettle asks the leader of a partition to settle receipts.
	AskSettle(ctx context.Context, req calls.SettleRequest) (calls.SettleReply, error)
}

// Leadership is the leader of a partition.
type Leadership = catalog.Leadership

// transport carries frames to other brokers; rpc.Transport is one.
type transport interface {
	// Send never blocks. An error means that the frame was not sent.
	Send(to ident.Node, f rpc.Frame) error
	// Queue is like Send, but the frame is sent by the next Flush, which does not block either. Together they send an
	// uncontended frame without waking a goroutine.
	Queue(to ident.Node, f rpc.Frame) error
	Flush(to ident.Node)
	// Up reports whether the node answers at present.
	Up(n ident.Node) bool
}

// DefaultPutLimit is used if Options.PutLimit is zero.
const DefaultPutLimit = 9 * time.Second

const (
	resendAfter = 2 * time.Second        // an unanswered forward is sent again
	maxPause    = 100 * time.Millisecond // between retries of a put
	reclaimTime = 2 * time.Second        // the messages of a disconnected edge stay in flight at the leader
	putBytes    = 256 << 20              // of unanswered puts; at twice this limit puts are refused
)

// Options of a gateway. Zero values take the defaults of coordinator/replica/DESIGN.md 4.7.
type Options struct {
	PutLimit     time.Duration     // 9 s: the longest wait of a producer
	Hold         time.Duration     // 3 s: then "not enough replicas" is final
	MaxConsumers int               // subscriptions of one channel at this broker; 0: no limit
	Metrics      *metrics.Recorder // nil: nothing is recorded
	Log          logrus.FieldLogger
}

// Gateway is the edge of one broker. New starts it, Close ends it.
type Gateway struct {
	core      Core
	transport transport
	o         Options
	start     time.Time // the origin of the gateway's times

	requests atomic.Uint64        // the last request number
	rotation atomic.Uint32        // round robin over partitions
	pending  concurrency.InFlight // unanswered puts
	proposed concurrency.InFlight // puts of other brokers' clients that are proposed here
	asleep   atomic.Bool          // the keeper sleeps, so a put must wake it
	budget   *putBudget
	rates    limits.Rates[ident.TopicID]
	out      *sender
	subs     *subscriptions
	server   *relayServer

	wakeUp concurrency.Edge // wakes the keeper
	done   chan struct{}    // closed by Close
	wg     sync.WaitGroup

	mu struct {
		sync.RWMutex
		closed bool
		queues map[ident.Partition]*putQueue
	}
}

// New starts a gateway.
func New(core Core, t transport, o Options) *Gateway {
	o.PutLimit, o.Hold = cmp.Or(o.PutLimit, DefaultPutLimit), cmp.Or(o.Hold, 3*time.Second)
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	g := &Gateway{
		core: core, transport: t, o: o, start: time.Now(),
		budget: &putBudget{limit: putBytes},
		wakeUp: concurrency.NewEdge(), done: make(chan struct{}),
	}
	g.mu.queues = make(map[ident.Partition]*putQueue)
	g.out = newSender(g)
	g.subs = newSubscriptions(g)
	g.server = &relayServer{g: g}
	g.server.mu.sessions = make(map[ident.Node]*relaySession)
	g.wg.Add(2)
	go g.run()
	go g.out.run()
	return g
}

// Close ends all subscriptions, answers every waiting put, and returns when the gateway's goroutines have ended. Later
// completions are ignored.
func (g *Gateway) Close() error {
	g.mu.Lock()
	if g.mu.closed {
		g.mu.Unlock()
		return nil
	}
	g.mu.closed = true
	g.mu.Unlock()
	g.subs.close()
	g.server.close()
	close(g.done)
	g.wg.Wait()
	for _, q := range g.allQueues() {
		q.giveUp(outcome.ErrExiting, func(*put) bool { return true })
	}
	return nil
}

// run is the background goroutine, the keeper. New starts it, Close ends it. It retries parked puts, gives up late
// ones, and attaches subscriptions again.
func (g *Gateway) run() {
	defer g.wg.Done()
	timer := time.NewTimer(maxPause)
	defer timer.Stop()
	changed := g.core.Changed()
	for {
		select {
		case <-g.done:
			return
		case <-changed:
			changed = g.core.Changed() // first, so that the next change is not missed
			g.clusterChanged()
		case <-g.wakeUp:
		case <-timer.C:
		}
		pause, needed := g.runDue()
		g.asleep.Store(!needed) // before pending is read, so that any later put wakes the keeper
		if needed || g.pending.N() > 0 {
			timer.Reset(pause)
		} else {
			timer.Stop()
		}
	}
}

// clusterChanged ends the pauses of parked puts, and gives up the attempts whose leader was replaced.
func (g *Gateway) clusterChanged() {
	for _, q := range g.allQueues() {
		q.retryNow()
		if to, ok := g.core.Leader(q.id); ok {
			q.lostAttempts(func(p *put) bool {
				return p.current.Epoch <= to.Epoch && (p.current.Node != to.Node || p.current.Incarnation != to.Incarnation)
			})
		}
		if g.deleted(q) {
			g.drop(q)
		}
	}
	for _, sub := range g.subs.list() {
		sub.reconcile(true)
	}
}

// runDue does all work that is due. It returns how long run may sleep, and whether there is any work that needs it.
func (g *Gateway) runDue() (time.Duration, bool) {
	now, pause := g.now(), maxPause
	needed := g.subs.runDue(now)
	needed = g.server.runDue(now) || needed
	needed = g.budget.admit() || needed
	if at := time.Duration(g.subs.next.Load()); at > 0 {
		pause = min(pause, max(at-now, time.Millisecond))
	}
	if g.pending.N() == 0 {
		return pause, needed
	}
	for _, q := range g.allQueues() {
		if at, parked := q.runDue(now); parked && at > now {
			pause = min(pause, at-now)
		}
	}
	return max(pause, time.Millisecond), true
}

// answer gives the result of a put to its Answerer, and releases the put's memory.
func (g *Gateway) answer(a answer) {
	g.pending.Leave()
	g.budget.give(int64(a.put.draft.Size()))
	g.o.Metrics.Answered(a.result.Err)
	a.put.answerer.Answer(a.result)
}

func (g *Gateway) knownQueue(id ident.Partition) *putQueue {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.mu.queues[id]
}

func (g *Gateway) queueOf(topic string, id ident.Partition) *putQueue {
	q := g.knownQueue(id)
	if q != nil {
		return q
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if q = g.mu.queues[id]; q == nil {
		q = &putQueue{gateway: g, topic: topic, id: id}
		q.mu.byN = make(map[uint64]*put)
		g.mu.queues[id] = q
	}
	return q
}

// deleted reports whether the queue's topic was deleted. A newer topic may have the same name.
func (g *Gateway) deleted(q *putQueue) bool {
	t, ok := g.core.Topic(q.topic)
	return !ok || t.ID != q.id.Topic
}

func (g *Gateway) drop(q *putQueue) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q.retire() {
		delete(g.mu.queues, q.id)
	}
}

// HandleFrame handles a frame of ClassForward or ClassRelay. It is called on the peer's reader goroutine, in order, and
// does not block.
func (g *Gateway) HandleFrame(from ident.Node, _ ident.Incarnation, f rpc.Received) {
	var h wire.Header
	err := h.Decode(f.Header)
	if err == nil {
		err = g.handle(from, f.Class, h, f.Payload)
	}
	if err != nil {
		g.o.Log.WithError(err).WithField("node", from).Warn("frame of a peer dropped: it cannot be decoded")
	}
}

// handle handles a frame about puts, or about streams: either of the peer's subscriptions on this broker or of this
// broker's subscriptions on the peer.
func (g *Gateway) handle(from ident.Node, class rpc.Class, h wire.Header, payload []byte) error {
	switch forward := class == rpc.ClassForward; {
	case forward && h.Kind == wire.FramePuts:
		return g.proposeAll(from, payload, h.Count)
	case forward && h.Kind == wire.FrameReplies:
		return g.takeReplies(h, payload)
	case !forward && h.Kind == wire.FrameDeliver:
		g.o.Metrics.Add(metrics.MessagesRelayed, h.Count)
		return g.subs.deliver(payload, h.Count)
	case !forward && (h.Kind == wire.FrameOpen || h.Kind == wire.FrameVerbs):
		list, err := wire.DecodeVerbs(payload, h.Count)
		switch {
		case err != nil:
			return err
		case h.Kind == wire.FrameVerbs:
			g.handleVerbs(from, list)
		case h.Open == nil || len(h.Open.TopicName) > wire.MaxName || len(h.Open.Channel) > wire.MaxName:
			return fmt.Errorf("%w: opening", wire.ErrFrame)
		default:
			g.server.open(from, h.Open, list)
		}
		return nil
	}
	return fmt.Errorf("%w: kind %d in class %d", wire.ErrFrame, h.Kind, class)
}

func (g *Gateway) handleVerbs(from ident.Node, list []wire.Verb) {
	for _, v := range list {
		if v.Kind >= wire.VerbRevoked {
			g.subs.handle(v)
		} else {
			g.server.handle(from, v)
		}
	}
}

// PeerDown reports that a node no longer answers. The gateway retries the puts that the node has not answered, and its
// streams stay for the reclaim time.
func (g *Gateway) PeerDown(node ident.Node) {
	for _, q := range g.allQueues() {
		q.lostAttempts(func(p *put) bool { return p.current.Node == node })
	}
	for _, sub := range g.subs.list() {
		sub.detach(node)
	}
	if rs := g.server.known(node); rs != nil {
		rs.disconnect()
	}
	g.wake()
}

func (g *Gateway) wake() { g.wakeUp.Notify() }

func (g *Gateway) now() time.Duration { return time.Since(g.start) }

func (g *Gateway) allQueues() []*putQueue {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.AppendSeq(make([]*putQueue, 0, len(g.mu.queues)), maps.Values(g.mu.queues))
}
