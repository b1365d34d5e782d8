package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster in one process: brokers with a gateway each, a log per partition that all of them share
// (replication is not under test here), and a network that keeps order and can fail.
type world struct {
	t       testing.TB
	mu      sync.Mutex
	topics  map[string]metadata.TopicState
	leaders map[ident.Partition]Leadership
	logs    map[ident.Partition]*sharedLog
	epoch   ident.Epoch
	changed chan struct{}
	brokers map[ident.Node]*broker
	pipes   map[[2]ident.Node]*pipe
}

// broker is one member: the Core of its gateway.
type broker struct {
	w    *world
	name ident.Node
	inc  ident.Incarnation
	gw   *Gateway
	loop *mailbox

	metrics *metrics.Recorder

	electing atomic.Bool                // named by the metadata, serves nothing
	alone    atomic.Bool                // none of its replicas answers
	lags     atomic.Pointer[Leadership] // the leader as its metadata still names it; nil = as it is

	mu     sync.Mutex
	judge  func(n int, d queue.Draft) (outcome.Outcome, bool) // overrides the n-th proposal's fate; false = silence
	n      int
	queues map[ident.Partition]*nsqd.Partition
	dead   bool
}

// mailbox runs functions one after the other in its own goroutine.
type mailbox struct {
	mu    sync.Mutex
	todo  []func()
	wake  chan struct{}
	over  chan struct{}
	ended chan struct{}
}

func newMailbox() *mailbox {
	m := &mailbox{wake: make(chan struct{}, 1), over: make(chan struct{}), ended: make(chan struct{})}
	go m.run()
	return m
}

func (m *mailbox) post(f func()) {
	m.mu.Lock()
	m.todo = append(m.todo, f)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) run() {
	defer close(m.ended)
	for {
		select {
		case <-m.over:
			return
		case <-m.wake:
		}
		m.mu.Lock()
		todo := m.todo
		m.todo = nil
		m.mu.Unlock()
		for _, f := range todo {
			f()
		}
	}
}

func (m *mailbox) close() { close(m.over); <-m.ended }

// pipe carries frames from one broker to another.
type pipe struct {
	box  *mailbox
	mu   sync.Mutex
	down bool                   // Send returns ErrDown
	full bool                   // Send returns ErrWindow
	lose func(f rpc.Frame) bool // true: sent and never arrives
	sent int
	now  int // of those: queued and flushed
}

// sharedLog is the committed log of one partition.
type sharedLog struct {
	mu       sync.Mutex
	messages []queue.Message
	size     ident.Offset
	byID     map[ident.RequestID]ident.Sequence
	recent   []ident.RequestID // those in byID: the last 4096, as a leader keeps them
	onRead   func()            // happens once while the next Read is in progress
}

func newWorld(t testing.TB, names ...ident.Node) *world {
	w := &world{
		t: t, topics: map[string]metadata.TopicState{}, leaders: map[ident.Partition]Leadership{},
		logs: map[ident.Partition]*sharedLog{}, changed: make(chan struct{}),
		brokers: map[ident.Node]*broker{}, pipes: map[[2]ident.Node]*pipe{},
	}
	for i, name := range names {
		b := &broker{w: w, name: name, inc: ident.Incarnation(100 + i), loop: newMailbox()}
		b.queues = map[ident.Partition]*nsqd.Partition{}
		w.brokers[name] = b
		for _, other := range names {
			if other != name {
				w.pipes[[2]ident.Node{name, other}] = &pipe{box: newMailbox()}
			}
		}
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	for _, b := range w.brokers {
		b.metrics = metrics.New(1)
		b.gw = New(b, links{b}, Options{Log: quiet, Metrics: b.metrics})
	}
	return w
}

func (w *world) close() {
	for _, b := range w.brokers {
		require.NoError(w.t, b.gw.Close())
	}
	for _, p := range w.pipes {
		p.box.close()
	}
	for _, b := range w.brokers {
		b.loop.close()
	}
}

// topic makes a topic whose partitions are led by the given brokers.
func (w *world) topic(name string, leaders ...ident.Node) metadata.TopicState {
	w.mu.Lock()
	t := metadata.TopicState{ID: ident.TopicID(0xabc0 + len(w.topics)), Partitions: len(leaders)}
	w.topics[name] = t
	for n := range leaders {
		w.logs[t.Partition(n)] = &sharedLog{byID: map[ident.RequestID]ident.Sequence{}}
	}
	w.mu.Unlock()
	for n, leader := range leaders {
		w.lead(t.Partition(n), leader)
	}
	return t
}

// lead makes a broker the leader of a partition, or nobody with "".
func (w *world) lead(p ident.Partition, leader ident.Node) {
	w.mu.Lock()
	w.epoch++
	old := w.leaders[p]
	delete(w.leaders, p)
	epoch := w.epoch
	if leader != "" {
		w.leaders[p] = Leadership{Node: leader, Incarnation: w.brokers[leader].inc, Epoch: epoch}
	}
	before := w.brokers[old.Node]
	name := ""
	for topic, t := range w.topics {
		if t.ID == p.Topic {
			name = topic
		}
	}
	w.mu.Unlock()
	if before != nil {
		before.unlead(p)
	}
	if leader != "" {
		w.brokers[leader].serve(name, p, epoch)
	}
	w.tell()
}

// tell fires Changed.
func (w *world) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}

