package model

import (
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// node is one state of one broker. It is never changed: step makes another.
type node struct {
	place    int
	disk     disk
	boots    uint8 // processes started
	running  bool  // the rest is of the running process
	inc      ident.Incarnation
	m        *replica.Machine
	index    *index
	register register
	log      []queue.Batch // as written, durable or not
	unsynced []submission
	nowMS    int64
	casToken uint64 // of the transaction whose answer is awaited; 0 = none
	up       [maxReplicas]bool
	view     replica.View
}

var names = [maxReplicas]ident.Node{"n1", "n2", "n3"}

func placeOf(n ident.Node) int { return int(n[1] - '1') }

// incarnation names the runs of a broker so that they rise.
func incarnation(place int, run uint8) ident.Incarnation {
	return ident.Incarnation(10*int(run) + place + 1)
}

func storeID(place, generation int) ident.StoreID { return ident.StoreID(100*generation + place + 1) }

func (n *node) clone() *node {
	c := *n
	if n.running {
		c.index = n.index.clone()
		c.m = n.m.Clone(c.index, &c.register)
	}
	c.unsynced = slices.Clone(n.unsynced)
	return &c
}

func (n *node) canonical() string {
	var c canon
	c.num(uint64(n.place), uint64(n.boots))
	c.disk(&n.disk)
	if !n.running {
		return string(c)
	}
	bits := uint64(1)
	for i, up := range n.up {
		if up {
			bits |= 2 << i
		}
	}
	if n.casToken != 0 {
		bits |= 16
	}
	c.num(bits, uint64(n.inc), uint64(n.register.bits), uint64(len(n.unsynced)))
	c.batches(n.log)
	for _, s := range n.unsynced {
		c.submission(s)
	}
	c = n.m.Canonical(c)
	return string(c)
}

func (n *node) leads() bool {
	return n.running && (n.view.Role == replica.Leader || n.view.Role == replica.Electing)
}

// stepResult is the effect of a step of one broker, on it and on the others.
type stepResult struct {
	node     uint32
	sends    []sending
	cas      uint32 // a transaction that is asked for; 0 = none
	done     []outcome.Completion
	quiet    bool // nothing that history must judge
	advanced bool // it leads, and its committed end moved
	failure  string
	pruned   bool
}

type sending struct {
	to       int
	envelope uint32
}

// envelope is a message with what the connection says of its sender.
type envelope struct {
	from replica.Peer
	msg  replica.Message
}

func (x *Explorer) options(n *node) replica.Options {
	return replica.Options{
		Self:      replica.Peer{Node: names[n.place], Incarnation: n.inc, Store: n.disk.store},
		Partition: ident.Partition{Topic: 1},
		ISRMS:     shortMS, HoldMS: graceMS, WriteMS: shortMS, GraceMS: graceMS, RetryMS: shortMS,
		WindowBytes: 1 << 20, GroupBytes: 1 << 20, TailBytes: 1 << 20, HeldBytes: 1 << 20,
		Check: !x.c.unasserted,
	}
}

// run takes a broker's state through events and executes the effects that stay within
// the broker.
func (x *Explorer) run(from *node, events ...replica.Event) stepResult {
	n := from.clone()
	r := runner{x: x, n: n, stopping: n.view.Stopping}
	for _, ev := range events {
		r.step(ev)
	}
	for x.c.EagerSync && len(n.unsynced) > 0 && r.o.failure == "" && !r.o.pruned {
		r.sync()
	}
	if r.o.failure != "" || r.o.pruned {
		return r.o
	}
	old := from.view
	n.view = n.m.View()
	r.o.advanced = n.leads() && n.view.Committed.Offset > old.Committed.Offset
	r.o.quiet = len(r.o.done) == 0 && n.view.Committed == old.Committed && n.view.Role == old.Role && n.view.Epoch == old.Epoch &&
		n.register == from.register
	if n.view.Committed.Offset < old.Committed.Offset && from.running {
		r.o.failure = fmt.Sprintf("P9: the committed end of %s moves back from %d to %d", names[n.place], old.Committed.Offset, n.view.Committed.Offset)
	}
	if from.running && from.inc == n.inc && old.Role == replica.Leader && n.view.Role == replica.Electing && n.view.Epoch == old.Epoch+1 {
		r.o.failure = fmt.Sprintf("P11: %s has led epoch %d, leads epoch %d, and delivers nothing", names[n.place], old.Epoch, n.view.Epoch)
	}
	x.reached.stepped(old.Counters, n.view.Counters)
	r.o.node = x.nodes.id(n.canonical(), n)
	return r.o
}

// runner is one run.
type runner struct {
	x        *Explorer
	n        *node
	o        stepResult
	stopping uint64 // replica.View.Stopping that was answered
}

func (r *runner) step(ev replica.Event) {
	if r.o.failure != "" || r.o.pruned {
		return
	}
	if _, ok := ev.(replica.CASDone); ok {
		r.n.casToken = 0
	}
	var out replica.Effects
	if !r.guarded(ev, &out) {
		return
	}
	r.keep(&out)
	for _, e := range out.Send {
		if to := placeOf(e.To); to != r.n.place && e.Msg.Kind != replica.MsgProbe && e.Msg.Kind != replica.MsgProbeReply {
			r.o.sends = append(r.o.sends, sending{to, r.x.envelope(r.n, e.Msg)})
		}
	}
	r.o.done = append(r.o.done, out.Done...)
	if out.CAS != nil {
		r.n.casToken = out.CAS.Token
		r.o.cas = r.x.transaction(*out.CAS)
	}
	if out.Alarm != nil && !r.x.c.unasserted {
		r.o.failure = "alarm: " + out.Alarm.Error()
	}
	for _, q := range out.Read {
		r.step(replica.Read{Token: q.Token, Batches: readFrom(r.n.log, q.From)})
	}
	if s := r.n.m.View().Stopping; s != r.stopping {
		if r.stopping = s; s != 0 { // a change of the channels is one step here: none is on its way
			r.step(replica.ChannelsStopped{Number: s})
		}
	}
}

// guarded steps the machine. A panic is an assertion of the machine: that of a mutant
// ends the branch, and only a global property may judge.
func (r *runner) guarded(ev replica.Event, out *replica.Effects) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			if !r.x.c.unasserted {
				r.o.failure = fmt.Sprint("assertion: ", p)
			}
			r.o.pruned, ok = true, false
		}
	}()
	r.n.m.Step(ev, out)
	return true
}

