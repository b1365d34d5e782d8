package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/sirupsen/logrus"
)

// maxLoops bounds the core loops. There are half as many as processors: the sockets need the rest, and with more loops
// each pass would have less work to share.
const maxLoops = 4

// journal makes writes durable. *store.Store implements it, and documents the methods.
type journal interface {
	Queue(subs []store.Submission, sink store.Sink, token uint64) (flush bool)
	Flush()
	Wake()
}

// transport sends frames to other brokers without blocking; *rpc.Transport is one.
type transport interface {
	// Send sends a frame, or returns why it was not sent.
	Send(to ident.Node, f rpc.Frame) error
	// Queue is Send of a frame that goes with the next Flush.
	Queue(to ident.Node, f rpc.Frame) error
	Flush(to ident.Node)
}

// proposer carries out compare-and-swaps on partition keys. The answer comes as an event.
type proposer interface {
	Propose(id ident.Partition, c replica.CAS)
}

// diskReserve reports which brokers are below their disk reserve.
type diskReserve interface {
	// Short reports whether some member of an in-sync set is below its reserve. It is called for each put.
	Short(isr []ident.Member) bool
}

// reachability reports which brokers this one reaches, for the fences of the partitions led here.
type reachability interface {
	// Up reports whether a broker answers; this one does.
	Up(n ident.Node) bool
	// AllUp reports whether all brokers of the cluster answer.
	AllUp() bool
	// Named is the last time, at most now, at which the metadata confirmed this broker's registration.
	Named(now time.Time) time.Time
}

// Options of an engine. Linger, Silent, Metrics, Self and Events may be left out.
type Options struct {
	Journal      journal
	Transport    transport
	Proposer     proposer
	Reserve      diskReserve
	Reachability reachability
	// Moved is called when the role, epoch or leader of a replica here has changed, and when a replica is removed.
	Moved func()
	// Dead is called when some channel of a partition has messages that failed too often.
	Dead func(*Partition)
	// Linger is the least time between two passes of a loop, so that they share more work.
	Linger time.Duration
	// Trace returns the function to call when a put is committed, or nil if the put is not traced. Neither may block.
	Trace func(*queue.Draft) func(Stages)
	// Slow is the duration from which a put is logged with its slowest stage; 0 = never.
	Slow time.Duration
	// CatchUpRate limits the bytes a second read here for followers that catch up; 0 = no limit.
	CatchUpRate int64
	// Silent is how long the transport counts a silent peer as up; 0 = its default.
	Silent  time.Duration
	Metrics *metrics.Recorder
	Self    ident.Node       // this broker's name in events
	Events  *events.Recorder // may be nil
	Log     logrus.FieldLogger
}

// Engine runs the partitions on this broker. Make it with New, end it with Stop.
type Engine struct {
	o          *Options
	loops      []*loop
	flusher    *flusher
	reader     *reader
	pace       *pace
	partitions registry
	deadlines  deadlines
	near       *nearTimer
	changes    *changes
	fence      atomic.Int64 // shared by all partitions led here while every broker answers; unix ns
}

// New starts an engine without partitions.
func New(o Options) *Engine {
	e := &Engine{o: &o, reader: newReader(o.CatchUpRate), pace: newPace(), near: newNearTimer(), changes: &changes{}, flusher: &flusher{journal: o.Journal}}
	for range min(maxLoops, (runtime.GOMAXPROCS(0)+1)/2) {
		e.loops = append(e.loops, newLoop(&o, e.reader, e.pace))
	}
	e.flusher.loops = e.loops
	for _, l := range e.loops {
		l.flusher, l.changes = e.flusher, e.changes
		go l.work()
	}
	return e
}

// Stop ends the engine. RunClock and RunNearTimer must have returned. Every put and every change that waits is
// answered.
func (e *Engine) Stop() {
	for _, l := range e.loops {
		l.stop()
	}
	e.changes.log(e.o.Log, time.Now().Add(changesMost))
	e.reader.stop()
}

// loopOf is the core loop of a partition. It never changes. Topic ids are random, so partitions spread evenly.
func (e *Engine) loopOf(p ident.Partition) *loop {
	return e.loops[(uint64(p.Topic)+uint64(p.Number))%uint64(len(e.loops))]
}

// Post passes an event to the machine of a partition, if it is hosted here.
func (e *Engine) Post(p ident.Partition, ev replica.Event) { e.loopOf(p).post(p, ev) }
