package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// etcd is a linearizable store of the partitions' keys and the registrations.
// It never errs; what goes wrong lies between it and a node: requests that
// arrive late or never, answers that are lost, watches that lag or start over.
type etcd struct {
	w         *world
	revision  int64
	parts     []metadata.PartitionState   // Revision = the key's ModRevision
	proposed  [][]metadata.PartitionState // by partition: what may still be put in place of it
	live      []registration              // by node
	changes   []change                    // since the compaction, for the watches
	compacted int64                       // watches that are not past it start over
	down      bool
	cut       []int // by node: how many faults cut it off
	loseP     int   // per cent of answers that are lost
	lateP     int   // per cent of compare-and-swaps that arrive after their timeout
	lag       []micros
	gap       []bool // the node's next delivery starts over
}

// registration is live/<node>. Incarnation 0 = the key is not there.
type registration struct {
	incarnation ident.Incarnation
	handingOver bool
	unreachable []ident.Node // as it says itself
	expires     micros
	revision    int64
}

// change is one revision: of a partition's key, or of a registration.
type change struct {
	revision int64
	part     int // -1: node
	node     int
	state    metadata.PartitionState
	live     registration
}

func (e *etcd) reachable(n *node) bool { return !e.down && e.cut[n.index] == 0 }

// request sends one request and gives its answer back at most once: answered,
// or unknown after the timeout. late says whether it may arrive after that.
func (e *etcd) request(n *node, late bool, apply func(), answered, unknown func()) {
	w, boot, over := e.w, n.boot, false
	out := micros(200 + w.rand.IntN(1500))
	if !e.reachable(n) {
		if !late || w.rand.IntN(3) != 0 {
			apply = nil
		}
		out += micros(w.rand.Int64N(int64(3 * w.times.etcdTimeout)))
	} else if late && w.rand.IntN(100) < e.lateP {
		out += w.times.etcdTimeout + micros(w.rand.Int64N(int64(3*w.times.etcdTimeout)))
	}
	if apply != nil {
		w.after(out, func() {
			if e.down || over && !late {
				return
			}
			apply()
			if !e.reachable(n) || w.rand.IntN(100) < e.loseP {
				return
			}
			w.after(micros(200+w.rand.IntN(1500)), func() {
				n.post(boot, func() {
					if !over {
						over = true
						answered()
					}
				})
			})
		})
	}
	w.after(w.times.etcdTimeout, func() {
		n.post(boot, func() {
			if !over {
				over = true
				unknown()
			}
		})
	})
}

// compareAndSwap executes replica.CAS at one instant. A leader that is to be replaced
// must have the registration that its replacer knows.
func (e *etcd) compareAndSwap(self replica.Peer, part int, c replica.CAS, old registration) bool {
	if e.parts[part].Revision != c.State.Revision || !e.is(self.Node, self.Incarnation) {
		return false
	}
	if gone := c.LeaderGone; gone != nil {
		now := e.live[e.w.nodeIndex(gone.Node)]
		if now.incarnation != old.incarnation || now.revision != old.revision {
			return false
		}
		if e.is(gone.Node, gone.Incarnation) && !now.handingOver {
			e.w.cover[StateCutOff]++
		}
	}
	if heir := c.TransferTarget; heir != nil && !e.is(heir.Node, heir.Incarnation) {
		return false
	}
	e.put(part, c.State)
	return true
}

func (e *etcd) is(n ident.Node, inc ident.Incarnation) bool {
	return e.live[e.w.nodeIndex(n)].incarnation == inc
}

// propose notes a state that may land as long as the key's revision stays.
func (e *etcd) propose(part int, s metadata.PartitionState) {
	if s.Revision == e.parts[part].Revision {
		e.proposed[part] = append(e.proposed[part], s)
	}
}

// mayBe lists what a partition's key is and what it may be soon.
func (e *etcd) mayBe(part int) []metadata.PartitionState {
	return append(slices.Clone(e.proposed[part]), e.parts[part])
}

