package engine

import (
	"context"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// inlineBytes bounds the events that are processed inline: without syncs their goroutine also writes them.
const inlineBytes = 64 << 10

// Propose submits a put to the partition's loop; c is completed exactly once, perhaps
// before Propose returns. The caller then releases its locks and calls Flush.
func (e *Engine) Propose(p ident.Partition, d queue.Draft, c outcome.Completer) {
	l := e.loopOf(p)
	if !l.submit(event{kind: eventPut, id: p, draft: d, done: c, at: time.Now()}, l.puts.Enter(), d.Size()) {
		l.answer(c, outcome.Completion{Outcome: outcome.NotLeader})
	}
}

// Receive submits a replica message of another broker (rpc.ClassReplica, rpc.ClassBulk).
// The last of the frames that were read together is processed inline. The caller then calls Flush, as with Propose.
func (e *Engine) Receive(from ident.Node, inc ident.Incarnation, f rpc.Received) {
	p, msg, err := decodeMessage(f)
	if err != nil {
		e.o.Log.WithError(err).WithField("node", from).Warn("dropped a malformed replica message")
		return
	}
	peer := replica.Peer{Node: from, Incarnation: inc, Store: msg.Store}
	e.loopOf(p).submit(event{kind: eventStep, id: p, step: replica.Received{From: peer, Msg: msg}}, !f.More, len(f.Payload))
}

// submit processes a small uncontended event inline, unless passes linger, and enqueues any other. false: the loop has
// ended.
func (l *loop) submit(e event, uncontended bool, bytes int) bool {
	if uncontended && bytes <= inlineBytes && l.o.Linger == 0 {
		return l.submitInline(e)
	}
	return l.events.enqueue(e)
}

// submitInline enqueues an event and runs a pass for it; false after the loop's end.
func (l *loop) submitInline(e event) bool {
	_, open := l.events.add(e)
	if open {
		l.runInline()
	}
	return open
}

func (l *loop) post(p ident.Partition, ev replica.Event) {
	l.events.enqueue(event{kind: eventStep, id: p, step: ev})
}

// await enqueues an event, and returns the channel that is closed when the event has taken effect, or after the loop's end.
func (l *loop) await(e event) <-chan struct{} {
	e.ack = make(chan struct{})
	if !l.events.enqueue(e) {
		close(e.ack)
	}
	return e.ack
}

// inlineMost bounds the passes that one caller runs: the effects of a pass may enqueue further events.
const inlineMost = 3

// runInline runs a pass in the caller's goroutine, if the loop is idle. Waking the loop's goroutine and the writers to
// other brokers would cost an uncontended put more than their work, because each wakes up on its own thread
// (docs/adr/0010). Concurrent events are enqueued instead, because the loop's goroutine gathers them into one pass.
//
// The caller may hold locks that no pass takes: its own connection, the journal. If another goroutine has the run
// lock, it processes the event: it checks the queue after releasing the lock.
func (l *loop) runInline() {
	for range inlineMost {
		if !l.events.pending() || !l.run.TryLock() {
			return
		}
		l.inline = true
		l.pass(false, false)
		l.inline = false
		l.run.Unlock()
	}
	l.wakeIfPending()
}

// wakeIfPending wakes the loop's goroutine for events that came during a pass. The caller has released the run lock.
func (l *loop) wakeIfPending() {
	if l.events.pending() {
		l.events.wake.Notify()
	}
}

// Synced is called when a submission is durable, by the journal's goroutine or by a goroutine that flushes.
func (l *loop) Synced(token uint64, err error) {
	e := event{kind: eventSynced, token: token, err: err}
	if l.flushers.Load() > 0 {
		l.events.add(e)
		return
	}
	l.submit(e, true, 0)
}

// single is the outcome.Completer of one put that a goroutine waits for.
type single chan outcome.Completion

// Complete implements outcome.Completer; capacity 1, called once.
func (s single) Complete(c outcome.Completion) { s <- c }

// PutControl puts a control batch and waits for its outcome. false: not the leader, or not enough replicas.
func (e *Engine) PutControl(ctx context.Context, p ident.Partition, d queue.Draft) (committed bool, err error) {
	done := make(single, 1)
	e.Propose(p, d, done)
	e.Flush()
	select {
	case c := <-done:
		return c.Outcome == outcome.Committed, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
