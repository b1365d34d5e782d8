package replica

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// memoryIndex is a commit log in memory.
type memoryIndex struct {
	start   ident.Position
	records []commitlog.Record
}

func (x *memoryIndex) Append(r ...commitlog.Record) { x.records = append(x.records, r...) }
func (x *memoryIndex) Truncate(end ident.Offset) {
	x.records = slices.DeleteFunc(x.records, func(r commitlog.Record) bool { return r.Offset >= end })
}
func (x *memoryIndex) Restart(p ident.Position) { x.start, x.records = p, nil }
func (x *memoryIndex) Start() ident.Position    { return x.start }
func (x *memoryIndex) AtOffset(o ident.Offset) (commitlog.Record, bool) {
	for _, r := range x.records {
		if r.Offset <= o && o < r.End().Offset {
			return r, true
		}
	}
	return commitlog.Record{}, false
}

// listRegister keeps channel-state deltas as one growing text.
type listRegister struct {
	text  string
	fixed []byte // its snapshot, if not nil
	late  string // a change that a client makes as soon as a snapshot has been taken
}

func (r *listRegister) Snapshot() []byte {
	if r.fixed != nil {
		return r.fixed
	}
	before := r.text
	r.text += r.late
	return []byte(before)
}
func (r *listRegister) Apply(delta []byte)  { r.text += string(delta) }
func (r *listRegister) Replace(full []byte) { r.text = string(full) }
func (r *listRegister) Unlead()             { r.late = "" }

// broker is one machine with a disk that syncs on request.
type broker struct {
	name    ident.Node
	m       *Machine
	reg     *listRegister
	log     []queue.Batch // the content of the segments
	unsync  []uint64
	holdAck bool // the disk hangs
	cut     bool // the network is cut
	serves  bool // its channels are busy: the test stops them for a transfer
	done    []outcome.Completion

	stopping uint64 // View.Stopping that was answered

	snapshots, deltas, mostDeltas int // of the channels: given to the store; since the last snapshot

	committed []ident.Position // the committed ends given to the store
}

// cluster joins brokers by a queue of messages, and is their metadata store.
type cluster struct {
	t       *testing.T
	brokers []*broker
	wire    []func()
	state   metadata.PartitionState
	cas     func(b *broker, c CAS) // overrides the metadata store
	now     int64
	live    map[ident.Node]ident.Incarnation

	arrives func(e Envelope) int64 // the time at which a message arrives; nil = at once
	late    []delayed              // in this order
}

// delayed is a message on a slow network.
type delayed struct {
	atMS    int64
	deliver func()
}

func options(name ident.Node, i int) Options {
	return Options{
		Self:      Peer{Node: name, Incarnation: ident.Incarnation(i), Store: ident.StoreID(100 + i)},
		Partition: ident.Partition{Topic: 1}, ISRMS: 1000, HoldMS: 3000, WriteMS: 3000, GraceMS: 2000,
		RetryMS: 200, ElectionMS: 50, WindowBytes: 8 << 20, GroupBytes: 1 << 20, TailBytes: 16 << 20,
		HeldBytes: 64 << 20, Check: true,
	}
}

func newCluster(t *testing.T, n, minISR int) *cluster {
	c := &cluster{t: t, live: map[ident.Node]ident.Incarnation{}, now: 1000}
	c.state = metadata.PartitionState{V: 1, MinInSync: minISR, Leader: "n1", LeaderIncarnation: 1, Epoch: 1, Revision: 1}
	for i := 1; i <= n; i++ {
		name := ident.Node(fmt.Sprintf("n%d", i))
		b := &broker{name: name, reg: &listRegister{}}
		b.m = New(queue.Restored{}, &memoryIndex{}, b.reg, options(name, i))
		c.brokers = append(c.brokers, b)
		c.live[name] = ident.Incarnation(i)
		c.state.Replicas = append(c.state.Replicas, name)
		c.state.ISR = append(c.state.ISR, ident.Member{Node: name, Store: ident.StoreID(100 + i)})
	}
	for _, b := range c.brokers {
		c.step(b, Tick{NowMS: c.now})
		for _, p := range c.brokers {
			c.step(b, Live{Node: p.name, Incarnation: c.live[p.name]})
			c.step(b, PeerState{Node: p.name, Up: true})
		}
	}
	c.tell()
	return c
}

func (c *cluster) at(i int) *broker { return c.brokers[i-1] }

func (c *cluster) tell() {
	for _, b := range c.brokers {
		if !b.cut {
			c.step(b, Meta{State: c.state})
		}
	}
	c.settle()
}

