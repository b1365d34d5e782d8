package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// applyEffects carries out the effects of a pass: the writes of all machines first, then all that depends on them.
func (l *loop) applyEffects() {
	l.release()
	l.journal()
	for _, p := range l.touched {
		l.deliver(p)
	}
	for _, n := range l.queuedTo { // the frames of an inline pass
		l.o.Transport.Flush(n)
	}
	l.queuedTo = l.queuedTo[:0]
	moved := false
	for _, p := range l.touched {
		moved = l.settle(p) || moved
	}
	clear(l.touched)
	l.touched = l.touched[:0]
	if moved {
		l.o.Moved()
	}
}

// journal submits the writes of all machines to the journal at once. The journal copies the bytes before it returns.
func (l *loop) journal() {
	subs := l.subs[:0]
	var parts []machineToken
	for _, p := range l.touched {
		if len(p.out.Write) > 0 {
			if slices.ContainsFunc(p.out.Write, func(w queue.Write) bool { return w.Kind == queue.WriteAppend }) {
				l.pace.put(l.now)
			}
			subs = append(subs, store.Submission{Partition: p.store, Writes: p.out.Write})
			parts = append(parts, machineToken{p: p, token: p.out.Token})
		}
	}
	if len(subs) == 0 {
		return
	}
	l.token++
	l.unsynced = append(l.unsynced, submission{token: l.token, at: l.now, parts: parts})
	switch flush := l.o.Journal.Queue(subs, l, l.token); {
	case flush && l.inline:
		l.flusher.due.Store(true)
	case flush:
		l.queued = true
	}
	l.o.Metrics.Took(metrics.StageWrite, time.Since(l.now))
	clear(subs)
	l.subs = subs
}

// synced steps the machines of all submissions up to token.
func (l *loop) synced(token uint64, err error) {
	n := 0
	for n < len(l.unsynced) && l.unsynced[n].token <= token {
		for _, part := range l.unsynced[n].parts {
			if l.hosted[part.p.id] == part.p {
				l.step(part.p, replica.Synced{Token: part.token, Err: err})
			}
		}
		l.slow.synced = l.now.Sub(l.unsynced[n].at)
		l.o.Metrics.Took(metrics.StageSync, l.slow.synced)
		l.unsynced[n].parts = nil
		n++
	}
	l.unsynced = append(l.unsynced[:0], l.unsynced[n:]...)
}

// deliver sends messages and starts reads and compare-and-swaps.
func (l *loop) deliver(p *Partition) {
	if !p.muted.Load() {
		l.send(p)
	}
	for _, r := range p.out.Read {
		l.reader.read(p, r)
	}
	if c := p.out.CAS; c != nil {
		l.o.Proposer.Propose(p.id, *c)
	}
}

// send sends the messages. A frame that cannot be sent now is dropped, as on a broken connection, and the machine
// retries.
func (l *loop) send(p *Partition) {
	for i := range p.out.Send {
		env := &p.out.Send[i]
		f := encodeMessage(p.id, env)
		if !l.inline {
			_ = l.o.Transport.Send(env.To, f)
			continue
		}
		_ = l.o.Transport.Queue(env.To, f)
		if !slices.Contains(l.queuedTo, env.To) {
			l.queuedTo = append(l.queuedTo, env.To)
		}
	}
}

// settle publishes the view, answers, and resets the effects for the next pass. The view comes before the answers,
// because a producer that is answered may read it.
func (l *loop) settle(p *Partition) (moved bool) {
	moved = p.publish()
	for _, c := range p.out.Done {
		p.complete(c)
	}
	if p.out.Alarm != nil {
		l.alarm(p)
	}
	if moved {
		v := p.view.Load()
		l.o.Log.WithFields(p.LogFields()).WithField("epoch", v.Epoch).WithField("leader", v.Leader).
			WithField("role", v.Role).Debug("partition changed")
	}
	clear(p.out.Write) // otherwise the arrays would keep batches alive
	clear(p.out.Send)
	p.out.Reset()
	p.touched = false
	if !p.active && !p.machine.Idle() {
		p.active = true
		l.active = append(l.active, p)
	}
	return moved
}

const (
	// alarmAgain is how often a lasting alarm is logged. A replica that refuses is retried five times a second.
	alarmAgain = time.Minute
	// maxAlarms limits how many distinct alarm texts are remembered per partition.
	maxAlarms = 8
)

type alarmed struct {
	text string
	at   time.Time
}

func (l *loop) alarm(p *Partition) {
	l.o.Metrics.Add(metrics.EventAlarm, 1)
	text := p.out.Alarm.Error()
	p.alarms = slices.DeleteFunc(p.alarms, func(a alarmed) bool { return l.now.Sub(a.at) >= alarmAgain })
	if len(p.alarms) == maxAlarms || slices.ContainsFunc(p.alarms, func(a alarmed) bool { return a.text == text }) {
		return
	}
	p.alarms = append(p.alarms, alarmed{text, l.now})
	l.o.Log.WithError(p.out.Alarm).WithFields(p.LogFields()).Error("replication alarm")
	where := fmt.Sprintf("%s/%d", p.topic, p.id.Number)
	l.o.Events.Add(events.Event{
		Kind: events.Alarm, Code: events.ReplicaAlarm, State: "unsafe", Broker: l.o.Self, Where: []string{where},
		Text: fmt.Sprintf("the replica of %s on %s refuses what its leader sends: %s", where, l.o.Self, text),
		Do:   "docs/operations/alerts.md, LockstepReplicaAlarm",
	})
}
