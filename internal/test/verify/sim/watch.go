package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// register revokes what this node had registered and registers again; a request
// that gets no answer is made again.
func (n *node) register() {
	if n.registering {
		return
	}
	n.registering = true
	n.requestRegistration()
}

// requestRegistration waits until the disk answers: a broker that registers may be elected.
func (n *node) requestRegistration() {
	if n.some(func(v *replica.View) bool { return v.SyncOverdue }) {
		boot := n.boot
		n.w.after(n.w.times.isr/4, func() { n.post(boot, n.requestRegistration) })
		return
	}
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
	n.incarnation, n.last = inc, inc
	n.renewAt = n.w.now + n.w.times.ttl/4
	n.w.note(string(n.name), -1, "registered as incarnation %d", inc)
	if n.watching {
		return // the watch notifies the machines
	}
	n.watching, n.watchSent = true, rev
	n.startedOver(now, rev)
}

// unregistered: the registration is gone. The machines are notified before the node
// registers again. Changes of the old registration may still come from the watch later.
func (n *node) unregistered() {
	if n.incarnation == 0 {
		return
	}
	n.w.cover[StateRegistrationLost]++
	n.w.note(string(n.name), -1, "has lost its registration")
	n.incarnation = 0
	for _, h := range n.hosts {
		if h != nil {
			h.step(replica.Live{Node: n.name})
		}
	}
	n.register()
}

// startedOver applies the whole metadata. Changes may have come and gone unseen, so it
// sweeps stores whose partition has no key.
func (n *node) startedOver(all []change, upTo int64) {
	n.watched(all, upTo)
	for p := range n.disk.stores {
		if n.up && n.disk.stores[p] != nil && n.keys[p].Revision == 0 {
			n.sweep(p)
		}
	}
}

// sweep drops a store whose topic was deleted. Only a tombstone proves a deletion. No
// topic is ever deleted here: there is no tombstone.
func (n *node) sweep(p int) {
	n.w.etcd.request(n, false, func() {}, func() {
		if metadata.Tombstoned(metadata.ErrNotFound) && n.hosts[p] == nil {
			n.w.note(string(n.name), p, "drops its replica: it takes the topic for deleted")
			n.disk.stores[p] = nil
		}
	}, func() {})
}

// watched applies changes of the metadata: all of them, before any machine is notified of
// one. Registrations are posted first.
func (n *node) watched(news []change, upTo int64) {
	n.watchSent = max(n.watchSent, upTo)
	for _, c := range news {
		if c.part >= 0 {
			n.keys[c.part] = c.state
		} else {
			n.live[c.node] = c.live
		}
	}
	for _, c := range news {
		if c.part < 0 {
			n.notifyLive(c.node)
		}
	}
	for _, c := range news {
		if c.part >= 0 {
			n.partitionChanged(c.part)
		}
	}
}

func (n *node) notifyLive(i int) {
	for _, h := range n.hosts {
		if h != nil && concerns(n.keys[h.part], n.w.nodes[i].name) {
			h.step(n.liveEvent(n.keys[h.part], i))
		}
	}
}

// liveEvent is the event of a registration. A leader that is to be replaced although it
// lives is reported as gone.
func (n *node) liveEvent(s metadata.PartitionState, i int) replica.Event {
	r := n.live[i]
	if n.partitioned(s, i) {
		return replica.Live{Node: n.w.nodes[i].name}
	}
	return replica.Live{Node: n.w.nodes[i].name, Incarnation: r.incarnation}
}

// partitionChanged opens a replica that is placed here, notifies one that is open, and
// drops one that was moved away.
func (n *node) partitionChanged(p int) {
	s := n.keys[p]
	h := n.hosts[p]
	if slices.Contains(s.Replicas, n.name) {
		if h == nil {
			n.open(p)
			h = n.hosts[p]
		}
		h.muted = false
		h.introduce(s)
	} else if h != nil {
		h.introduced = nil
	}
	if h != nil {
		h.step(replica.Meta{State: s.Clone()})
	}
	if n.disk.stores[p] != nil && n.isAway(s) {
		n.moveAway(p)
	}
}

// introduce notifies a machine of its replicas' brokers, once for each; and of brokers
// that publish unreachable ones whenever the partition changes.
func (h *host) introduce(s metadata.PartitionState) {
	known := slices.Equal(h.introduced, s.Replicas)
	h.introduced = s.Replicas
	n := h.n
	for _, name := range s.Replicas {
		if i := n.w.nodeIndex(name); !known || len(n.live[i].unreachable) > 0 {
			h.step(n.liveEvent(s, i))
		}
	}
	if known {
		return
	}
	if !slices.Contains(s.Replicas, s.Leader) && s.Leader != "" {
		h.step(n.liveEvent(s, n.w.nodeIndex(s.Leader)))
	}
	for _, name := range s.Replicas {
		if name != n.name {
			h.step(n.peerEvent(n.w.nodeIndex(name)))
		}
	}
}

// isAway: this node neither is to hold the partition nor counts for it still.
func (n *node) isAway(s metadata.PartitionState) bool {
	return s.Revision != 0 && !slices.Contains(s.Replicas, n.name) &&
		!slices.ContainsFunc(s.ISR, func(m ident.Member) bool { return m.Node == n.name })
}

// moveAway drops a replica whose partition's key, read linearizably after the
// machine has ceased to acknowledge, names this node no more. If it was moved back
// in the meantime the machine continues.
func (n *node) moveAway(p int) {
	h := n.hosts[p]
	if h == nil {
		n.readUntil(p, func(s metadata.PartitionState) { n.drop(p, s) })
		return
	}
	h.muted = true
	n.mail(letter{do: func() {
		n.readUntil(p, func(s metadata.PartitionState) { n.drop(p, s) })
	}})
}

func (n *node) drop(p int, read metadata.PartitionState) {
	if !n.isAway(read) || !n.isAway(n.keys[p]) || n.disk.stores[p] == nil {
		return
	}
	s, h := n.disk.stores[p], n.hosts[p]
	trash := func() {
		n.w.note(string(n.name), p, "drops its replica")
		if n.disk.stores[p] == s {
			n.disk.stores[p] = nil
		}
	}
	if h == nil {
		trash()
		return
	}
	n.hosts[p] = nil
	n.mail(letter{do: func() { h.retire() }})
	trash()
}

// readUntil reads a partition's key until the metadata answers.
func (n *node) readUntil(p int, then func(metadata.PartitionState)) {
	var s metadata.PartitionState
	n.w.etcd.request(n, false, func() { s = n.w.etcd.parts[p].Clone() }, func() { then(s) }, func() {
		boot := n.boot
		n.w.after(n.w.times.retry, func() { n.post(boot, func() { n.readUntil(p, then) }) })
	})
}

// reread posts a machine its key, after an answer was lost.
func (n *node) reread(h *host) {
	n.readUntil(h.part, func(s metadata.PartitionState) { h.step(replica.Meta{State: s}) })
}