// put writes a partition's key and notifies the watches.
func (e *etcd) put(part int, s metadata.PartitionState) {
	old := e.parts[part]
	e.revision++
	s = s.Clone()
	s.Revision = e.revision
	e.parts[part], e.proposed[part] = s, nil
	e.changes = append(e.changes, change{revision: e.revision, part: part, state: s})
	e.w.check.metadata(part, old, s)
	e.w.note("etcd", part, "key %s", stateText{s})
	e.w.trace.mix(uint64(e.w.now), 0xe7cd, uint64(part), uint64(s.Revision), uint64(s.Epoch))
	e.announce()
}

// setLive writes or removes a registration; a new one gets its revision as
// incarnation.
func (e *etcd) setLive(n int, r registration, create bool) ident.Incarnation {
	e.revision++
	if create {
		r.incarnation = ident.Incarnation(e.revision)
	}
	if r.incarnation != 0 {
		r.revision = e.revision
	}
	e.live[n] = r
	e.changes = append(e.changes, change{revision: e.revision, part: -1, node: n, live: r})
	e.w.note("etcd", -1, "live/%s incarnation %d handing over %v", e.w.nodes[n].name, r.incarnation, r.handingOver)
	e.w.trace.mix(uint64(e.w.now), 0x11fe, uint64(n), uint64(e.revision))
	e.announce()
	return r.incarnation
}

// revoke ends the registration of one incarnation, if it is still that one.
func (e *etcd) revoke(n int, inc ident.Incarnation) {
	if inc != 0 && e.live[n].incarnation == inc {
		e.setLive(n, registration{}, false)
	}
}

// expire lets leases run out; called every few milliseconds. Without a quorum
// leases do not run out, as in etcd.
func (e *etcd) expire() {
	for i, r := range e.live {
		switch {
		case r.incarnation == 0:
		case e.down:
			e.live[i].expires = max(r.expires, e.w.now+e.w.times.ttl)
		case r.expires < e.w.now:
			e.setLive(i, registration{}, false)
		}
	}
}

func (e *etcd) announce() {
	for _, n := range e.w.nodes {
		delay := 300 + micros(e.w.rand.IntN(2500)) + e.lag[n.index]
		boot := n.boot
		e.w.after(delay, func() { e.deliver(n, boot) })
	}
}

// deliver brings a node's watch up to date, or lets it start over.
func (e *etcd) deliver(n *node, boot int) {
	if !e.reachable(n) || n.boot != boot || !n.watching {
		return
	}
	upTo := e.revision
	if e.gap[n.index] || n.watchSent < e.compacted {
		e.gap[n.index] = false
		snapshot := e.snapshot()
		n.watchSent = upTo
		n.post(boot, func() { n.startedOver(snapshot, upTo) })
		return
	}
	from := n.watchSent
	n.watchSent = upTo
	var news []change
	for i := len(e.changes) - 1; i >= 0 && e.changes[i].revision > from; i-- {
		news = append(news, e.changes[i])
	}
	for i, j := 0, len(news)-1; i < j; i, j = i+1, j-1 {
		news[i], news[j] = news[j], news[i]
	}
	n.post(boot, func() { n.watched(news, upTo) })
}

// compact forgets how the current state came about: a watch that lags behind
// cannot continue.
func (e *etcd) compact() {
	e.compacted, e.changes = e.revision, nil
	e.w.cover[StateCompaction]++
}

// snapshot is everything as it is now. Registrations come first, so that no node
// judges a leader by an incarnation older than the key that names it.
func (e *etcd) snapshot() []change {
	var all []change
	for i, r := range e.live {
		all = append(all, change{revision: e.revision, part: -1, node: i, live: r})
	}
	for p, s := range e.parts {
		if s.Revision == 0 {
			continue // not made yet
		}
		all = append(all, change{revision: s.Revision, part: p, state: s})
	}
	return all
}
