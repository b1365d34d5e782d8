package sim

import (
	"fmt"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// stepsLimit is far above what a run takes (some 40,000 for each partition).
const stepsLimit = 500_000

// host runs one machine: it is the core loop of the daemon, with the models in
// place of journal, transport and metadata.
type host struct {
	n        *node
	part     int
	store    *store
	m        *replica.Machine
	index    *commitlog.Log
	queue    *nsqd.Partition
	leads    ident.Epoch      // the channels serve in it
	finishes []ident.Sequence // that no delta has told yet
	telling  bool             // the next delta tells them
	damaged  []ident.Offset   // in quarantine: batches that wait for a peer's
	out      replica.Effects
	view     replica.View
	old      replica.View // before the Step that runs
	gone     bool         // the process died or dropped the replica
	ticked   micros
	seen     ident.Position // committed up to here was compared with the ledger

	waiting []replica.Put // puts of one instant go in together
	tickets map[uint64]func(replica.Completion)
	ticket  uint64
}

// open makes the machine of a partition from this node's disk, and tells it
// what a starting broker knows.
func (n *node) open(p int) {
	if n.disk.stores[p] == nil {
		n.disk.stores[p] = &store{id: n.w.newStoreID()}
	}
	s := n.disk.stores[p]
	img := &s.volatile
	h := &host{
		n: n, part: p, store: s, index: newIndex(img), seen: img.start,
		tickets: make(map[uint64]func(replica.Completion)),
	}
	h.queue = newQueue(h, h, h)
	replica.Replay(h.queue, img.confirms)
	o := n.w.options(p)
	o.Self = replica.Peer{Node: n.name, Incarnation: n.incarnation, Store: s.id}
	o.Seed = n.w.rand.Uint64()
	h.m = replica.New(img.restored(h.index), h.index, h.queue, o)
	h.view = h.m.View()
	n.hosts[p] = h
	if k := n.keys[p]; k.Leader == n.name && k.Epoch == img.epoch {
		n.w.cover[StateRestartInEpoch]++
	}
	n.w.note(string(n.name), p, "opens store %x: epoch %d, end %d, committed ≥ %d",
		uint64(s.id)&0xffff, img.epoch, img.end().Offset, img.committed.Offset)
	h.tick()
	for i, r := range n.live {
		h.step(replica.Live{Node: n.w.nodes[i].name, Incarnation: r.incarnation, HandingOver: r.handingOver})
	}
	for i, v := range n.peers {
		if i != n.index {
			h.step(replica.PeerState{Node: n.w.nodes[i].name, Up: v.up, Dead: v.dead})
		}
	}
}

func (h *host) tick() {
	h.ticked = h.n.w.now
	h.do(replica.Tick{NowMS: h.n.nowMS()})
}

// step hands one event in, after the time if that is old.
func (h *host) step(ev replica.Event) {
	if h.n.w.now-h.ticked > 10*millisecond {
		h.tick()
	}
	h.do(ev)
}

func (h *host) do(ev replica.Event) {
	if h.gone {
		return
	}
	w := h.n.w
	h.out.Reset()
	if w.steps++; w.steps > stepsLimit {
		w.failf("storm", h.part, "more than %d steps: messages beget messages", stepsLimit)
	}
	if w.trace.on {
		w.noteEvent(h, ev)
	}
	h.m.Step(ev, &h.out)
	h.mix(ev)
	h.carryOut()
}

// mix condenses the Step into the trace's hash.
func (h *host) mix(ev replica.Event) {
	v := h.m.View()
	w := h.n.w
	w.trace.mix(uint64(w.now), uint64(h.n.index)<<8|uint64(h.part), eventNumber(ev),
		uint64(v.Role), uint64(v.Epoch), uint64(v.Committed.Offset), uint64(v.End.Offset),
		uint64(len(h.out.Write))<<32|uint64(len(h.out.Send))<<16|uint64(len(h.out.Done)), h.out.Token)
	if w.trace.on {
		w.noteEffects(h, v)
	}
	h.view, v = v, h.view
	h.n.w.check.changed(h, &v)
	h.old = v
}

// carryOut does what the machine wants, in the order of the fields. A process
// told to die in the middle leaves some of it undone.
func (h *host) carryOut() {
	out, w := &h.out, h.n.w
	if len(out.Write) > 0 {
		h.n.disk.submit(h, out.Token, out.Write)
		w.cover.writes(out.Write, h.view.Role)
	}
	w.check.committed(h)
	h.publish(&h.old)
	if h.diesHere() {
		return
	}
	for _, e := range out.Send {
		w.net.send(h, w.nodes[w.nodeIndex(e.To)], e)
	}
	for _, r := range out.Read {
		h.read(r)
	}
	if out.CAS != nil {
		h.n.compareAndSwap(h, *out.CAS)
	}
	for _, c := range out.Done {
		h.complete(c)
	}
	if out.Alarm != nil && w.config.Check && !w.expected(out.Alarm) {
		w.failf("alarm", h.part, "%s: %v", h.n.name, out.Alarm)
	}
}

// diesHere carries out a prefix of the sends and ends the process, if a fault
// asked for that.
func (h *host) diesHere() bool {
	n, out := h.n, &h.out
	if n.crashIn == 0 || len(out.Send)+len(out.Write) == 0 {
		return false
	}
	if n.crashIn--; n.crashIn > 0 {
		return false
	}
	for _, e := range out.Send[:n.w.rand.IntN(len(out.Send)+1)] {
		n.w.net.send(h, n.w.nodes[n.w.nodeIndex(e.To)], e)
	}
	if out.CAS != nil && n.w.rand.IntN(2) == 0 {
		n.compareAndSwap(h, *out.CAS)
	}
	n.crash()
	return true
}

// read answers a ReadRequest after a while from what is in the files then.
func (h *host) read(r replica.ReadRequest) {
	w, boot := h.n.w, h.n.boot
	w.after(200+micros(w.rand.IntN(3000)), func() {
		h.n.post(boot, func() {
			bs, err := h.store.volatile.read(r.From, r.Max)
			if err == nil && len(bs) > 0 {
				w.cover[StateCatchUpRead]++
			}
			h.noteDamage(err)
			h.step(replica.Read{Token: r.Token, Batches: bs, Err: err})
		})
	})
}

func (h *host) synced(token uint64, err error) {
	h.step(replica.Synced{Token: token, Err: err})
}

// propose queues a put; all that come within a moment are one event.
func (h *host) propose(d queue.Draft, done func(replica.Completion)) {
	if d.Control == 0 && h.shortOfSpace() {
		done(replica.Completion{Outcome: replica.DiskFull})
		return
	}
	h.ticket++
	h.tickets[h.ticket] = done
	h.waiting = append(h.waiting, replica.Put{Draft: d, Ticket: h.ticket})
	if len(h.waiting) > 1 {
		return
	}
	w, boot := h.n.w, h.n.boot
	w.after(micros(w.rand.IntN(300)), func() {
		h.n.post(boot, func() {
			puts := h.waiting
			h.waiting = nil
			h.step(replica.Propose{Puts: puts, TimeNS: h.n.wallNS()})
		})
	})
}

func (h *host) complete(c replica.Completion) {
	done, ok := h.tickets[c.Ticket]
	if !ok {
		h.n.w.failf("ticket", h.part, "%s: ticket %d is answered twice or was never given", h.n.name, c.Ticket)
		return
	}
	delete(h.tickets, c.Ticket)
	done(c)
}

func eventNumber(ev replica.Event) uint64 {
	switch ev := ev.(type) {
	case replica.Propose:
		return 1<<8 | uint64(len(ev.Puts))
	case replica.Change:
		return 2 << 8
	case replica.Received:
		return 3<<8 | uint64(ev.Msg.Kind)
	case replica.Synced:
		return 4 << 8
	case replica.Read:
		return 5 << 8
	case replica.Meta:
		return 6 << 8
	case replica.CASDone:
		return 7 << 8
	case replica.PeerState:
		return 8 << 8
	case replica.Live:
		return 9 << 8
	case replica.Tick:
		return 10 << 8
	case replica.HandOver:
		return 11 << 8
	}
	panic(fmt.Sprintf("sim: event %T", ev))
}
