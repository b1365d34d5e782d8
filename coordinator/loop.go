package coordinator

import (
	"runtime"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/lone"
	"github.com/lockstepmq/lockstep/internal/metrics"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/sirupsen/logrus"
)

const (
	// tickEvery is the granularity of a machine's time.
	tickEvery = 10 * time.Millisecond
	// groupBytes bounds the puts of one Propose event.
	groupBytes = 1 << 20
)

// journal is what a loop needs of the store.
type journal interface {
	Submit(subs []store.Submission, sink store.Sink, token uint64)
}

// sender is what a loop needs of the transport.
type sender interface {
	Send(to ident.Node, f rpc.Frame) error
	Queue(to ident.Node, f rpc.Frame) error
	Flush(to ident.Node)
}

// loop steps the machines of some partitions: a pass takes all its mail, steps each
// machine, and carries out what came of it in one go – one submission to the
// journal, frames, reads, compare-and-swaps, answers, views.
//
// Who has the turn may run a pass and owns the machines: the loop's goroutine, started
// by Broker, which ends at stop; or who brings lone mail (turn.go). A pass waits for
// nothing, no disk, no socket and no lock that is held for long.
type loop struct {
	mail     *mailbox
	journal  journal
	peers    sender
	reader   *reader
	proposer *proposer
	moved    *signal // leadership or a key changed
	space    *space
	pace     *pace
	metrics  *metrics.Recorder
	linger   time.Duration // between two passes at least; 0 = none
	rested   *time.Timer   // ends that
	log      logrus.FieldLogger
	failed   func(error) // the store failed; called once or more
	ended    chan struct{}
	quit     chan struct{}

	puts lone.Count // brought, and not answered yet
	turn sync.Mutex
	// Owned by who has the turn.
	hosts    map[ident.Partition]*hosted
	active   []*hosted    // need ticks
	touched  []*hosted    // of this pass
	waiting  []*hosted    // have puts that wait for the journal; see release
	held     []*hosted    // have puts that wait for company; see release
	holding  *time.Timer  // ends the wait of those held
	ticker   *time.Timer  // for the active ones
	armed    bool         // it runs
	borrowed bool         // this pass is not the goroutine's
	taken    []work       // of this pass
	spoken   []ident.Node // frames are queued for, by a pass with a borrowed turn
	now      time.Time    // of this pass
	nowMS    int64        // the same, since started
	token    uint64
	passes   []pass // submitted, not yet synced
	subs     []store.Submission
	started  time.Time

	barriers []chan struct{} // of this pass
}

// pass is one submission and the tokens of the machines in it.
type pass struct {
	token uint64
	at    time.Time
	parts []machineToken
}

type machineToken struct {
	h     *hosted
	token uint64
}

func (l *loop) run() {
	defer close(l.ended)
	defer l.ticker.Stop()
	defer l.holding.Stop()
	defer l.rested.Stop()
	for {
		due, letGo := false, false
		select {
		case <-l.mail.wake:
			runtime.Gosched() // who is ready to run posts first: fewer, larger passes
			if l.lingers() {
				continue
			}
		case <-l.rested.C:
		case <-l.ticker.C:
			due = true
		case <-l.holding.C:
			letGo = true
		case <-l.quit:
			l.turn.Lock()
			l.shut()
			l.turn.Unlock()
			return
		}
		l.turn.Lock()
		l.pass(due, letGo)
		l.turn.Unlock()
		l.lookAgain()
	}
}

// lingers puts the next pass off until the last one is long enough ago, if passes are
// to share more work (Options.Linger).
func (l *loop) lingers() bool {
	if l.linger == 0 {
		return false
	}
	rest := l.linger - time.Since(l.now) // nobody else runs passes
	if rest <= 0 {
		return false
	}
	l.rested.Reset(rest)
	return true
}

// pass takes all mail and carries out what comes of it. due: it is time for a tick;
// letGo: a wait for company has ended. The caller has the turn.
func (l *loop) pass(due, letGo bool) {
	l.now = time.Now()
	l.nowMS = l.now.Sub(l.started).Milliseconds()
	l.taken = l.mail.take(l.taken)
	for i := range l.taken {
		l.handle(&l.taken[i])
	}
	if due {
		l.armed = false
		l.tick()
	}
	if letGo {
		l.letGo()
	}
	l.finish()
	if due {
		l.keepActive()
	}
	l.passBarriers()
	if !l.armed && len(l.active) > 0 {
		l.ticker.Reset(tickEvery)
		l.armed = true
	}
}

// passBarriers tells who waits that everything before has taken effect.
func (l *loop) passBarriers() {
	for _, ack := range l.barriers {
		close(ack)
	}
	l.barriers = l.barriers[:0]
}

