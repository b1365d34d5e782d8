package engine

import (
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// eventKind says which fields of an event are set.
type eventKind uint8

const (
	eventStep      eventKind = iota + 1 // step the machine
	eventPut                            // draft, done and at
	eventChange                         // delta and done
	eventSynced                         // token and err: a submission of the loop is durable
	eventAdd                            // host a partition
	eventRetire                         // stop hosting it; ack is closed afterwards
	eventBarrier                        // ack is closed when all events before it took effect
	eventFollowers                      // refresh Partition.followers
)

// event is one entry of a loop's queue. It is a struct, not an interface, so that a put allocates nothing here.
type event struct {
	kind      eventKind
	id        ident.Partition
	step      replica.Event
	draft     queue.Draft
	done      outcome.Completer // of a change: nil if nothing waits
	at        time.Time         // of a put: when it was submitted
	delta     []byte
	token     uint64
	err       error
	partition *Partition
	ack       chan struct{}
}

// eventQueue is a loop's input. Writers never block, and the queue has no limit of its own: gateways admit only so many
// puts, and replicas send only within their windows.
type eventQueue struct {
	wake concurrency.Edge // there are events
	mu   struct {
		sync.Mutex
		events []event
		closed bool
	}
}

func newEventQueue() *eventQueue { return &eventQueue{wake: concurrency.NewEdge()} }

// enqueue adds an event and wakes the loop's goroutine; false after close.
func (q *eventQueue) enqueue(e event) bool {
	first, open := q.add(e)
	if first {
		q.wake.Notify()
	}
	return open
}

// add adds an event and wakes no goroutine: loop.runInline must follow.
func (q *eventQueue) add(e event) (first, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed {
		return false, false
	}
	q.mu.events = append(q.mu.events, e)
	return len(q.mu.events) == 1, true
}

func (q *eventQueue) pending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.events) > 0
}

// spareEvents bounds the array that is kept for later events. A change of thousands of partitions takes megabytes.
const spareEvents = 4096

// take returns the events. Later ones go to the array of spare.
func (q *eventQueue) take(spare []event) []event {
	clear(spare)
	if cap(spare) > spareEvents {
		spare = nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.mu.events
	q.mu.events = spare[:0]
	return events
}

// close refuses later events and returns the remaining ones.
func (q *eventQueue) close() []event {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	events := q.mu.events
	q.mu.events = nil
	return events
}
