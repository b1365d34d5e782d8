package sim

import (
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// The parts of a run, in their order.

// begin starts all brokers and makes the partitions, as creating a topic does:
// stores first, then the keys with leaders that are registered.
func (w *world) begin() {
	for _, n := range w.nodes {
		n.start()
	}
	w.runUntil(50*millisecond, func() bool { return w.allRegistered() })
	for p := range w.ledgers {
		w.create(p)
	}
	w.startClients()
	w.expireLeases()
	w.control()
}

// create makes a partition: first its stores, a moment later its key. In between
// the brokers' watches may start over.
func (w *world) create(p int) {
	s := metadata.PartitionState{V: 1, Epoch: 1, MinInSync: w.scenario.minISR, Durability: metadata.DurabilitySync}
	for i := range w.scenario.rf {
		n := w.nodes[(p+i)%len(w.nodes)]
		n.disk.stores[p] = &store{id: w.newStoreID()}
		s.Replicas = append(s.Replicas, n.name)
		s.ISR = append(s.ISR, ident.Member{Node: n.name, Store: n.disk.stores[p].id})
	}
	if w.rand.IntN(2) == 0 {
		w.etcd.compact()
		w.etcd.announce()
		w.runUntil(w.now+20*millisecond, nil)
	}
	leader := w.nodes[p%len(w.nodes)]
	s.Leader, s.LeaderIncarnation = leader.name, leader.incarnation
	w.etcd.put(p, s)
}

func (w *world) allRegistered() bool {
	return !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.incarnation == 0 })
}

func (w *world) startClients() {
	for i := range w.scenario.producers {
		c := &producer{w: w, id: uint64(i + 1), rand: stream(w.config.Seed, 100+uint64(i))}
		w.producers = append(w.producers, c)
		w.after(micros(i)*millisecond, c.next)
	}
	for p := range w.ledgers {
		c := &consumer{w: w, part: p, rand: stream(w.config.Seed, 1000+uint64(p))}
		w.consumers = append(w.consumers, c)
		w.after(w.pace, c.next)
	}
}

func (w *world) expireLeases() {
	w.etcd.expire()
	for p := range w.ledgers {
		w.check.sameWhileQuiet(p)
	}
	w.lively.look()
	w.after(5*millisecond, w.expireLeases)
}

// disturbAndHeal injects the plan, then undoes all of it.
func (w *world) disturbAndHeal() {
	for i, f := range w.scenario.faults {
		if i < len(w.config.Skip) && w.config.Skip[i] {
			continue
		}
		w.at(f.at, func() {
			w.note("fault", f.part, "%s", f)
			if w.inject(f) {
				w.faults++
			}
		})
	}
	w.scenario.plan(w)
	w.runUntil(w.scenario.lastFault()+w.times.isr, nil)
	w.heal()
}

// heal ends all faults and starts all that is down.
func (w *world) heal() {
	w.note("world", -1, "healed")
	w.healed = true
	for i := range w.net.links {
		clear(w.net.links[i])
	}
	e := &w.etcd
	e.down, e.loseP, e.lateP = false, 0, 0
	clear(e.cut)
	clear(e.lag)
	// All clocks agree from now on. They agree on a time that none of them has passed, so that
	// no message waits for a date that only one of them has seen.
	ahead := int64(0)
	for _, n := range w.nodes {
		ahead = max(ahead, n.clock.latest-w.trueNS())
	}
	for _, n := range w.nodes {
		n.resume()
		n.crashIn = 0
		n.clock.wall = ahead
		n.disk.slowUntil, n.disk.stallUntil, n.disk.fullUntil, n.disk.shortUntil = 0, 0, 0, 0
		if n.disk.failed || n.stopping {
			n.crash()
		}
		n.start()
	}
}

// finish lets the cluster recover, checks that it did, and then the history.
func (w *world) finish() {
	w.runUntil(w.now+5*w.times.isr, nil)
	w.scrub()
	for _, c := range w.producers {
		c.rest = true
	}
	w.awaitSettled("recovery")
	w.probe()
	w.drain()
	w.awaitSettled("recovery after the last put")
	w.check.final()
}

func (w *world) awaitSettled(what string) {
	limit := w.now + 40*w.times.isr
	ok := w.runUntil(limit, func() bool {
		missing, _ := w.check.settled()
		return missing == "" && w.clientsIdle()
	})
	if !ok {
		missing, part := w.check.settled()
		if missing == "" {
			missing = "a put is not answered"
		}
		w.failf("liveness", part, "%s: %s after %.0f ms; %s", what, missing, float64(40*w.times.isr)/1000, w.standing(part))
	}
}

func (w *world) clientsIdle() bool {
	return !slices.ContainsFunc(w.producers, func(c *producer) bool { return c.put != nil && !c.put.over })
}

// drain lets the consumers finish everything.
func (w *world) drain() {
	for _, c := range w.consumers {
		c.drain = true
	}
	limit := w.now + 60*w.times.isr
	for p := range w.ledgers {
		limit = max(limit, w.now+micros(w.ledgers[p].end().Sequence)*5*millisecond)
	}
	ok := w.runUntil(limit, func() bool { _, left := w.check.undrained(); return !left })
	if part, left := w.check.undrained(); !ok && left {
		w.failf("liveness", part, "the channel is not empty; %s", w.standing(part))
	}
}

// probe puts one more message into every partition: it must be committed.
func (w *world) probe() {
	r := stream(w.config.Seed, 4)
	open := len(w.ledgers)
	for p := range w.ledgers {
		put := w.newPut(r, p, ident.RequestID{Producer: lastPuts, N: uint64(p + 1)})
		h := w.hostOf(p, w.etcd.parts[p].Leader)
		a := &attempt{h: h, at: w.now}
		put.attempts = append(put.attempts, a)
		h.propose(put.draft.Clone(), func(c outcome.Completion) {
			a.outcome, a.answered = c.Outcome, w.now
			w.check.answered(h, put, c)
			if c.Outcome != outcome.Committed {
				w.failf("liveness", p, "a put to the healed cluster is %s", outcomeText[c.Outcome])
			}
			open--
		})
	}
	if !w.runUntil(w.now+10*w.times.isr, func() bool { return open == 0 }) {
		w.failf("liveness", -1, "%d puts to the healed cluster are not answered", open)
	}
}

// standing describes the replicas of a partition.
func (w *world) standing(part int) string {
	if part < 0 {
		return ""
	}
	text := stateText{w.etcd.parts[part]}.String()
	for _, n := range w.nodes {
		if h := n.hosts[part]; h != nil {
			text += fmt.Sprintf("; %s/%d store %x %s epoch %d committed %d end %d, channel passed %d of %d, %d put aside", n.name, n.incarnation,
				uint64(h.store.id)&0xffff, h.view.Role, h.view.Epoch, h.view.Committed.Offset, h.view.End.Offset,
				h.queue.Floor(), h.view.Committed.Sequence, h.queue.DeferredCount())
		}
	}
	return text
}
