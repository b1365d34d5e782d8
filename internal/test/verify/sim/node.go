package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// node is one broker: a process that comes and goes, on a disk that stays.
type node struct {
	w     *world
	index int
	name  ident.Node
	disk  *disk
	hosts []*host // by partition; nil = none here
	clock clock

	up     bool
	boot   int // raised at each start; events scheduled for an older process are void
	paused bool
	wokeAt micros   // when it went on last
	inbox  []func() // what happens to a stopped process happens when it continues

	letters []letter // for the core loop
	passing bool     // it is at work, or about to be

	incarnation ident.Incarnation // 0 = not registered
	last        ident.Incarnation // of the newest registration, gone or not
	registering bool
	watching    bool
	watchSent   int64 // revision up to which changes were sent to this node
	keys        []metadata.PartitionState
	live        []registration
	renewAt     micros
	missedAt    micros // when it looks again whom it misses
	stopping    bool   // graceful stop: leaves when it leads nothing
	crashIn     int    // > 0: dies in the middle of that many-th Step with effects
	awayUntil   micros // is not started before

	heard []micros // by peer
	peers []peerView
}

// peerView is what a node believes of another one's process.
type peerView struct {
	up, dead bool
	since    micros // when up last changed
	boot     int    // which process was up
}

// clock is what a node takes for the time. Its ticks drift and jump forwards;
// its wall clock jumps both ways.
type clock struct {
	rate float64
	jump micros
	wall int64 // ns
	// wallBefore and trueBefore are the times at the last tick of the process, in ns.
	wallBefore, trueBefore int64
	// latest is the latest time that the wall clock has shown, in ns.
	latest int64
}

func (n *node) nowMS() int64 {
	return int64((float64(n.w.now)*n.clock.rate + float64(n.clock.jump)) / float64(millisecond))
}

func (n *node) wallNS() int64 {
	now := n.w.trueNS() + n.clock.wall
	n.clock.latest = max(n.clock.latest, now)
	return now
}

// trueNS is the right time.
func (w *world) trueNS() int64 { return epochNS + int64(w.now)*1000 }

// keepTime notifies the channels of a wall clock that was set back, as the broker's clock does
// (coordinator/engine/clock.go).
func (n *node) keepTime() {
	wall, now := n.wallNS(), n.w.trueNS()
	by := now - n.clock.trueBefore - (wall - n.clock.wallBefore)
	n.clock.wallBefore, n.clock.trueBefore = wall, now
	if by <= int64(n.w.times.isr)*1000/10 { // 100 ms of the daemon, whose T_isr is a second
		return
	}
	n.w.cover[StateClockSetBack]++
	for _, h := range n.hosts {
		if h != nil {
			h.queue.ClockSetBack(by)
		}
	}
}

// hourNS is an hour of wall time.
const hourNS = 3_600_000_000_000

// epochNS is the wall clocks' time when a run begins.
const epochNS = 1_700_000_000_000_000_000

// post lets something happen to the process with that boot number: now, when
// it continues, or never.
func (n *node) post(boot int, do func()) {
	switch {
	case !n.up || n.boot != boot:
	case n.paused:
		n.inbox = append(n.inbox, do)
	default:
		do()
	}
}

// start begins a new process on the present disk.
func (n *node) start() {
	if n.up || !n.w.healed && n.w.now < n.awayUntil {
		return
	}
	n.w.note(string(n.name), -1, "starts")
	n.up, n.boot, n.paused, n.stopping, n.crashIn = true, n.boot+1, false, false, 0
	n.incarnation, n.last, n.registering, n.watching, n.inbox = 0, 0, false, false, nil
	n.letters, n.passing = nil, false
	clear(n.keys)
	clear(n.live)
	n.clock.wallBefore, n.clock.trueBefore = n.wallNS(), n.w.trueNS()
	for i := range n.peers {
		n.peers[i], n.heard[i] = peerView{since: n.w.now}, -second*1000
	}
	n.register()
	n.w.after(micros(n.w.rand.IntN(10_000)), func() { n.tick(n.boot) })
}

// crash ends the process at this instant.
func (n *node) crash() {
	if !n.up {
		return
	}
	n.w.note(string(n.name), -1, "dies")
	for p, h := range n.hosts {
		if h != nil {
			h.gone = true
			if h.view.Role == replica.Electing {
				n.w.cover[StateMarkerPendingCrash]++
			}
		}
		n.hosts[p] = nil
	}
	n.up, n.paused, n.watching, n.inbox, n.letters = false, false, false, nil, nil
	n.disk.crash()
}

// resume lets a stopped process continue: everything that waited happens at once.
func (n *node) resume() {
	if !n.paused {
		return
	}
	n.w.note(string(n.name), -1, "goes on")
	n.paused, n.wokeAt = false, n.w.now
	waiting, boot := n.inbox, n.boot
	n.inbox = nil
	for _, do := range waiting {
		n.post(boot, do)
	}
}

// tick is the node's 10 ms timer.
func (n *node) tick(boot int) {
	n.w.after(10*millisecond, func() { n.tick(boot) })
	if n.boot != boot || !n.up || n.paused {
		return
	}
	n.keepTime()
	n.lookAtPeers()
	n.publishUnreachable()
	n.renew()
	if e := &n.w.etcd; n.watching && n.watchSent < e.revision && e.lag[n.index] == 0 && n.w.rand.IntN(3) == 0 {
		e.deliver(n, boot)
	}
	for _, h := range n.hosts {
		if h != nil {
			h.drive()
			h.space()
		}
		if h != nil && !h.m.Idle() {
			n.mail(letter{h: h})
		}
	}
	n.renounce()
	n.leaveIfDone()
}