// kill disconnects a broker and notifies its peers that it is down.
func (w *world) kill(name ident.Node) {
	w.brokers[name].mu.Lock()
	w.brokers[name].dead = true
	w.brokers[name].mu.Unlock()
	w.setDown(name, true)
}

// setDown breaks or mends all connections of a broker.
func (w *world) setDown(name ident.Node, down bool) {
	for pair, p := range w.pipes {
		if pair[0] == name || pair[1] == name {
			p.mu.Lock()
			p.down = down
			p.mu.Unlock()
		}
	}
	if down {
		for other, b := range w.brokers {
			if other != name {
				b.gw.PeerDown(name)
				w.brokers[name].gw.PeerDown(other)
			}
		}
	}
	w.tell()
}

func (b *broker) proposed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

func (p *pipe) setLose(lose func(rpc.Frame) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = lose
}

// set changes the answer of Send.
func (p *pipe) set(down, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down, p.full = down, full
}

func (w *world) pipe(from, to ident.Node) *pipe { return w.pipes[[2]ident.Node{from, to}] }

// links is a broker's transport.
type links struct{ b *broker }

func (t links) Up(n ident.Node) bool {
	p := t.b.w.pipe(t.b.name, n)
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.down
}

func (t links) Queue(to ident.Node, f rpc.Frame) error { return t.Send(to, f) }

func (t links) Flush(to ident.Node) {
	p := t.b.w.pipe(t.b.name, to)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now++
}

func (t links) Send(to ident.Node, f rpc.Frame) error {
	p := t.b.w.pipe(t.b.name, to)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return rpc.ErrDown
	}
	if p.full {
		return rpc.ErrWindow
	}
	p.sent++
	if p.lose != nil && p.lose(f) {
		return nil
	}
	header, err := rpc.Marshal(f.Header)
	if err != nil {
		return err
	}
	payload := bytes.Join(f.Payload, nil)
	from, target := t.b, t.b.w.brokers[to]
	p.box.post(func() {
		target.mu.Lock()
		dead := target.dead
		target.mu.Unlock()
		if !dead {
			target.gw.HandleFrame(from.name, from.inc, rpc.Received{Class: f.Class, Header: header, Payload: payload})
		}
	})
	return nil
}

// broker implements Core.

func (b *broker) Self() ident.Node               { return b.name }
func (b *broker) Incarnation() ident.Incarnation { return b.inc }

func (b *broker) Topic(name string) (metadata.TopicState, bool) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	t, ok := b.w.topics[name]
	return t, ok
}

func (b *broker) EnsureTopic(_ context.Context, name string) error {
	b.w.topic(name, b.name)
	return nil
}

