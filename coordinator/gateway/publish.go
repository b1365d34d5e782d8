package gateway

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// maxProbes bounds the search for a partition that is led here.
const maxProbes = 32

var _ api.Publisher = (*Gateway)(nil)

// Admit waits until the puts without an answer leave room for bytes more, and
// until the topic exists. It reserves nothing: Publish counts the puts, so a client that
// hangs up after Admit costs nothing. Connections that were admitted together may exceed
// the limit by one body each. At twice the limit Publish refuses.
func (g *Gateway) Admit(ctx context.Context, topic string, bytes int) error {
	err := g.budget.wait(ctx, g.done, int64(bytes))
	if err == nil {
		err = g.ensureTopic(ctx, topic)
	}
	if err != nil && ctx.Err() == nil {
		g.o.Metrics.Answered(err)
	}
	return err
}

// ensureTopic returns when the topic is in the watched metadata. If several callers need
// the topic, one at a time tries to create it.
func (g *Gateway) ensureTopic(ctx context.Context, topic string) error {
	if _, ok := g.core.Topic(topic); ok {
		return nil
	}
	return g.ensuring.do(ctx, topic, func() error {
		_, err := g.core.EnsureTopic(ctx, topic)
		return err
	})
}

// Publish takes one put; see api.Publisher.
func (g *Gateway) Publish(topic string, key []byte, d queue.Draft, a api.Answerer) {
	var err error = errTopicDeleted{}
	switch t, ok := g.core.Topic(topic); {
	case !ok:
	case !g.rates.Allow(t.ID, t.rate(), int(d.Count), d.Size()):
		err = api.ErrRateLimited
	default:
		err = g.publish(t, anyPartition, key, d, a)
	}
	g.refuse(err, a)
}

// PublishAt takes one put for the partition with this number; see api.Publisher. The topic's
// publish rate bounds it as it bounds Publish.
func (g *Gateway) PublishAt(topic string, number int, d queue.Draft, a api.Answerer) {
	var err error = errTopicDeleted{}
	switch t, ok := g.core.Topic(topic); {
	case !ok:
	case t.Partitions == 0:
		err = api.ErrNoLeader
	case number < 0 || number >= t.Partitions:
		err = fmt.Errorf("%w %d, but 0 to %d, not stored", api.ErrNoPartition, number, t.Partitions-1)
	case !g.rates.Allow(t.ID, t.rate(), int(d.Count), d.Size()):
		err = api.ErrRateLimited
	default:
		err = g.publish(t, number, nil, d, a)
	}
	g.refuse(err, a)
}

// refuse answers a put that was not accepted; nil = it was accepted.
func (g *Gateway) refuse(err error, a api.Answerer) {
	if err != nil {
		g.o.Metrics.Answered(err)
		a.Answer(api.PutResult{Err: err})
	}
}

// anyPartition leaves the choice of a partition to the key, or to the gateway.
const anyPartition = -1

// PublishTo publishes a put of this broker's own to the partition with this number, if the
// topic has it. The topic's publish rate does not bound it: dead letters must not stay
// behind because of a busy producer.
func (g *Gateway) PublishTo(topic string, number int, key []byte, d queue.Draft, a api.Answerer) {
	var err error = errTopicDeleted{}
	if t, ok := g.core.Topic(topic); ok {
		err = g.publish(t, number, key, d, a)
	}
	g.refuse(err, a)
}

// publish returns an error only if the put was not taken: nothing was stored.
func (g *Gateway) publish(t Topic, number int, key []byte, d queue.Draft, a api.Answerer) error {
	if t.Partitions == 0 {
		return api.ErrNoLeader
	}
	named := number >= 0 && number < t.Partitions
	if t.Options.Dedupe == option.DedupeContent && d.LacksIdentities() {
		d = d.ByContent(key)
		if d.Count > 1 && t.Partitions > 1 && key == nil && !named {
			return g.publishApart(t, d, a)
		}
	}
	size := int64(d.Size())
	if err := g.admitted(size, size); err != nil {
		return err
	}
	to := t.Partition(number)
	if !named {
		to = g.choose(t, key, &d)
	}
	p, err := g.begin(t, to, d, a)
	if err != nil {
		return err
	}
	p.queue.pump()
	g.core.Flush()
	return nil
}

// admitted checks a put, and reserves its memory: of several puts together, of which largest is the size of one.
func (g *Gateway) admitted(all, largest int64) error {
	switch {
	case largest > queue.MaxBatchBytes:
		return api.ErrTooBig
	case !g.budget.take(all):
		return api.ErrBusy
	}
	return nil
}

// begin parks a put, whose bytes are reserved, in the queue of its partition. An error gives them back.
func (g *Gateway) begin(t Topic, to ident.Partition, d queue.Draft, a api.Answerer) (*put, error) {
	d.Request.Producer = uint64(g.core.Incarnation())
	p := &put{gateway: g, draft: d, answerer: a, born: g.now(), uncontended: g.pending.Enter()}
	if !g.enqueue(p, t, to) {
		g.pending.Leave()
		g.budget.give(int64(d.Size()))
		return nil, api.ErrExiting
	}
	return p, nil
}

// enqueue parks the put in its partition's queue; false once the gateway is closed.
func (g *Gateway) enqueue(p *put, t Topic, id ident.Partition) bool {
	for {
		p.queue = g.queueOf(t.Name, id)
		if p.queue == nil {
			return false
		}
		g.mu.RLock()
		ok := !g.mu.closed && p.queue.add(p)
		closed := g.mu.closed
		g.mu.RUnlock()
		if closed {
			return false
		}
		if ok {
			if g.asleep.Load() {
				g.wake() // there are deadlines again
			}
			return true
		}
	}
}

