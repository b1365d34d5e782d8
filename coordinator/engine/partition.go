package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc"
)

// Machine decides about one replica; *replica.Machine is one.
type Machine interface {
	Step(ev replica.Event, out *replica.Effects)
	View() replica.View
	// Idle reports whether the machine needs no ticks.
	Idle() bool
	// Committing reports whether puts are in flight.
	Committing() bool
}

// sharing is a Machine that shares memory with others of its broker; *replica.Machine is one.
type sharing interface {
	// Release releases the machine's part of that memory. It is the last call.
	Release()
}

// Partition is one replica on this broker: its machine, store and channels. It is their nsqd.Log and nsqd.Replicator.
type Partition struct {
	// Set before the loop receives the partition, then never changed; any goroutine may read them.
	id    ident.Partition
	topic string
	loop  *loop
	store *store.Partition
	queue *nsqd.Partition

	shared
	deadline deadline // deadlines.mu guards it
	owned
}

// shared is the state of a partition that any goroutine reads.
type shared struct {
	view    atomic.Pointer[replica.View] // the holder of the run lock replaces it
	bounds                               // limits.go: SetOptions and Limit write it
	muted   atomic.Bool                  // messages of the machine are dropped; Mute and Unmute write it
	trashed atomic.Bool                  // the topic is in the trash; SetTrashed writes it
	// followers is the result of the last eventFollowers; the holder of the run lock replaces them.
	followers atomic.Pointer[[]replica.FollowerView]
}

// owned is the state of a partition that the run lock of its loop guards.
type owned struct {
	machine  Machine
	out      replica.Effects
	puts     []replica.Put // gathered, not yet proposed
	putBytes int
	window   window
	tickets  tickets
	tickMS   int64 // of the last Tick
	leads    ident.Epoch

	touched      bool // in this pass
	awaitsSync   bool // in runState.awaitSync
	awaitsWindow bool // in runState.awaitWindow
	active       bool // in runState.active

	electing time.Time // when it detected the loss of the leader, or won the epoch that it is about to lead
	alarms   []alarmed // of the last alarmAgain
}

// ID names the partition.
func (p *Partition) ID() ident.Partition { return p.id }

// Topic is the name of its topic.
func (p *Partition) Topic() string { return p.topic }

// Queue is its channels.
func (p *Partition) Queue() *nsqd.Partition { return p.queue }

// Store has the partition's files.
func (p *Partition) Store() *store.Partition { return p.store }

// View is the machine's last published view.
func (p *Partition) View() *replica.View { return p.view.Load() }

// Leading reports whether this broker serves the partition.
func (p *Partition) Leading() bool { return p.view.Load().Role == replica.Leader }

// LogFields are the fields that identify the partition in a log line.
func (p *Partition) LogFields() map[string]any {
	return map[string]any{"topic": p.topic, "partition": p.id.Number}
}

// SetTrashed marks the topic as trashed: it refuses client puts and is left out of statistics, but keeps replicating.
func (p *Partition) SetTrashed(trashed bool) { p.trashed.Store(trashed) }

// Trashed reports whether the topic is in the trash.
func (p *Partition) Trashed() bool { return p.trashed.Load() }

// Post passes an event to the machine.
func (p *Partition) Post(ev replica.Event) { p.loop.post(p.id, ev) }

// Mute drops the messages of the machine. No message is sent after it has returned.
func (p *Partition) Mute() {
	p.muted.Store(true)
	<-p.loop.await(event{kind: eventBarrier})
}

// Unmute sends the messages of the machine again.
func (p *Partition) Unmute() { p.muted.Store(false) }

// publish publishes the view if it has changed, and notifies the channels. It reports whether the role, the epoch or
// the leader has changed.
func (p *Partition) publish() bool {
	now, old := p.machine.View(), p.view.Load()
	if now.Equal(old) {
		return false // the usual case: gathering puts, heartbeats
	}
	v := new(replica.View)
	*v = now
	if old.Role == replica.Leader && (v.Role != replica.Leader || v.Epoch != p.leads) {
		p.leads = 0
		p.view.Store(v)
		p.queue.Unlead()
	}
	p.view.Store(v)
	if v.Committed != old.Committed {
		p.queue.Advance(v.Committed)
	}
	if v.Stopping != 0 && v.Stopping != old.Stopping {
		if p.leads != 0 {
			p.leads = 0
			p.queue.Retire()
		}
		p.Post(replica.ChannelsStopped{Number: v.Stopping}) // after the changes that Retire has submitted
	}
	if v.Role == replica.Leader && p.leads == 0 && v.Stopping == 0 {
		p.leads = v.Epoch
		p.queue.Lead(v.Epoch)
	}
	p.loop.countEvents(p, old, v)
	p.loop.changes.note(p, old, v)
	return v.Role != old.Role || v.Epoch != old.Epoch || v.Leader != old.Leader
}

// leading is a Machine that has followers; *replica.Machine is one.
type leading interface {
	Followers(nowMS int64, dst []replica.FollowerView) []replica.FollowerView
}

// Followers refreshes Partition.Followers of partitions led here. If a loop hangs for longer than `wait`, its
// partitions keep the previous result.
func (e *Engine) Followers(of []*Partition, wait time.Duration) {
	loops := map[*loop]bool{}
	for _, p := range of {
		loops[p.loop] = p.loop.events.enqueue(event{kind: eventFollowers, id: p.id})
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for l, open := range loops {
		if !open {
			continue
		}
		select {
		case <-l.await(event{kind: eventBarrier}):
		case <-limit.C:
			return
		}
	}
}

// Followers are the other replicas as of the last Engine.Followers call that included this partition.
func (p *Partition) Followers() []replica.FollowerView {
	if list := p.followers.Load(); list != nil {
		return *list
	}
	return nil
}

// TransferLeadership starts a planned change of leader of a partition led here: rpc.ErrNotLeader if it is not.
func (e *Engine) TransferLeadership(id ident.Partition, to ident.Node) error {
	p, ok := e.Partition(id)
	if !ok || !p.Leading() {
		return rpc.ErrNotLeader
	}
	p.TransferLeadership(to)
	return nil
}

// TransferLeadership starts the change of leader: the channels stop, and their changes are replicated first (EL-7).
func (p *Partition) TransferLeadership(to ident.Node) { p.Post(replica.TransferLeadership{To: to}) }

// Settle makes the channels' last changes durable on the whole in-sync set: a planned stop must not forget a requeue
// of the last 10 ms. If ctx ends first, messages are redelivered. dead: a broker is known to be dead.
func (e *Engine) Settle(ctx context.Context, dead func(ident.Node) bool) {
	for _, p := range e.Partitions() {
		if p.Leading() {
			p.queue.Flush()
		}
	}
	for _, l := range e.loops {
		select {
		case <-l.await(event{kind: eventBarrier}):
		case <-ctx.Done():
		}
	}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for !e.settled(dead) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// settled reports whether each change of a channel led here is on all in-sync replicas, unless one of them has died.
func (e *Engine) settled(dead func(ident.Node) bool) bool {
	for _, p := range e.Partitions() {
		v := p.View()
		if v.Role != replica.Leader || v.StateCommitted >= v.StateIssued {
			continue
		}
		if !slices.ContainsFunc(v.ISR, func(m ident.Member) bool { return dead(m.Node) }) {
			return false
		}
	}
	return true
}
