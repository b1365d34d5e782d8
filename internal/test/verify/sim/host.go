package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// stepsLimit is far above what a run takes (some 40,000 for each partition).
const stepsLimit = 500_000

// host is one machine with its store and its channels. Its node's core loop steps
// it, with the models in place of journal, transport and metadata.
type host struct {
	n          *node
	part       int
	store      *store
	m          *replica.Machine
	index      *commitlog.Log
	queue      *nsqd.Partition
	leads      ident.Epoch      // the channels serve in it
	finishes   []ident.Sequence // that no delta has yet
	changing   bool             // the next delta has them
	damaged    []ident.Offset   // in quarantine: batches that wait for a peer's
	out        replica.Effects
	state      replica.View // of the machine, after its last Step
	view       replica.View // as published
	gone       bool         // the process died or dropped the replica
	muted      bool         // it may be dropped: what the machine sends is lost
	touched    bool         // something was stepped in this pass
	ticked     micros
	seen       ident.Position // committed up to here was compared with the ledger
	introduced []ident.Node   // replicas whose brokers the machine was notified of
	low        map[int]bool   // the brokers that the machine knows to be short of space

	waiting []replica.Put // puts of one instant go in together
	tickets map[uint64]func(outcome.Completion)
	ticket  uint64
	next    func() // what follows the next change when it is confirmed
}

// open makes the machine of a partition from this node's disk. Its first events
// come from introduce.
func (n *node) open(p int) {
	if n.disk.stores[p] == nil {
		n.disk.stores[p] = &store{id: n.w.newStoreID()}
	}
	s := n.disk.stores[p]
	img := &s.volatile
	h := &host{
		n: n, part: p, store: s, index: newIndex(img), seen: img.start,
		tickets: make(map[uint64]func(outcome.Completion)), ticked: -second,
	}
	h.queue = newQueue(h, h, h)
	replica.Replay(h.queue, img.confirms)
	o := n.w.options(p)
	o.Self = replica.Peer{Node: n.name, Incarnation: n.last, Store: s.id}
	_ = n.w.rand.Uint64() // a draw that nothing uses: without it every seed would be another run
	h.low = map[int]bool{}
	h.m = replica.New(img.restored(h.index), h.index, h.queue, o)
	h.state = h.m.View()
	n.hosts[p] = h
	if k := n.keys[p]; k.Leader == n.name && k.Epoch == img.epoch {
		n.w.cover[StateRestartInEpoch]++
	}
	n.w.note(string(n.name), p, "opens store %x: epoch %d, end %d, committed ≥ %d",
		uint64(s.id)&0xffff, img.epoch, img.end().Offset, img.committed.Offset)
}

// step posts one event to the machine.
func (h *host) step(ev replica.Event) { h.n.mail(letter{h: h, ev: ev}) }

// do steps the machine. Its effects are executed at the end of the pass.
func (h *host) do(ev replica.Event) {
	w := h.n.w
	if w.steps++; w.steps > stepsLimit {
		w.failf("storm", h.part, "more than %d steps: messages beget messages", stepsLimit)
	}
	if w.trace.on {
		w.noteEvent(h, ev)
	}
	if msg, ok := ev.(replica.Received); ok && msg.Msg.Reject && w.scenario.epochs > 0 {
		h.beyondTables(msg.Msg.Epochs)
	}
	had := effectsSeen{len(h.out.Write), len(h.out.Send), len(h.out.Read), len(h.out.Done), h.out.CAS}
	h.m.Step(ev, &h.out)
	if w.config.tamper != nil {
		for i := range h.out.Done[had.done:] {
			w.config.tamper(&h.out.Done[had.done+i])
		}
	}
	h.mix(ev, had)
}