func (l *loop) handle(w *work) {
	switch w.kind {
	case workSynced:
		l.synced(w.ticket, w.err)
		return
	case workAdd:
		l.hosts[w.id] = w.hosted
		l.touch(w.hosted)
		return
	case workBarrier:
		l.barriers = append(l.barriers, w.ack)
		return
	}
	h := l.hosts[w.id]
	if h == nil {
		l.refuse(w)
		return
	}
	switch w.kind {
	case workEvent:
		l.step(h, w.event)
	case workPropose:
		l.propose(h, w)
	case workChange:
		l.step(h, replica.Change{Delta: w.delta, Ticket: h.changeTicket(w.ticket)})
	case workRetire:
		l.retire(h)
		close(w.ack)
	}
}

// refuse answers mail for a partition that is not hosted here.
func (l *loop) refuse(w *work) {
	switch w.kind {
	case workPropose:
		l.answer(w.done, replica.Completion{Outcome: replica.NotLeader})
	case workChange:
		if w.hosted != nil && w.ticket != 0 {
			w.hosted.queue.Completed(w.ticket, false)
		}
	case workRetire, workBarrier:
		close(w.ack)
	}
}

// answer tells the fate of a put.
func (l *loop) answer(to Completer, c replica.Completion) {
	l.puts.Leave()
	to.Complete(c)
}

// step moves one machine, after telling it the time if that is stale: a machine
// that got no ticks for an hour would otherwise find every deadline passed.
func (l *loop) step(h *hosted, ev replica.Event) {
	l.touch(h)
	h.machine.Step(ev, &h.out)
}

func (l *loop) touch(h *hosted) {
	if h.touched {
		return
	}
	h.touched = true
	l.touched = append(l.touched, h)
	if l.nowMS-h.tickMS >= tickEvery.Milliseconds() {
		h.tickMS = l.nowMS
		h.machine.Step(replica.Tick{NowMS: l.nowMS}, &h.out)
	}
}

// propose gathers the puts of one partition into one event.
func (l *loop) propose(h *hosted, w *work) {
	if w.draft.Control == 0 && h.full(h.putBytes+w.draft.Size()) {
		l.answer(w.done, replica.Completion{Outcome: replica.TopicFull})
		return
	}
	if w.draft.Control == 0 && l.space.short(h.view.Load().ISR) {
		l.answer(w.done, replica.Completion{Outcome: replica.DiskFull})
		return
	}
	if h.putBytes > 0 && h.putBytes+w.draft.Size() > groupBytes {
		l.flush(h)
	}
	l.touch(h)
	l.metrics.Stage(metrics.StageQueue, l.now.Sub(w.at))
	t := ticket{put: w.done, at: w.at, proposed: l.now, messages: int(w.draft.Count), bytes: w.draft.BodyBytes()}
	h.puts = append(h.puts, replica.Put{Draft: w.draft, Ticket: h.newTicket(t)})
	h.putBytes += w.draft.Size()
}

func (l *loop) flush(h *hosted) {
	if len(h.puts) == 0 {
		return
	}
	puts := h.puts
	h.puts, h.putBytes = nil, 0 // the machine may keep them
	h.machine.Step(replica.Propose{Puts: puts, TimeNS: l.now.UnixNano()}, &h.out)
}

// tick gives the time to the machines that need it and drops those that do not
// any more.
func (l *loop) tick() {
	for _, h := range l.active {
		if l.hosts[h.id] == h {
			l.touch(h)
		}
	}
}

// synced tells the machines of all submissions up to token.
func (l *loop) synced(token uint64, err error) {
	n := 0
	for n < len(l.passes) && l.passes[n].token <= token {
		for _, part := range l.passes[n].parts {
			if l.hosts[part.h.id] == part.h {
				l.step(part.h, replica.Synced{Token: part.token, Err: err})
			}
		}
		l.metrics.Stage(metrics.StageSync, l.now.Sub(l.passes[n].at))
		l.passes[n].parts = nil
		n++
	}
	l.passes = append(l.passes[:0], l.passes[n:]...)
	if err != nil {
		l.failed(err)
	}
}

// retire ends hosting: what waits is answered, the machine is dropped.
func (l *loop) retire(h *hosted) {
	l.finish() // what was stepped in this pass takes effect now or never
	l.flush(h)
	h.abandon()
	delete(l.hosts, h.id)
	h.out = replica.Effects{}
	l.moved.notify()
}

// shut answers everything at the end of the loop.
func (l *loop) shut() {
	for _, w := range l.mail.close() {
		w := w
		if w.kind == workAdd {
			l.hosts[w.id] = w.hosted
			continue
		}
		l.refuse(&w)
	}
	for _, h := range l.hosts {
		for _, p := range h.puts {
			h.complete(replica.Completion{Ticket: p.Ticket, Outcome: replica.NotLeader})
		}
		h.puts = nil
		h.abandon()
	}
}

// changeTicket wraps nsqd's number; 0 stays 0, nobody waits.
func (h *hosted) changeTicket(number uint64) uint64 {
	if number == 0 {
		return 0
	}
	return h.newTicket(ticket{change: number})
}