// renounce gives the registration up while the disk stalls and those of other members do
// not, as the broker does (EL-8).
func (n *node) renounce() {
	if inc := n.incarnation; inc != 0 && n.some(func(v *replica.View) bool { return v.DiskStalled }) {
		n.w.etcd.request(n, true, func() { n.w.etcd.revoke(n.index, inc) }, func() {}, func() {})
	}
}

// some reports whether the predicate holds for a replica here.
func (n *node) some(such func(*replica.View) bool) bool {
	return slices.ContainsFunc(n.hosts, func(h *host) bool { return h != nil && such(&h.view) })
}

// lookAtPeers stands for the heartbeats: it judges which peers have sent something within
// T_lag, and which ports refuse connections.
func (n *node) lookAtPeers() {
	w := n.w
	for i, p := range w.nodes {
		if i == n.index {
			continue
		}
		if p.up && !p.paused && w.net.open(i, n.index) && w.rand.IntN(100) >= w.net.links[i][n.index].loss {
			n.heard[i] = w.now
		}
		now := peerView{up: p.up && w.now-n.heard[i] <= w.times.lag, boot: n.peers[i].boot, since: n.peers[i].since}
		switch {
		case !p.up && w.net.both(i, n.index):
			now.dead = true
		case now.up && n.peers[i].up && p.boot != now.boot: // the connection broke in between
			now.up = false
		case now.up:
			now.boot = p.boot
		}
		if now.up != n.peers[i].up {
			now.since = w.now
		}
		if now != n.peers[i] {
			n.peers[i] = now
			n.notifyPeer(i)
			n.judgeLeaders()
		}
		if now.dead && n.live[i].incarnation != 0 {
			n.revoke(i)
		}
	}
}

func (n *node) notifyPeer(i int) {
	for _, h := range n.hosts {
		if h != nil && concerns(n.keys[h.part], n.w.nodes[i].name) {
			h.step(n.peerEvent(i))
		}
	}
}

func (n *node) peerEvent(i int) replica.Event {
	return replica.PeerState{Node: n.w.nodes[i].name, Up: n.peers[i].up, Dead: n.peers[i].dead}
}

// concerns reports whether a broker matters to a partition.
func concerns(s metadata.PartitionState, n ident.Node) bool {
	return s.Leader == n || slices.Contains(s.Replicas, n)
}

// revoke ends the registration of a process that is known to be dead.
func (n *node) revoke(i int) {
	inc := n.live[i].incarnation
	n.w.etcd.request(n, true, func() { n.w.etcd.revoke(i, inc) }, func() {}, func() {})
}

// renew keeps the registration alive.
func (n *node) renew() {
	if n.incarnation == 0 || n.w.now < n.renewAt {
		return
	}
	n.renewAt = n.w.now + n.w.times.ttl/4
	e, inc, alive := &n.w.etcd, n.incarnation, false
	e.request(n, false, func() {
		if alive = e.live[n.index].incarnation == inc; alive {
			e.live[n.index].expires = n.w.now + n.w.times.ttl
		}
	}, func() {
		if !alive && n.incarnation == inc {
			n.unregistered()
		}
	}, func() {})
}

// compareAndSwap executes the proposal of a machine, and has the key read when
// the outcome is unknown. The transaction's other compares have the values that
// this node knows when it is sent.
func (n *node) compareAndSwap(h *host, c replica.CAS) {
	n.w.check.proposed(h, c.State)
	c.State = c.State.Clone()
	n.w.etcd.propose(h.part, c.State)
	boot := n.boot
	n.w.after(micros(n.w.rand.IntN(300)), func() { n.post(boot, func() { n.transact(h, c) }) })
}

func (n *node) transact(h *host, c replica.CAS) {
	e, self := &n.w.etcd, replica.Peer{Node: n.name, Incarnation: n.incarnation}
	var landed, gaveUp bool
	var after metadata.PartitionState
	refused := n.incarnation == 0
	var old registration
	if gone := c.LeaderGone; gone != nil {
		old = n.live[n.w.nodeIndex(gone.Node)]
		refused = refused || old.incarnation == gone.Incarnation && !old.handingOver && len(old.unreachable) == 0
	}
	e.request(n, !refused, func() {
		landed = !refused && e.compareAndSwap(self, h.part, c, old)
		after = e.parts[h.part].Clone()
		n.w.cover.casLanded(c, landed, gaveUp)
	}, func() {
		done := replica.CASDone{Token: c.Token, OK: landed, State: after}
		if !landed && n.w.rand.IntN(5) == 0 {
			done.State = metadata.PartitionState{}
		}
		h.step(done)
	}, func() {
		if refused {
			h.step(replica.CASDone{Token: c.Token})
			return
		}
		gaveUp = true
		n.w.cover[StateUnknownCAS]++
		h.step(replica.CASDone{Token: c.Token, Unknown: true})
		n.reread(h)
	})
}

// leaveIfDone ends a graceful stop once nothing is led here.
func (n *node) leaveIfDone() {
	if !n.stopping || n.disk.busy {
		return
	}
	for p := range n.hosts {
		if n.w.etcd.parts[p].Leader == n.name {
			return
		}
	}
	e, inc := &n.w.etcd, n.incarnation
	if e.reachable(n) {
		e.revoke(n.index, inc)
	}
	n.crash()
}

func (n *node) receive(p int, ev replica.Event) {
	if h := n.hosts[p]; h != nil {
		h.step(ev)
	}
}
