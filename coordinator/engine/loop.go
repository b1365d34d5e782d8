package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// tickEvery is the granularity of a machine's time.
const tickEvery = 10 * time.Millisecond

// loop is a core loop: it steps the machines of some partitions. A pass takes all events, steps each machine, and
// carries out the effects together: one submission to the journal, frames, reads, compare-and-swaps, answers, views.
//
// The goroutine that holds the run lock runs a pass and owns the machines: the loop's own goroutine, or one that runs a
// pass inline (run.go). A pass waits for nothing: no disk, no socket, and no lock that is held for long.
type loop struct {
	o       *Options // the engine's
	reader  *reader
	pace    *pace
	flusher *flusher
	changes *changes
	slow    slowPuts
	began   time.Time
	events  *eventQueue
	puts    concurrency.InFlight // submitted, and not answered yet
	rested  *time.Timer          // ends Options.Linger; the loop's goroutine has it
	quit    chan struct{}
	ended   chan struct{}

	passes   concurrency.Stopwatch // of the current pass
	queued   bool                  // the loop's goroutine has to flush; only that goroutine uses the field
	flushing atomic.Bool           // it is in a flush
	flushers atomic.Int64          // goroutines in a flush, which run a pass afterwards

	run sync.Mutex // the run lock
	runState
}

// runState is the state of a loop that its run lock guards.
type runState struct {
	hosted      map[ident.Partition]*Partition
	active      []*Partition // get ticks
	touched     []*Partition // in this pass
	awaitSync   []*Partition // partitions with puts that wait for a sync; see release
	awaitWindow []*Partition // partitions with puts in an open batch window; see release
	windows     *time.Timer  // closes the batch windows
	ticker      *time.Timer  // for the active partitions
	ticking     bool         // ticker runs
	inline      bool         // this pass does not run on the loop's goroutine
	drained     []event      // of this pass
	queuedTo    []ident.Node // peers with frames of an inline pass that wait for a flush
	now         time.Time    // of this pass
	nowMS       int64        // the time of the pass in ms since the loop began
	token       uint64       // of the last submission
	unsynced    []submission
	subs        []store.Submission // its array is kept between passes
	barriers    []chan struct{}    // of this pass
}

// submission is one submission to the journal, with the tokens of the machines in it.
type submission struct {
	token uint64
	at    time.Time
	parts []machineToken
}

type machineToken struct {
	p     *Partition
	token uint64
}

// newLoop makes a loop; work runs it.
func newLoop(o *Options, r *reader, p *pace) *loop {
	l := &loop{o: o, reader: r, pace: p, flusher: &flusher{journal: o.Journal}, changes: &changes{}, began: time.Now(), events: newEventQueue()}
	l.quit, l.ended = make(chan struct{}), make(chan struct{})
	l.hosted = map[ident.Partition]*Partition{}
	l.windows, l.ticker, l.rested = time.NewTimer(time.Hour), time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	return l
}

// work is the loop's goroutine. It ends at stop.
func (l *loop) work() {
	defer close(l.ended)
	defer l.ticker.Stop()
	defer l.windows.Stop()
	defer l.rested.Stop()
	for {
		tick, windows := false, false
		select {
		case <-l.events.wake:
			runtime.Gosched() // goroutines that are ready to run enqueue first: fewer, larger passes
			if l.lingers() {
				continue
			}
		case <-l.rested.C:
		case <-l.ticker.C:
			tick = true
		case <-l.windows.C:
			windows = true
		case <-l.quit:
			l.run.Lock()
			l.abandonAll()
			l.run.Unlock()
			return
		}
		l.run.Lock()
		l.pass(tick, windows)
		l.run.Unlock()
		l.flush()
		l.wakeIfPending()
	}
}

// lingers postpones the next pass until Options.Linger after the last one.
func (l *loop) lingers() bool {
	if l.o.Linger == 0 {
		return false
	}
	l.run.Lock()
	last := l.now
	l.run.Unlock()
	rest := l.o.Linger - time.Since(last)
	if rest <= 0 {
		return false
	}
	l.rested.Reset(rest)
	return true
}

// stop ends work and waits until it has returned. By then everything that waits has been answered.
func (l *loop) stop() {
	close(l.quit)
	<-l.ended
}

