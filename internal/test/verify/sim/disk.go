package sim

import (
	"errors"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

var (
	errDisk = errors.New("sim: input/output error")
	errFull = errors.New("sim: no space left")
)

// disk is the data directory of one broker: one journal, shared by all its
// stores. A submission is one atomic group; syncs happen one at a time and
// cover all that was queued when they began.
type disk struct {
	n          *node
	stores     []*store // by partition; nil = none here
	queued     []submission
	syncing    []submission
	busy       bool
	failed     bool
	slowUntil  micros
	slow       micros // what a sync takes until then
	stallUntil micros // no sync ends before
	shortUntil micros // below its reserve
	fullUntil  micros // takes nothing, not even in a new process
	generation int    // raised by a crash: ends of older syncs mean nothing
	yesterday  []*store
	platter    []*store // what a power cut leaves, where OK does not wait for a sync
}

// store is one partition on one disk.
type store struct {
	id       ident.StoreID
	durable  image
	volatile image
}

type submission struct {
	h      *host
	st     *store
	token  uint64
	writes []queue.Write
}

// submit takes the writes of one Step. They are readable at once and durable
// when a later sync has ended.
func (d *disk) submit(h *host, token uint64, writes []queue.Write) {
	s := h.store
	own := slices.Clone(writes)
	for i := range own {
		own[i].Batches = slices.Clone(own[i].Batches)
		own[i].State.Delta = slices.Clone(own[i].State.Delta)
		if err := s.volatile.apply(own[i]); err != nil {
			d.n.w.failf("chain", h.part, "%s: %v", d.n.name, err)
		}
	}
	d.queued = append(d.queued, submission{h, s, token, own})
	d.start()
}

func (d *disk) start() {
	if d.busy && d.failed {
		gen := d.generation
		d.n.w.after(0, func() { d.synced(gen) })
		return
	}
	if d.busy || len(d.queued) == 0 {
		return
	}
	d.busy = true
	d.syncing, d.queued = d.queued, nil
	w := d.n.w
	took := 100 + micros(w.rand.IntN(400))
	if w.rand.IntN(50) == 0 {
		took += micros(w.rand.IntN(5000))
	}
	if w.now < d.slowUntil {
		took += d.slow
	}
	if w.scenario.cached { // a copy to the page cache
		took = micros(w.spare.IntN(20))
	}
	if at := w.now + took; at < d.stallUntil {
		took = d.stallUntil - w.now
	}
	gen := d.generation
	w.after(took, func() { d.synced(gen) })
}

// synced ends a sync: the disk continues by itself, the process is notified when it
// runs.
func (d *disk) synced(gen int) {
	if gen != d.generation {
		return
	}
	if w := d.n.w; w.now < d.stallUntil { // stalled after it had begun
		w.after(d.stallUntil-w.now, func() { d.synced(gen) })
		return
	}
	if d.failed {
		d.refuse(errDisk)
		return
	}
	if d.n.w.now < d.fullUntil {
		d.failed = true
		d.refuse(errFull)
		d.n.endsItself()
		return
	}
	done := d.syncing
	d.syncing, d.busy = nil, false
	d.persist(done)
	d.n.post(d.n.boot, func() { notifySynced(done, nil) })
	d.start()
}

// refuse answers everything with the error that stopped the store. Written bytes
// stay where they are: some of them may have reached the platter.
func (d *disk) refuse(why error) {
	all := append(slices.Clone(d.syncing), d.queued...)
	d.n.post(d.n.boot, func() { notifySynced(all, why) })
}

// endsItself: a broker whose disk is full stops, and its supervisor starts it again.
func (n *node) endsItself() {
	w, boot := n.w, n.boot
	w.cover[StateDiskFull]++
	w.after(micros(w.rand.Int64N(int64(w.times.lag))), func() {
		if n.up && n.boot == boot {
			w.crashFor(n, w.times.lag)
		}
	})
}

// short reports whether the disk of a broker is below its reserve.
func (w *world) short(n ident.Node) bool { return w.now < w.nodes[w.nodeIndex(n)].disk.shortUntil }

// lacksRoom reports whether so few members of the in-sync set have room that puts are refused before anything is
// written (AC-9).
func (h *host) lacksRoom() bool {
	room := h.room()
	return room < len(h.view.ISR) && room < h.view.MinInSync
}

// room counts the members that are not short of space.
func (h *host) room() (n int) {
	for _, m := range h.view.ISR {
		if !h.n.w.short(m.Node) {
			n++
		}
	}
	return n
}

// space notifies the machine of the brokers whose disks have come to be short of space, or have room again. A leader on
// such a broker gives way to a member that has room, if a minimum has.
func (h *host) space() {
	w := h.n.w
	for i, n := range w.nodes {
		if low := w.short(n.name); low != h.low[i] {
			h.low[i] = low
			h.step(replica.Space{Node: n.name, Low: low})
		}
	}
	if h.view.Role != replica.Leader || !w.short(h.n.name) || h.room() < h.view.MinInSync {
		return
	}
	for _, m := range h.view.ISR {
		if !w.short(m.Node) {
			h.step(replica.TransferLeadership{To: m.Node})
			return
		}
	}
}

func (d *disk) persist(subs []submission) {
	for _, s := range subs {
		for _, wr := range s.writes {
			d.n.w.check.cutting(d.n, s.h.part, s.st, wr)
			if err := s.st.durable.apply(wr); err != nil {
				d.n.w.failf("chain", s.h.part, "%s: durable: %v", d.n.name, err)
			}
		}
	}
}

// notifySynced posts to each machine its newest token of the group.
func notifySynced(subs []submission, err error) {
	for i, s := range subs {
		last := true
		for _, later := range subs[i+1:] {
			last = last && later.h != s.h
		}
		if last {
			s.h.synced(s.token, err)
		}
	}
}

// crash forgets unsynced writes, except for a random prefix that reached the platter
// nonetheless.
func (d *disk) crash() {
	w := d.n.w
	open := append(d.syncing, d.queued...)
	keep := 0
	switch n := len(open); {
	case n == 0:
	case w.rand.IntN(3) == 0:
		keep = n
	default:
		keep = w.rand.IntN(n + 1)
	}
	d.persist(open[:keep])
	if keep < len(open) {
		w.cover[StateUnsyncedLost]++
	}
	d.reset()
}

// reset makes the disk as it is after a restart of its machine.
func (d *disk) reset() {
	d.generation++
	d.busy, d.failed = false, false
	d.queued, d.syncing = nil, nil
	for _, s := range d.stores {
		if s != nil {
			s.volatile = s.durable.clone()
		}
	}
}

// copies are of everything as it is.
func (d *disk) copies() []*store {
	all := make([]*store, len(d.stores))
	for p, s := range d.stores {
		if s != nil {
			all[p] = &store{id: s.id, durable: s.durable.clone()}
		}
	}
	return all
}

// remember keeps a copy of everything, as a backup would.
func (d *disk) remember() { d.yesterday = d.copies() }

// writeBack stands for the kernel, which brings the page cache to the platter now
// and then.
func (d *disk) writeBack() {
	d.platter = d.copies()
	w := d.n.w
	w.after(millisecond+micros(w.spare.Int64N(int64(2*w.times.isr))), d.writeBack)
}

// losePower leaves the bytes on the platter. The machine has another boot id then, and
// its stores get new ids. The process must be down.
func (d *disk) losePower() {
	w := d.n.w
	w.cover[StatePowerLost]++
	w.note(string(d.n.name), -1, "loses power, and what was not written back")
	for p, s := range d.stores {
		if old := d.platter[p]; s != nil && old != nil && old.id != s.id {
			d.platter[p] = nil // of a replica that was here before
		}
	}
	d.replace(d.platter)
	d.platter = d.copies()
}

// replace puts empty stores, or copies of others, under new ids: the boot counter in
// the metadata has noticed. The process must be down.
func (d *disk) replace(with []*store) {
	stores := make([]*store, len(d.stores))
	for p, s := range d.stores {
		if s == nil {
			continue
		}
		fresh := &store{id: d.n.w.newStoreID()}
		d.n.w.replaced = append(d.n.w.replaced, fresh.id)
		if with != nil && with[p] != nil {
			fresh.durable = with[p].durable.clone()
		}
		stores[p] = fresh
	}
	d.stores = stores
	d.reset()
}
