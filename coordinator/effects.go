package coordinator

import (
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/metrics"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// finish carries out the effects of a pass, in their order over all machines:
// every write is handed to the store before anything is sent, read, proposed or
// answered.
func (l *loop) finish() {
	l.release()
	l.submit()
	for _, h := range l.touched {
		l.deliver(h)
	}
	l.flushSpoken()
	moved := false
	for _, h := range l.touched {
		moved = l.settle(h) || moved
	}
	clear(l.touched)
	l.touched = l.touched[:0]
	if moved {
		l.moved.notify()
	}
}

// submit hands the writes of all machines to the journal as one submission. The
// journal copies what it needs before it returns.
func (l *loop) submit() {
	subs := l.subs[:0]
	var parts []machineToken
	for _, h := range l.touched {
		if len(h.out.Write) > 0 {
			if slices.ContainsFunc(h.out.Write, appends) {
				l.pace.put(l.now)
			}
			subs = append(subs, store.Submission{Partition: h.store, Writes: h.out.Write})
			parts = append(parts, machineToken{h: h, token: h.out.Token})
		}
	}
	if len(subs) == 0 {
		return
	}
	l.token++
	l.passes = append(l.passes, pass{token: l.token, at: l.now, parts: parts})
	l.journal.Submit(subs, l, l.token)
	l.metrics.Stage(metrics.StageWrite, time.Since(l.now))
	clear(subs)
	l.subs = subs
}

// appends tells puts from changes of channels and epochs.
func appends(w queue.Write) bool { return w.Kind == queue.WriteAppend }

// Synced is called by who has written and synced: the journal's goroutine, or without
// syncs the pass itself, whose turn it still is; then its caller looks again.
func (l *loop) Synced(token uint64, err error) {
	l.hand(work{kind: workSynced, ticket: token, err: err}, true, 0)
}

// deliver does what leaves the machine: messages, reads, compare-and-swaps.
func (l *loop) deliver(h *hosted) {
	if !h.muted.Load() {
		l.send(h)
	}
	for _, r := range h.out.Read {
		l.reader.read(h, r)
	}
	if c := h.out.CAS; c != nil {
		l.proposer.propose(h.id, *c)
	}
}

// send sends the messages. A frame that cannot go now is lost like one on a broken
// connection: the machine sends again.
func (l *loop) send(h *hosted) {
	for i := range h.out.Send {
		env := &h.out.Send[i]
		f := encodeMessage(h.id, env)
		if !l.borrowed {
			_ = l.peers.Send(env.To, f)
			continue
		}
		_ = l.peers.Queue(env.To, f)
		if !slices.Contains(l.spoken, env.To) {
			l.spoken = append(l.spoken, env.To)
		}
	}
}

// settle answers, publishes, and empties the effects for the next pass. The
// view goes out before the answers: who is told "committed" may read it.
func (l *loop) settle(h *hosted) (moved bool) {
	moved = h.publish()
	for _, c := range h.out.Done {
		h.complete(c)
	}
	if h.out.Alarm != nil {
		l.alarm(h)
	}
	if moved {
		v := h.view.Load()
		l.log.WithFields(fields(h)).WithField("epoch", v.Epoch).WithField("leader", v.Leader).
			Infof("PARTITION is %s", v.Role)
	}
	clear(h.out.Write) // or the arrays would keep batches alive
	clear(h.out.Send)
	h.out.Reset()
	h.touched = false
	if !h.active && !h.machine.Idle() {
		h.active = true
		l.active = append(l.active, h)
	}
	return moved
}

// alarmAgain is how often an alarm is logged that goes on: a replica that is refused
// is asked again five times a second, until an operator comes.
const alarmAgain = time.Minute

func (l *loop) alarm(h *hosted) {
	l.metrics.Event(metrics.EventAlarm)
	text := h.out.Alarm.Error()
	if text == h.alarm && l.now.Sub(h.alarmAt) < alarmAgain {
		return
	}
	h.alarm, h.alarmAt = text, l.now
	l.log.WithError(h.out.Alarm).WithFields(fields(h)).Error("replication alarm")
}

// keepActive drops the machines that need no ticks, after a tick. They are given new effects:
// the arrays of ten thousand idle ones take tens of megabytes.
func (l *loop) keepActive() {
	kept := l.active[:0]
	for _, h := range l.active {
		if h.active = l.hosts[h.id] == h && !h.machine.Idle(); h.active {
			kept = append(kept, h)
		} else {
			h.out = replica.Effects{}
		}
	}
	clear(l.active[len(kept):])
	l.active = kept
}

func fields(h *hosted) map[string]any {
	return map[string]any{"topic": h.topic, "partition": h.id.Number}
}

// newLoop makes a loop; run starts it.
func newLoop(l *loop) *loop {
	l.mail = newMailbox()
	l.hosts = map[ident.Partition]*hosted{}
	l.ended, l.quit = make(chan struct{}), make(chan struct{})
	l.started = time.Now()
	l.holding, l.ticker, l.rested = time.NewTimer(time.Hour), time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	return l
}

// post hands an event to a partition's machine.
func (l *loop) post(p ident.Partition, ev replica.Event) {
	l.mail.post(work{kind: workEvent, id: p, event: ev})
}

// stop ends run and waits for it; everything that waits has been answered then.
func (l *loop) stop() {
	close(l.quit)
	<-l.ended
}