// pass takes all events and carries out their effects. tick: the machines get the time; windows: a batch window has
// closed. The caller holds the run lock.
func (l *loop) pass(tick, windows bool) {
	l.passes.Begin()
	defer l.passes.End()
	l.now = time.Now()
	l.nowMS = l.now.Sub(l.began).Milliseconds()
	l.drained = l.events.take(l.drained)
	for i := range l.drained {
		l.handle(&l.drained[i])
	}
	if tick {
		l.ticking = false
		l.tick()
	}
	if windows {
		l.closeWindows()
	}
	l.applyEffects()
	if tick {
		l.dropIdle()
	}
	for _, ack := range l.barriers { // all earlier events have taken effect
		close(ack)
	}
	l.barriers = l.barriers[:0]
	if !l.ticking && len(l.active) > 0 {
		l.ticker.Reset(tickEvery)
		l.ticking = true
	}
}

func (l *loop) handle(e *event) {
	switch e.kind {
	case eventSynced:
		l.synced(e.token, e.err)
		return
	case eventAdd:
		l.hosted[e.id] = e.partition
		l.touch(e.partition)
		return
	case eventBarrier:
		l.barriers = append(l.barriers, e.ack)
		return
	}
	p := l.hosted[e.id]
	if p == nil {
		l.refuse(e)
		return
	}
	switch e.kind {
	case eventStep:
		l.step(p, e.step)
	case eventPut:
		l.gather(p, e)
	case eventChange:
		l.change(p, e)
	case eventFollowers:
		if m, ok := p.machine.(leading); ok {
			list := m.Followers(l.nowMS, nil)
			p.followers.Store(&list)
		}
	case eventRetire:
		l.retire(p)
		close(e.ack)
	}
}

// refuse answers an event for a partition that is not hosted here.
func (l *loop) refuse(e *event) {
	switch e.kind {
	case eventPut:
		l.answer(e.done, outcome.Completion{Outcome: outcome.NotLeader})
	case eventChange:
		if e.done != nil {
			e.done.Complete(outcome.Completion{Outcome: outcome.NotLeader})
		}
	case eventRetire, eventBarrier:
		close(e.ack)
	}
}

func (l *loop) answer(to outcome.Completer, c outcome.Completion) {
	l.puts.Leave()
	to.Complete(c)
}

func (l *loop) step(p *Partition, ev replica.Event) {
	l.touch(p)
	p.machine.Step(ev, &p.out)
}

// touch adds a partition to this pass, and first gives its machine the time if that is stale: a machine that got no
// ticks for an hour would find every deadline passed.
func (l *loop) touch(p *Partition) {
	if p.touched {
		return
	}
	p.touched = true
	l.touched = append(l.touched, p)
	if l.nowMS-p.tickMS >= tickEvery.Milliseconds() {
		p.tickMS = l.nowMS
		p.machine.Step(replica.Tick{NowMS: l.nowMS}, &p.out)
	}
}

// tick touches the partitions whose machines need the time.
func (l *loop) tick() {
	for _, p := range l.active {
		if l.hosted[p.id] == p {
			l.touch(p)
		}
	}
}

// dropIdle drops the partitions that need no ticks, and releases their buffers.
func (l *loop) dropIdle() {
	kept := l.active[:0]
	for _, p := range l.active {
		if p.active = l.hosted[p.id] == p && !p.machine.Idle(); p.active {
			kept = append(kept, p)
		} else {
			p.releaseBuffers()
		}
	}
	clear(l.active[len(kept):])
	l.active = kept
}

// releaseBuffers releases the memory that an idle partition keeps from busier times: the arrays of its effects
// and the table of tickets. A table of one ticket takes a kilobyte, and a table never shrinks. For ten thousand idle
// partitions these take tens of megabytes.
func (p *Partition) releaseBuffers() {
	p.out = replica.Effects{}
	if len(p.tickets.open) == 0 {
		p.tickets.open = nil
	}
}

// retire removes a partition: all waiting callers are answered, the machine is dropped.
func (l *loop) retire(p *Partition) {
	l.applyEffects() // now: the partition's effects are dropped below
	l.propose(p)
	p.abandon()
	if m, ok := p.machine.(sharing); ok {
		m.Release()
	}
	delete(l.hosted, p.id)
	p.out = replica.Effects{}
	l.o.Moved()
}

// abandonAll answers everything at the end of the loop.
func (l *loop) abandonAll() {
	for _, e := range l.events.close() {
		if e.kind == eventAdd {
			l.hosted[e.id] = e.partition
			continue
		}
		l.refuse(&e)
	}
	for _, p := range l.hosted {
		for _, put := range p.puts {
			p.complete(outcome.Completion{Ticket: put.Ticket, Outcome: outcome.NotLeader})
		}
		p.puts = nil
		p.abandon()
	}
}
