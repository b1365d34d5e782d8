package model

import (
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// action is one thing that may happen next: at a broker, with what kind says.
type action struct {
	kind kind
	node uint8
	a, b uint8
}

type kind uint8

const (
	doSync     kind = iota + 1
	doWatch         // the watch delivers the next change
	doDeliver       // a: from, b: place in the queue
	doDouble        // a: from; the message stays in flight
	doLose          // a: from, b: place
	doTick          //
	doPut           // a: request
	doChange        // a: bit
	doSuspect       // a: whom
	doTrust         // a: whom
	doHandOver      // a: to whom
	doCrash         // a: submissions that survive
	doWipe          //
	doRestore       // a: batches of the earlier store
	doStart         //
	doExpire        // the registration goes
	doRegister      // and comes
	doCarryOut      // a: which transaction
	doAnswer        // a: which
	doUnknown       // a: which
)

// actions lists what may happen in w.
func (x *Explorer) actions(w *world, out []action) []action {
	e := x.etcds.at(w.etcd)
	for i := range x.c.Replicas {
		n := x.nodes.at(w.nodes[i])
		if n.running {
			out = x.running(w, e, n, uint8(i), out)
		} else {
			out = append(out, action{kind: doStart, node: uint8(i)})
		}
		if e.live[i] != 0 && (!n.running || w.left[expiriesLeft] > 0) {
			out = append(out, action{kind: doExpire, node: uint8(i)})
		}
	}
	for i := range e.cas {
		t := &e.cas[i]
		if t.status == sent {
			if x.states.at(e.state).Revision < x.c.MaxCAS+1 {
				out = append(out, action{kind: doCarryOut, node: uint8(t.from), a: uint8(i)})
			}
		} else {
			out = append(out, action{kind: doAnswer, node: uint8(t.from), a: uint8(i)})
		}
		if t.awaited && w.left[casLostLeft] > 0 {
			out = append(out, action{kind: doUnknown, node: uint8(t.from), a: uint8(i)})
		}
	}
	return out
}

func (x *Explorer) running(w *world, e *etcd, n *node, i uint8, out []action) []action {
	if len(n.unsynced) > 0 {
		out = append(out, action{kind: doSync, node: i})
	}
	if int(e.seen[i]) < len(e.log) {
		out = append(out, action{kind: doWatch, node: i})
	}
	if e.live[i] == 0 && int(e.seen[i]) == len(e.log) {
		out = append(out, action{kind: doRegister, node: i})
	}
	if w.left[ticksLeft] > 0 {
		out = append(out, action{kind: doTick, node: i})
	}
	out = x.messages(w, i, out)
	out = x.faults(w, n, i, out)
	if n.leads() {
		out = x.leading(w, n, i, out)
	}
	return out
}

func (x *Explorer) messages(w *world, i uint8, out []action) []action {
	for from := range uint8(x.c.Replicas) {
		if from == i {
			continue
		}
		q := &w.links[link(int(from), int(i))]
		if q[0] == 0 {
			continue
		}
		out = append(out, action{kind: doDeliver, node: i, a: from})
		if w.left[doublesLeft] > 0 {
			out = append(out, action{kind: doDouble, node: i, a: from})
		}
		if w.left[lossesLeft] > 0 {
			out = append(out, action{kind: doLose, node: i, a: from})
		}
		for b := uint8(1); b < maxDepth && q[b] != 0 && w.left[reordersLeft] > 0; b++ {
			out = append(out, action{kind: doDeliver, node: i, a: from, b: b})
		}
	}
	return out
}

func (x *Explorer) faults(w *world, n *node, i uint8, out []action) []action {
	if w.left[crashesLeft] > 0 {
		out = append(out, action{kind: doCrash, node: i})
		for k := 1; x.c.Torn && k <= len(n.unsynced); k++ {
			out = append(out, action{kind: doCrash, node: i, a: uint8(k)})
		}
	}
	if w.left[wipesLeft] > 0 {
		out = append(out, action{kind: doWipe, node: i})
	}
	for k := range n.disk.batches {
		if w.left[restoresLeft] > 0 {
			out = append(out, action{kind: doRestore, node: i, a: uint8(k)})
		}
	}
	return out
}

func (x *Explorer) leading(w *world, n *node, i uint8, out []action) []action {
	h := x.histories.at(w.history)
	asked := x.c.Puts - w.left[putsLeft]
	if w.left[putsLeft] > 0 {
		out = append(out, action{kind: doPut, node: i, a: asked})
	}
	for k := range asked {
		if w.left[retriesLeft] > 0 && !h.puts[k].acked && !h.puts[k].definite() {
			out = append(out, action{kind: doPut, node: i, a: k})
		}
	}
	if w.left[changesLeft] > 0 && n.view.Role == replica.Leader {
		out = append(out, action{kind: doChange, node: i, a: x.c.Changes - w.left[changesLeft]})
	}
	for j := range uint8(x.c.Replicas) {
		if j == i {
			continue
		}
		alive := x.nodes.at(w.nodes[j]).running
		switch {
		case n.up[j] && (!alive || w.left[suspectsLeft] > 0):
			out = append(out, action{kind: doSuspect, node: i, a: j})
		case !n.up[j] && alive:
			out = append(out, action{kind: doTrust, node: i, a: j})
		}
		if w.left[handOversLeft] > 0 && n.view.Role == replica.Leader {
			out = append(out, action{kind: doHandOver, node: i, a: j})
		}
	}
	return out
}

// next executes an action. The failure is empty if all is well; ok is false
// if the branch ends here.
func (x *Explorer) next(w world, a action) (to world, failure string, ok bool) {
	n := x.nodes.at(w.nodes[a.node])
	switch a.kind {
	case doCrash, doWipe, doRestore:
		x.crash(&w, n, a)
	case doExpire, doRegister, doCarryOut:
		x.metadata(&w, n, a)
	case doLose:
		w.left[lossesLeft]--
		w.drop(link(int(a.a), int(a.node)), int(a.b))
	default:
		id := x.react(&w, n, a)
		if failure, ok = x.absorb(&w, int(a.node), id); !ok || failure != "" {
			return w, failure, ok
		}
	}
	return w, x.members(&w), true
}

// absorb gives the cluster what a broker's step has done.
func (x *Explorer) absorb(w *world, i int, id uint32) (failure string, ok bool) {
	o := &x.outcomes[id]
	if o.failure != "" || o.pruned {
		return o.failure, o.failure != ""
	}
	w.nodes[i] = o.node
	for _, s := range o.sends {
		if s.to < x.c.Replicas && x.nodes.at(w.nodes[s.to]).running {
			w.post(link(i, s.to), s.envelope, x.c.Depth)
		}
	}
	if o.cas != 0 {
		x.proposed(w, i, o)
	}
	j := x.judge(id, o, w.history)
	w.history = j.history
	return j.failure, true
}

func (x *Explorer) proposed(w *world, i int, o *stepResult) {
	if uint64(x.transactions.at(o.cas).State.Epoch) > x.c.MaxEpoch {
		return // beyond the bound it never arrives
	}
	e := x.etcds.at(w.etcd).clone()
	for k := range e.cas {
		if e.cas[k].from == i {
			e.cas[k].awaited = false
		}
	}
	e.cas = append(e.cas, transaction{from: i, inc: x.nodes.at(o.node).inc, cas: o.cas, awaited: true})
	w.etcd = x.etcdID(e.tidy())
}

// tidy drops answers that no broker waits for.
func (e *etcd) tidy() *etcd {
	kept := e.cas[:0]
	for _, t := range e.cas {
		if t.awaited || t.status == sent {
			kept = append(kept, t)
		}
	}
	e.cas = kept
	return e
}

// react lets a broker take one event; the same event in the same state is
// computed once.
func (x *Explorer) react(w *world, n *node, a action) uint32 {
	i := int(a.node)
	key := stepKey{node: w.nodes[i], kind: a.kind}
	switch a.kind {
	case doDeliver, doDouble:
		l := link(int(a.a), i)
		key.kind, key.a = doDeliver, w.links[l][a.b]
		if a.kind == doDouble {
			w.left[doublesLeft]--
		} else {
			w.drop(l, int(a.b))
		}
		if a.b > 0 {
			w.left[reordersLeft]--
		}
	case doWatch:
		e := x.etcds.at(w.etcd).clone()
		key.a = e.log[e.seen[i]]
		e.seen[i]++
		w.etcd = x.etcdID(e)
	case doAnswer, doUnknown:
		key.a, key.b = x.answer(w, a)
	case doTick:
		w.left[ticksLeft]--
	case doPut:
		x.ask(w, a.a)
		key.a = uint32(a.a)
	case doChange:
		w.left[changesLeft]--
		key.a = uint32(a.a)
	case doSuspect:
		if x.nodes.at(w.nodes[a.a]).running {
			w.left[suspectsLeft]--
		}
		key.a = uint32(a.a)
	case doTrust:
		key.a = uint32(a.a)
	case doHandOver:
		w.left[handOversLeft]--
		key.a = uint32(a.a)
	case doStart:
		return x.start(w, n, i)
	}
	id, known := x.steps[key]
	if !known {
		id = x.keep(x.respond(n, key))
		x.steps[key] = id
	}
	return id
}

// answer takes a transaction's answer off the list: its status and state.
func (x *Explorer) answer(w *world, a action) (uint32, uint32) {
	e := x.etcds.at(w.etcd).clone()
	t := &e.cas[a.a]
	s, state := t.status, t.answer
	if a.kind == doUnknown {
		w.left[casLostLeft]--
		t.awaited, state = false, 0
	} else {
		t.awaited = false
	}
	w.etcd = x.etcdID(e.tidy())
	if a.kind == doUnknown {
		return uint32(sent), 0
	}
	return uint32(s), state
}

// ask notes one more attempt of a request.
func (x *Explorer) ask(w *world, request uint8) {
	if request == x.c.Puts-w.left[putsLeft] {
		w.left[putsLeft]--
	} else {
		w.left[retriesLeft]--
	}
	h := *x.histories.at(w.history)
	h.puts[request].open++
	w.history = x.historyID(&h)
}

func (x *Explorer) start(w *world, n *node, i int) uint32 {
	e := x.etcds.at(w.etcd).clone()
	x.register(e, i)
	e.seen[i] = uint8(len(e.log))
	w.etcd = x.etcdID(e)
	var up [maxReplicas]bool
	bits := uint32(0)
	for j := range x.c.Replicas {
		if up[j] = j == i || x.nodes.at(w.nodes[j]).running; up[j] {
			bits |= 1 << j
		}
	}
	key := stepKey{node: w.nodes[i], kind: doStart, a: w.etcd, b: bits}
	id, known := x.steps[key]
	if !known {
		id = x.keep(x.started(n, e.live[i], e.live, x.states.at(e.state), up))
		x.steps[key] = id
	}
	return id
}

// respond computes what respond's key says.
func (x *Explorer) respond(n *node, key stepKey) stepResult {
	switch key.kind {
	case doSync:
		return x.synced(n)
	case doDeliver:
		e := x.envelopes.at(key.a)
		return x.run(n, replica.Received{From: e.from, Msg: e.msg})
	case doWatch:
		c := x.changes.at(key.a)
		if c.place >= 0 {
			if c.place == n.place && c.inc != 0 { // the connections carry the new registration
				n = n.clone()
				n.inc = c.inc
			}
			return x.run(n, replica.Live{Node: names[c.place], Incarnation: c.inc})
		}
		return x.run(n, replica.Meta{State: x.states.at(c.state)})
	case doAnswer, doUnknown:
		ev := replica.CASDone{Token: n.casToken, OK: status(key.a) == landed, Unknown: status(key.a) == sent}
		if key.b != 0 {
			ev.State = x.states.at(key.b)
		}
		return x.run(n, ev)
	case doTick:
		return x.ticked(n)
	case doPut:
		return x.run(n, replica.Propose{Puts: []replica.Put{{Draft: x.drafts[key.a].Clone(), Ticket: uint64(key.a) + 1}}})
	case doChange:
		c := n.clone()
		delta := []byte{1 << key.a}
		c.register.Apply(delta) // the leader's channels change first
		return x.run(c, replica.Change{Delta: delta, Ticket: changeTicket + uint64(key.a)})
	case doSuspect, doTrust:
		c := n.clone()
		c.up[key.a] = key.kind == doTrust
		return x.run(c, replica.PeerState{Node: names[key.a], Up: c.up[key.a], Dead: !c.up[key.a]})
	case doHandOver:
		return x.run(n, replica.TransferLeadership{To: names[key.a]})
	default:
		panic("model: no such event")
	}
}

func (x *Explorer) synced(n *node) stepResult {
	c := n.clone()
	s := c.unsynced[0]
	c.unsynced = c.unsynced[1:]
	c.disk.keep(s)
	return x.run(c, replica.Synced{Token: s.token})
}

func (x *Explorer) ticked(n *node) stepResult {
	c := n.clone()
	c.nowMS += tickMS
	return x.run(c, replica.Tick{NowMS: c.nowMS})
}

func (x *Explorer) crash(w *world, n *node, a action) {
	i := int(a.node)
	c := n.crashed(0)
	switch a.kind {
	case doCrash:
		w.left[crashesLeft]--
		c = n.crashed(int(a.a))
	case doWipe:
		w.left[wipesLeft]--
		c.disk = disk{store: n.disk.store + 100}
	case doRestore:
		w.left[restoresLeft]--
		c.disk = n.disk.earlier(int(a.a))
		c.disk.store += 100
	}
	w.nodes[i] = x.nodes.id(c.canonical(), c)
	for j := range maxReplicas {
		if j != i {
			w.links[link(j, i)] = [maxDepth]uint32{}
		}
	}
	e := x.etcds.at(w.etcd).clone()
	e.ended(i)
	w.etcd = x.etcdID(e)
}

// earlier is the store as it was when its newest batch was the k-th.
func (d *disk) earlier(k int) disk {
	kept := d.batches[:k:k]
	r := disk{store: d.store, batches: kept}
	if k > 0 {
		r.epoch = kept[k-1].Epoch
	}
	return r
}

func (x *Explorer) metadata(w *world, n *node, a action) {
	e := x.etcds.at(w.etcd).clone()
	switch a.kind {
	case doExpire:
		if n.running {
			w.left[expiriesLeft]--
		}
		e.live[a.node] = 0
		x.tell(e, change{place: int(a.node)})
		if !n.running {
			e.seen[a.node] = uint8(len(e.log))
		}
	case doRegister:
		x.register(e, int(a.node))
	case doCarryOut:
		t := &e.cas[a.a]
		own := ident.Incarnation(0)
		if t.awaited {
			own = e.live[a.node]
		}
		x.carryOut(e, t, own)
	}
	for i := range x.c.Replicas { // a broker that is not running reads all when it starts
		if !x.nodes.at(w.nodes[i]).running {
			e.seen[i] = uint8(len(e.log))
		}
	}
	w.etcd = x.etcdID(e.tidy())
}

// drafts are the clients' puts.
func drafts(c *Config) (all []queue.Draft) {
	for i := range c.Puts {
		b, m := queue.NewDraft(1), queue.Message{Body: []byte{'a' + i}}
		if c.Identified {
			m.Identity = queue.IdentityOf(m.Body)
		}
		_ = b.AddMessage(m) // it has no header
		all = append(all, b.Draft(ident.RequestID{Producer: 1, N: uint64(i) + 1}))
	}
	return all
}