// beyondTables counts refusals of a log that has no epoch in common with what a
// leader's table holds.
func (h *host) beyondTables(theirs []commitlog.EpochEnd) {
	ours := h.index.Epochs()
	ours = ours[max(0, len(ours)-h.n.w.scenario.epochs):]
	common := slices.ContainsFunc(theirs, func(e commitlog.EpochEnd) bool {
		return slices.ContainsFunc(ours, func(o commitlog.EpochEnd) bool { return o.Epoch == e.Epoch })
	})
	if len(theirs) > 0 && !common && h.state.Role >= replica.Electing {
		h.n.w.cover[StateBeyondTables]++
	}
}

// effectsSeen is what earlier Steps of a pass have left in the effects.
type effectsSeen struct {
	write, send, read, done int
	cas                     *replica.CAS
}

// mix condenses the Step into the trace's hash.
func (h *host) mix(ev replica.Event, had effectsSeen) {
	v := h.m.View()
	w := h.n.w
	w.trace.mix(uint64(w.now), uint64(h.n.index)<<8|uint64(h.part), eventNumber(ev),
		uint64(v.Role), uint64(v.Epoch), uint64(v.Committed.Offset), uint64(v.End.Offset),
		uint64(len(h.out.Write))<<32|uint64(len(h.out.Send))<<16|uint64(len(h.out.Done)), h.out.Token)
	if w.trace.on {
		w.noteEffects(h, v, had)
	}
	w.cover.writes(h.out.Write[had.write:], v.Role)
	w.check.changed(h, &v)
	h.state = v
}

// submit hands the writes to the disk.
func (h *host) submit() {
	if len(h.out.Write) > 0 {
		h.passedBy(h.out.Write)
		h.n.disk.submit(h, h.out.Token, h.out.Write)
	}
	h.n.w.check.committed(h)
}

// passedBy counts logs that begin again although they hold something.
func (h *host) passedBy(ws []queue.Write) {
	if slices.ContainsFunc(ws, func(w queue.Write) bool { return w.Kind == queue.WriteRestart }) && len(h.store.volatile.batches) > 0 {
		h.n.w.cover[StatePassed]++
	}
}

// deliver executes the effects that leave the machine. It returns false if the process
// dies in the middle, with some of them undone.
func (h *host) deliver() bool {
	out, w := &h.out, h.n.w
	if h.diesHere() {
		return false
	}
	if !h.muted {
		for _, e := range out.Send {
			w.net.send(h, w.nodes[w.nodeIndex(e.To)], e)
		}
	}
	for _, r := range out.Read {
		h.read(r)
	}
	if out.CAS != nil {
		h.n.compareAndSwap(h, *out.CAS)
	}
	return true
}

// settle shows the machine's view and answers.
func (h *host) settle() {
	h.touched = false
	if h.gone {
		return
	}
	out, w := &h.out, h.n.w
	h.publish()
	for _, c := range out.Done {
		h.complete(c)
	}
	if out.Alarm != nil && !w.expected(out.Alarm) && !w.calls(h, out.Alarm) && w.config.Check {
		w.failf("alarm", h.part, "%s: %v", h.n.name, out.Alarm)
	}
	out.Reset()
}

// diesHere executes a prefix of the sends and ends the process, if a fault
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

// retire ends hosting: what waits is answered, nothing of the machine runs any more.
func (h *host) retire() {
	h.gone = true
	for _, t := range slices.Sorted(maps.Keys(h.tickets)) {
		h.complete(outcome.Completion{Ticket: t, Outcome: outcome.InDoubt})
	}
	if h.leads != 0 {
		h.leads = 0
		h.queue.Unlead()
	}
	h.view = replica.View{Role: replica.Stopped}
}

// read answers a ReadRequest after a while, from the files as they are then.
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
func (h *host) propose(d queue.Draft, done func(outcome.Completion)) {
	if d.Control == 0 && h.lacksRoom() {
		done(outcome.Completion{Outcome: outcome.DiskFull})
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

func (h *host) complete(c outcome.Completion) {
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
	case replica.TransferLeadership:
		return 11 << 8
	case replica.ChannelsStopped:
		return 12 << 8
	case replica.Space:
		return 13 << 8
	}
	panic(fmt.Sprintf("sim: event %T", ev))
}