// queueOf finds or makes the put queue of a partition; nil once the gateway is closed.
func (g *Gateway) queueOf(topic string, id ident.Partition) *putQueue {
	g.mu.RLock()
	q := g.mu.queues[id]
	g.mu.RUnlock()
	if q != nil {
		return q
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed {
		return nil
	}
	if q = g.mu.queues[id]; q == nil {
		q = &putQueue{gateway: g, topic: topic, id: id}
		q.mu.byN = make(map[uint64]*put)
		g.mu.queues[id] = q
	}
	return q
}

// choose returns the partition of a new put: by the key's FNV-1a hash. Without a key it is that of
// the first message's identity, so that a repeat at any broker finds it. Any other put
// goes round robin over the partitions that are led here, else over those with a leader.
func (g *Gateway) choose(t Topic, key []byte, d *queue.Draft) ident.Partition {
	if t.Partitions == 1 {
		return t.Partition(0)
	}
	if x, ok := d.First(); key == nil && ok {
		key = x[:]
	}
	if key != nil {
		return t.Partition(partitionOf(key, t.Partitions))
	}
	start := int(g.rotation.Add(1) % uint32(t.Partitions))
	best, found := t.Partition(start), false
	for i := range min(t.Partitions, maxProbes) {
		id := t.Partition((start + i) % t.Partitions)
		if g.core.Leads(id) {
			return id
		}
		if !found {
			if _, found = g.core.Leader(id); found {
				best = id
			}
		}
	}
	return best
}

// partitionOf is the number of the partition of a key, or of an identity.
func partitionOf(key []byte, partitions int) int {
	h := fnv.New64a()
	_, _ = h.Write(key)
	return int(h.Sum64() % uint64(partitions))
}

// route is where the queue's puts go now. A peer's hint counts while its epoch is higher
// than that of the metadata here.
func (g *Gateway) route(q *putQueue) route {
	if g.core.Leads(q.id) {
		return route{ok: true, local: true}
	}
	to, ok := g.core.Leader(q.id)
	if h := q.hint(); h.Epoch > to.Epoch {
		to, ok = h, true
	}
	ok = ok && to.Node != g.core.Self() && g.transport.Up(to.Node)
	return route{ok: ok, target: to}
}

// launch starts one attempt. The pump calls it in order and without a lock.
func (g *Gateway) launch(q *putQueue, a attempt) {
	if !a.local {
		g.out.forward(a)
		return
	}
	d := a.put.draft
	if a.clone {
		d = d.Clone()
	}
	g.core.Propose(q.id, d, a.put)
}

// settle takes the outcome of an attempt; see putQueue.settle.
func (g *Gateway) settle(p *put, n uint32, c replica.Completion) {
	a, last := p.queue.settle(p, n, c)
	if last {
		g.answer([]answer{a})
		p.queue.pump() // there is room in the window again
	} else {
		g.wake() // the keeper retries after the pause
	}
}

// answer gives results to their Answerers, and releases the puts' bytes.
func (g *Gateway) answer(answers []answer) {
	for _, a := range answers {
		g.pending.Leave()
		g.budget.give(int64(a.put.draft.Size()))
		g.o.Metrics.Answered(a.result.Err)
		a.put.answerer.Answer(a.result)
	}
}

// run is the background goroutine: started by New, ends with Close. It owns nothing. It retries parked
// puts, gives up late ones, and attaches subscriptions again.
func (g *Gateway) run() {
	defer g.wg.Done()
	timer := time.NewTimer(g.o.Retry)
	defer timer.Stop()
	changed := g.core.Changed()
	for {
		select {
		case <-g.done:
			return
		case <-changed:
			changed = g.core.Changed() // before looking: the next change is not missed
			g.clusterChanged()
		case <-g.wakeUp:
		case <-timer.C:
		}
		pause, needed := g.runDue()
		g.asleep.Store(!needed) // before looking: a put from now on wakes it
		if needed || g.pending.N() > 0 {
			timer.Reset(pause)
		} else {
			timer.Stop()
		}
	}
}

// clusterChanged ends the pauses of parked puts, and gives up the attempts whose leader was
// replaced.
func (g *Gateway) clusterChanged() {
	for _, q := range g.allQueues() {
		q.changed()
		if to, ok := g.core.Leader(q.id); ok {
			q.lostAttempts(func(old Leadership) bool {
				return old.Epoch <= to.Epoch && (old.Node != to.Node || old.Incarnation != to.Incarnation)
			})
		}
		if g.deleted(q) {
			g.drop(q)
		}
	}
	g.subs.changed()
}

// deleted reports whether the queue's topic was deleted. Another topic may have its name by now.
func (g *Gateway) deleted(q *putQueue) bool {
	t, ok := g.core.Topic(q.topic)
	return !ok || t.ID != q.id.Topic
}

// drop removes an empty queue of a deleted topic from the table.
func (g *Gateway) drop(q *putQueue) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q.retire() {
		delete(g.mu.queues, q.id)
	}
}

// runDue does all work that is due. It returns how long run may sleep, and whether
// there is any work that needs it.
func (g *Gateway) runDue() (time.Duration, bool) {
	now, pause := g.now(), g.o.Retry
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
		q.unanswered(now)
		g.answer(q.expire(now))
		if g.deleted(q) {
			g.answer(q.orphaned())
			g.drop(q)
		}
		q.pump()
		if at, waiting := q.due(); waiting && at > now {
			pause = min(pause, at-now)
		}
	}
	return max(pause, time.Millisecond), true
}
