package sim

import (
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
)

// inject executes one fault; false if it has no object at present.
func (w *world) inject(f fault) bool {
	n := w.victim(f)
	if n == nil {
		return false
	}
	switch f.kind {
	case crashNode, crashMidStep, crashBriefly, powerCut, pauseNode, crashElected, stopGracefully:
		return w.injectProcess(f, n)
	case slowDisk, stallDisk, failDisk, wipeDisk, restoreDisk, trimLogs, stallBoth, flipBit, shortOfSpace, fillDisk:
		return w.injectDisk(f, n)
	case cutOneWay, cutPair, isolateNode, isolateFully, splitHalves, cutRing, loseMessages, repeatMessages, slowLink:
		return w.injectNetwork(f, n)
	case etcdDown, etcdCut, etcdLosesAnswers, etcdLate, watchLag, watchGap, loseRegistration, compactMetadata:
		return w.injectMetadata(f, n)
	case jumpClock, driftClock:
		return w.injectClock(f, n)
	case handOver, moveReplica, changeTopic:
		return w.injectPlan(f, n)
	}
	return false
}

// victim picks the node that the fault is aimed at.
func (w *world) victim(f fault) *node {
	key := w.etcd.parts[f.part]
	switch f.target {
	case theLeader:
		return w.nodes[w.nodeIndex(key.Leader)]
	case aMember:
		for i := range key.ISR {
			m := key.ISR[(i+f.node)%len(key.ISR)]
			if m.Node != key.Leader {
				return w.nodes[w.nodeIndex(m.Node)]
			}
		}
	}
	return w.nodes[f.node%len(w.nodes)]
}

// until undoes a fault when it is over, unless everything was healed before.
func (w *world) until(f fault, undo func()) {
	w.after(f.lasts, func() {
		if !w.healed {
			undo()
		}
	})
}

func (w *world) crashFor(n *node, lasts micros) {
	n.crash()
	w.after(lasts, func() {
		if !w.healed {
			n.start()
		}
	})
}

// die ends a process. Where OK does not wait for a sync its machine may lose power, as
// long as no promise is broken by that; a process that is killed loses nothing.
func (w *world) die(f fault, n *node, lasts micros) {
	power := w.scenario.cached && f.draw&1 == 0 && w.minISR > 1 && w.mayLose(n)
	w.crashFor(n, lasts)
	if power {
		n.disk.losePower()
	}
}

func (w *world) injectProcess(f fault, n *node) bool {
	if !n.up {
		return false
	}
	switch f.kind {
	case crashNode:
		w.die(f, n, f.lasts)
	case crashBriefly:
		w.crashFor(n, f.lasts/20)
	case crashMidStep:
		n.crashIn = 1 + int(f.draw%8)
		boot := n.boot
		w.until(f, func() { n.start() })
		w.after(f.lasts/2, func() {
			if n.boot == boot {
				n.crashIn = 0
			}
		})
	case powerCut:
		for _, x := range w.nodes {
			if x.up {
				w.die(f, x, f.lasts*micros(1+w.rand.IntN(4))/4)
			}
		}
	case pauseNode:
		if n.paused {
			return false
		}
		w.note(string(n.name), -1, "is stopped")
		n.paused = true
		w.until(f, n.resume)
	case crashElected:
		w.crashWhenElecting(f, 60)
	case stopGracefully:
		n.stop()
		w.until(f, func() {
			n.crash()
			n.start()
		})
	}
	return true
}

// crashWhenElecting waits for a leader whose marker is pending, and kills it.
func (w *world) crashWhenElecting(f fault, tries int) {
	if w.healed || tries == 0 {
		return
	}
	key := w.etcd.parts[f.part]
	if h := w.hostOf(f.part, key.Leader); h != nil && h.view.Role == replica.Electing {
		w.crashFor(h.n, f.lasts)
		return
	}
	w.after(millisecond, func() { w.crashWhenElecting(f, tries-1) })
}

// stop begins a graceful stop: leaderships are offered, then it leaves.
func (n *node) stop() {
	n.stopping = true
	e, inc := &n.w.etcd, n.incarnation
	e.request(n, false, func() {
		if r := e.live[n.index]; r.incarnation == inc && inc != 0 {
			r.handingOver = true
			e.setLive(n.index, r, false)
		}
	}, func() {}, func() {})
}