func (b *broker) Leader(p ident.Partition) (Leadership, bool) {
	if old := b.lags.Load(); old != nil {
		return *old, true
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	l, ok := b.w.leaders[p]
	return l, ok
}

func (b *broker) Leads(p ident.Partition) bool {
	l, ok := b.Leader(p)
	return ok && l.Node == b.name && !b.electing.Load()
}

func (b *broker) Replicates(ident.Partition) bool { return !b.alone.Load() }

func (b *broker) Changed() <-chan struct{} {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	return b.w.changed
}

func (b *broker) Flush() {}

func (b *broker) AskSettle(_ context.Context, req calls.SettleRequest) (calls.SettleReply, error) {
	b.w.mu.Lock()
	to, ok := b.w.leaders[req.Partition]
	b.w.mu.Unlock()
	if !ok {
		return calls.SettleReply{}, outcome.ErrUnavailable
	}
	return b.w.brokers[to.Node].gw.SettleLed(req)
}

func (b *broker) Propose(p ident.Partition, d queue.Draft, c outcome.Completer) {
	b.loop.post(func() {
		b.mu.Lock()
		judge, n := b.judge, b.n
		b.n++
		b.mu.Unlock()
		if judge != nil {
			if o, speak := judge(n, d); o != 0 {
				if speak {
					c.Complete(outcome.Completion{Outcome: o})
				}
				return
			}
		}
		if !b.Leads(p) {
			c.Complete(outcome.Completion{Outcome: outcome.NotLeader})
			return
		}
		c.Complete(b.w.commit(p, d))
		b.advance(p)
	})
}

// commit appends a put to the partition's log, unless it is there already.
func (w *world) commit(p ident.Partition, d queue.Draft) outcome.Completion {
	w.mu.Lock()
	log := w.logs[p]
	w.mu.Unlock()
	log.mu.Lock()
	defer log.mu.Unlock()
	if first, ok := log.byID[d.Request]; ok {
		return outcome.Completion{Outcome: outcome.Duplicate, First: first}
	}
	first := ident.Sequence(len(log.messages))
	batch := d.Seal(ident.Position{Offset: log.size, Sequence: first}, 1, 0, time.Now().UnixNano())
	log.messages = batch.Messages(first, int(d.Count), log.messages)
	log.size = batch.End.Offset
	log.byID[d.Request] = first
	log.recent = append(log.recent, d.Request)
	if len(log.recent) > 4096 {
		delete(log.byID, log.recent[0])
		log.recent = log.recent[1:]
	}
	return outcome.Completion{Outcome: outcome.Committed, First: first}
}

func (w *world) bodies(p ident.Partition) []string {
	w.mu.Lock()
	log := w.logs[p]
	w.mu.Unlock()
	log.mu.Lock()
	defer log.mu.Unlock()
	var out []string
	for _, m := range log.messages {
		out = append(out, string(m.Body))
	}
	return out
}

// answers collects results.
type answers struct {
	mu  sync.Mutex
	got []api.PutResult
	at  []time.Time
}

// publish puts messages into "orders" at a broker, without waiting.
func (w *world) publish(at ident.Node, bodies ...string) *answers {
	a := &answers{}
	for _, body := range bodies {
		w.brokers[at].put(a, "orders", body)
	}
	return a
}

func (a *answers) Answer(r api.PutResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, r)
	a.at = append(a.at, time.Now())
}

func (a *answers) all() []api.PutResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.got)
}

func draft(bodies ...string) queue.Draft {
	b := queue.NewDraft(16)
	for _, s := range bodies {
		_ = b.AddMessage(queue.Message{Body: []byte(s)})
	}
	return b.Draft(ident.RequestID{})
}

func (b *broker) put(a api.Answerer, topic string, bodies ...string) {
	b.gw.Publish(topic, api.AnyPartition, nil, draft(bodies...), a)
}

// told reports whether one of the broker's puts got this answer, by its metrics.
func (b *broker) told(answer string) bool {
	w := httptest.NewRecorder()
	b.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return strings.Contains(w.Body.String(), `lockstep_puts_total{answer="`+answer+`"} 1`)
}

// tick is the brokers' timers: it lets time pass and fires the ones that are due.
func (w *world) tick(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond) // the pause between two ticks
		for _, b := range w.brokers {
			for id, q := range b.all() {
				if l, ok := b.Leader(id); ok && l.Node == b.name {
					q.Flush()
					q.Expire(time.Now().UnixNano())
				}
			}
		}
	}
}

// inBubble runs a test with a cluster in a synctest bubble.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "n1", "n2", "n3")
		defer w.close()
		f(t, w)
	})
}