// step runs one event and carries its effects out: disk at once unless it
// hangs, messages through the queue.
func (c *cluster) step(b *broker, ev Event) {
	var out Effects
	b.m.Step(ev, &out)
	for _, w := range out.Write {
		switch w.Kind {
		case queue.WriteTruncate, queue.WriteReset:
			b.log = slices.DeleteFunc(b.log, func(x queue.Batch) bool { return x.At.Offset >= w.At.Offset })
		case queue.WriteState:
			b.deltas++
			if w.State.Full {
				b.snapshots, b.deltas = b.snapshots+1, 0
			}
			b.mostDeltas = max(b.mostDeltas, b.deltas)
		case queue.WriteCommitted:
			b.committed = append(b.committed, w.At)
		}
		b.log = append(b.log, w.Batches...)
	}
	if out.Token != 0 {
		b.unsync = append(b.unsync, out.Token)
	}
	for _, e := range out.Send {
		deliver := func() {
			to := c.brokers[slices.IndexFunc(c.brokers, func(x *broker) bool { return x.name == e.To })]
			if !b.cut && !to.cut {
				c.step(to, Received{From: Peer{Node: b.name, Incarnation: b.m.self.Incarnation, Store: e.Msg.Store}, Msg: e.Msg})
			}
		}
		if c.arrives != nil {
			c.late = append(c.late, delayed{c.arrives(e), deliver})
		} else {
			c.wire = append(c.wire, deliver)
		}
	}
	for _, r := range out.Read {
		i := slices.IndexFunc(b.log, func(x queue.Batch) bool { return x.At.Offset >= r.From })
		c.wire = append(c.wire, func() { c.step(b, Read{Token: r.Token, Batches: slices.Clone(b.log[i:])}) })
	}
	if out.CAS != nil {
		cas := *out.CAS
		c.wire = append(c.wire, func() {
			if c.cas != nil {
				c.cas(b, cas)
				return
			}
			c.apply(b, cas)
		})
	}
	b.done = append(b.done, out.Done...)
	if s := b.m.View().Stopping; s != b.stopping {
		if b.stopping = s; s != 0 && !b.serves {
			c.step(b, ChannelsStopped{Number: s})
		}
	}
}

// apply carries the transaction out and notifies all brokers.
func (c *cluster) apply(b *broker, cas CAS) {
	if b.cut {
		return
	}
	ok := cas.State.Revision == c.state.Revision && (cas.LeaderGone == nil || c.live[cas.LeaderGone.Node] != cas.LeaderGone.Incarnation)
	if ok {
		rev := c.state.Revision
		c.state = cas.State.Clone()
		c.state.Revision = rev + 1
	}
	c.step(b, CASDone{Token: cas.Token, OK: ok, State: c.state})
	c.tell()
}

// settle syncs disks and delivers messages until nothing moves.
func (c *cluster) settle() {
	for moved := true; moved; {
		moved = false
		for _, b := range c.brokers {
			for !b.holdAck && len(b.unsync) > 0 {
				tok := b.unsync[0]
				b.unsync = b.unsync[1:]
				c.step(b, Synced{Token: tok})
				moved = true
			}
		}
		if len(c.wire) > 0 {
			f := c.wire[0]
			c.wire = c.wire[1:]
			f()
			moved = true
		}
	}
}

// pass lets time go by in ticks of 10 ms.
func (c *cluster) pass(ms int64) {
	for end := c.now + ms; c.now < end; {
		c.now += 10
		c.late = slices.DeleteFunc(c.late, func(d delayed) bool {
			if d.atMS <= c.now {
				c.wire = append(c.wire, d.deliver)
			}
			return d.atMS <= c.now
		})
		for _, b := range c.brokers {
			if !b.cut {
				c.step(b, Tick{NowMS: c.now})
			}
		}
		c.settle()
	}
}

func (c *cluster) put(b *broker, ticket uint64, body string) {
	d := queue.NewDraft(len(body))
	_ = d.AddMessage(queue.Message{Body: []byte(body)})
	c.step(b, Propose{TimeNS: c.now * 1e6, Puts: []Put{{Ticket: ticket, Draft: d.Draft(ident.RequestID{Producer: 7, N: ticket})}}})
}

func (c *cluster) down(n ident.Node, dead bool) {
	for _, b := range c.brokers {
		if b.name != n {
			c.step(b, PeerState{Node: n, Up: false, Dead: dead})
		}
	}
	c.settle()
}

func (c *cluster) up(n ident.Node) {
	for _, b := range c.brokers {
		c.step(b, PeerState{Node: n, Up: true})
	}
	c.settle()
}

func (b *broker) outcome(ticket uint64) outcome.Outcome {
	for _, d := range b.done {
		if d.Ticket == ticket {
			return d.Outcome
		}
	}
	return 0
}

func (b *broker) bodies() (all []string) {
	for _, x := range b.log {
		for _, msg := range x.Messages(0, 1<<20, nil) {
			all = append(all, string(msg.Body))
		}
	}
	return all
}