func (r *runner) keep(out *replica.Effects) {
	if out.Token == 0 {
		return
	}
	for i := range out.Write {
		out.Write[i].Batches = slices.Clone(out.Write[i].Batches)
		r.n.log = written(r.n.log, &out.Write[i])
	}
	r.n.unsynced = append(r.n.unsynced, submission{out.Token, out.Write})
}

// sync makes the oldest submission durable.
func (r *runner) sync() {
	s := r.n.unsynced[0]
	r.n.unsynced = slices.Delete(r.n.unsynced, 0, 1)
	r.n.disk.keep(s)
	r.step(replica.Synced{Token: s.token})
}

func readFrom(log []queue.Batch, o ident.Offset) []queue.Batch {
	for i := range log {
		if log[i].At.Offset >= o {
			return log[i:]
		}
	}
	return nil
}

// crashed is the broker without its process: the first kept submissions survive.
func (n *node) crashed(kept int) *node {
	c := &node{place: n.place, disk: n.disk, boots: n.boots}
	for _, s := range n.unsynced[:kept] {
		c.disk.keep(s)
	}
	return c
}

// started is the broker with a new process, which has read the metadata.
func (x *Explorer) started(from *node, inc ident.Incarnation, live [maxReplicas]ident.Incarnation, s metadata.PartitionState, up [maxReplicas]bool) stepResult {
	n := &node{
		place: from.place, disk: from.disk, boots: from.boots + 1, running: true, inc: inc,
		nowMS: startMS, register: from.disk.register, log: from.disk.batches, index: newIndex(from.disk.batches), up: up,
	}
	n.m = replica.New(n.disk.restored(), n.index, &n.register, x.options(n))
	n.view = n.m.View()
	events := []replica.Event{replica.Tick{NowMS: startMS}}
	for i := range x.c.Replicas {
		events = append(events, replica.Live{Node: names[i], Incarnation: live[i]})
		if i != n.place {
			events = append(events, replica.PeerState{Node: names[i], Up: up[i], Dead: !up[i]})
		}
	}
	return x.run(n, append(events, replica.Meta{State: s})...)
}
