package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// register revokes what this node had registered and registers anew; a request
// that gets no answer is made again.
func (n *node) register() {
	if n.registering {
		return
	}
	n.registering = true
	e := &n.w.etcd
	var inc ident.Incarnation
	var now []change
	var rev int64
	n.w.etcd.request(n, false, func() {
		e.revoke(n.index, e.live[n.index].incarnation)
		inc = e.setLive(n.index, registration{expires: n.w.now + n.w.times.ttl}, true)
		now, rev = e.snapshot(), e.revision
	}, func() {
		n.registering = false
		n.registered(inc, now, rev)
	}, func() {
		n.registering = false
		n.register()
	})
}

func (n *node) registered(inc ident.Incarnation, now []change, rev int64) {
	n.incarnation = inc
	n.renewAt = n.w.now + n.w.times.ttl/3
	n.w.note(string(n.name), -1, "registered as incarnation %d", inc)
	if n.watching {
		n.tellLive(n.index, registration{incarnation: inc})
		return
	}
	n.watching, n.watchSent = true, rev
	n.startedOver(now, rev)
}

// unregistered: the registration is gone. The machines hear of it before the
// node registers anew.
func (n *node) unregistered() {
	if n.incarnation == 0 {
		return
	}
	n.w.cover[StateRegistrationLost]++
	n.w.note(string(n.name), -1, "has lost its registration")
	n.incarnation = 0
	n.tellLive(n.index, registration{})
	n.register()
}

// startedOver takes the whole metadata in: changes may have come and gone unseen,
// so stores whose partition has no key are looked at.
func (n *node) startedOver(all []change, upTo int64) {
	n.watched(all, upTo)
	for p := range n.disk.stores {
		if n.up && n.disk.stores[p] != nil && n.keys[p].Revision == 0 {
			n.sweep(p)
		}
	}
}

// sweep drops a store whose topic was deleted, on the word of its tombstone
// alone. No topic is ever deleted here: there is no tombstone.
func (n *node) sweep(p int) {
	n.w.etcd.request(n, false, func() {}, func() {
		if meta.Tombstoned(meta.ErrNotFound) && n.hosts[p] == nil {
			n.w.note(string(n.name), p, "drops its replica: it takes the topic for deleted")
			n.disk.stores[p] = nil
		}
	}, func() {})
}

// watched takes changes of the metadata in.
func (n *node) watched(news []change, upTo int64) {
	n.watchSent = max(n.watchSent, upTo)
	for _, c := range news {
		switch {
		case !n.up:
			return // died in the middle
		case c.part >= 0:
			n.learn(c.part, c.state)
		case c.node != n.index:
			n.tellLive(c.node, c.live)
		case c.revision >= int64(n.incarnation) && c.live.incarnation == 0:
			n.unregistered()
		case c.live.incarnation == n.incarnation:
			n.tellLive(c.node, c.live)
		}
	}
}

func (n *node) tellLive(of int, r registration) {
	if n.live[of].incarnation == r.incarnation && n.live[of].handingOver == r.handingOver {
		return
	}
	n.live[of] = r
	for _, h := range n.hosts {
		if h != nil {
			h.step(replica.Live{Node: n.w.nodes[of].name, Incarnation: r.incarnation, HandingOver: r.handingOver})
		}
	}
}

// learn takes a partition's key in, and opens or leaves the replica.
func (n *node) learn(p int, s meta.PartitionState) {
	if s.Revision < n.keys[p].Revision {
		return
	}
	n.keys[p] = s
	switch mine := slices.Contains(s.Replicas, n.name); {
	case mine && n.hosts[p] == nil:
		n.open(p)
	case !mine && n.disk.stores[p] != nil:
		n.leave(p)
	}
	if h := n.hosts[p]; h != nil {
		h.step(replica.Meta{State: s.Clone()})
	}
}

// leave drops a replica that a linearizable read excludes. The machine stops
// first: an acknowledgement that left after the read could make the store a
// member again just before it goes.
func (n *node) leave(p int) {
	if h := n.hosts[p]; h != nil {
		h.gone = true
	}
	n.hosts[p] = nil
	s, read := n.keys[p], false
	n.w.etcd.request(n, false, func() { s, read = n.w.etcd.parts[p].Clone(), true }, func() {
		if read && !slices.Contains(s.Replicas, n.name) && n.disk.stores[p] != nil {
			n.w.note(string(n.name), p, "drops its replica")
			n.disk.stores[p] = nil
		}
		n.learn(p, s)
	}, func() { n.learn(p, n.keys[p]) })
}

func (n *node) readBack(h *host, revision int64, tries int) {
	if tries == 0 || h.gone {
		return
	}
	var s meta.PartitionState
	again := func() {
		boot := n.boot
		n.w.after(n.w.times.retry, func() { n.post(boot, func() { n.readBack(h, revision, tries-1) }) })
	}
	n.w.etcd.request(n, false, func() { s = n.w.etcd.parts[h.part].Clone() }, func() {
		n.learn(h.part, s)
		if s.Revision == revision {
			again()
		}
	}, again)
}