func (w *world) injectDisk(f fault, n *node) bool {
	d := n.disk
	switch f.kind {
	case slowDisk:
		d.slow, d.slowUntil = micros(f.draw%uint64(w.times.isr/2)), w.now+f.lasts
	case stallDisk:
		d.stallUntil = max(d.stallUntil, w.now+f.lasts)
	case failDisk:
		if d.failed || !n.up {
			return false
		}
		w.cover[StateDiskError]++
		d.failed = true
		w.after(micros(f.draw%uint64(w.times.isr)), func() {
			if d.failed {
				w.crashFor(n, f.lasts)
			}
		})
	case wipeDisk, restoreDisk:
		if f.draw%4 == 0 || w.minISR == 1 || !w.mayLose(n) {
			for _, x := range w.nodes {
				x.disk.remember()
			}
			return f.kind == restoreDisk
		}
		w.crashFor(n, f.lasts)
		if f.kind == restoreDisk {
			d.replace(d.yesterday)
		} else {
			d.replace(nil)
		}
	case trimLogs:
		return w.trim(f, n)
	case stallBoth:
		return w.stallBoth(f)
	case flipBit:
		return w.flip(f, n)
	case shortOfSpace:
		d.shortUntil = max(d.shortUntil, w.now+f.lasts)
	case fillDisk:
		d.fullUntil = max(d.fullUntil, w.now+f.lasts)
	}
	return true
}

// stallBoth takes one member down and stalls the others' disks for longer than
// the write deadline: the in-sync set cannot shrink, puts hang.
func (w *world) stallBoth(f fault) bool {
	key := w.etcd.parts[f.part]
	spare := len(key.ISR) - key.MinInSync
	for i := range key.ISR {
		n := w.nodes[w.nodeIndex(key.ISR[(i+f.node)%len(key.ISR)].Node)]
		switch {
		case n.name == key.Leader:
		case spare > 0:
			spare--
			if n.up {
				w.crashFor(n, w.times.write*3)
			}
		case f.draw&1 == 0:
			n.disk.stallUntil = max(n.disk.stallUntil, w.now+w.times.write+f.lasts)
		default:
			w.isolate(fault{lasts: w.times.write + f.lasts}, n)
		}
	}
	return true
}

// mayLose reports whether a disk may vanish without breaking a promise: every
// in-sync set, also one that is proposed, must keep a member that stays and has
// lost nothing, not even a bit, and fewer than MinISR may have lost all.
func (w *world) mayLose(n *node) bool {
	for p := range w.etcd.parts {
		for _, key := range w.etcd.mayBe(p) {
			lost, kept := w.losses(p, key, n)
			if kept == 0 || lost >= key.MinInSync {
				return false
			}
		}
	}
	return true
}

// losses counts an in-sync set's members that have lost their disks, with n
// among them, and those that stay and are whole.
func (w *world) losses(p int, key metadata.PartitionState, n *node) (lost, kept int) {
	for _, m := range key.ISR {
		x := w.nodes[w.nodeIndex(m.Node)]
		switch s := x.disk.stores[p]; {
		case x == n || s == nil || s.id != m.Store:
			lost++
		case stays(key, m.Node) && s.whole():
			kept++
		}
	}
	return lost, kept
}

func (w *world) injectClock(f fault, n *node) bool {
	if f.kind == driftClock {
		was := n.nowMS()
		n.clock.rate = 0.9 + float64(f.draw%200)/1000
		n.clock.jump += micros(was-n.nowMS()) * millisecond
		return true
	}
	n.clock.jump += micros(f.draw % uint64(w.times.isr))
	n.clock.wall = (int64(f.draw%20) - 10) * int64(w.times.isr) * 1000
	if w.scenario.deferred > 0 { // nobody may believe that what is not due is
		n.clock.wall = min(n.clock.wall, -n.clock.wall)
	}
	return true
}

func (w *world) injectPlan(f fault, n *node) bool {
	key := w.etcd.parts[f.part]
	switch f.kind {
	case moveReplica:
		return w.move(f)
	case changeTopic:
		return w.changeTopic(f)
	}
	leader := w.hostOf(f.part, key.Leader)
	if leader == nil || n.name == key.Leader {
		return false
	}
	leader.n.post(leader.n.boot, func() { leader.step(replica.TransferLeadership{To: n.name}) })
	return true
}
