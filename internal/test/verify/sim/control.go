package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const topicID ident.TopicID = 1

func (w *world) partition(part int) ident.Partition {
	return ident.Partition{Topic: topicID, Number: uint16(part)}
}

// control lets some broker plan as the cluster's controller, from what it has
// seen of the metadata, and execute the plan. The controller's key is not
// modelled: any broker may hold it, even two.
func (w *world) control() {
	w.after(w.times.isr+micros(w.rand.Int64N(int64(w.times.isr))), w.control)
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	n.post(n.boot, func() {
		if n.incarnation == 0 {
			return
		}
		for _, a := range plan.Plan(n.snapshot(), plan.Options{}) {
			n.execute(a)
		}
	})
}

// snapshot is the metadata as this broker's watch has it.
func (n *node) snapshot() plan.Snapshot {
	s := plan.Snapshot{Topics: []plan.Topic{{Name: "t", State: metadata.TopicState{
		ID: topicID, ReplicationFactor: n.w.rf, MinInSync: n.w.minISR,
	}}}}
	load := make([]plan.Broker, len(n.w.nodes))
	for p, key := range n.keys {
		if key.Revision == 0 {
			continue
		}
		s.Partitions = append(s.Partitions, plan.Partition{ID: n.w.partition(p), State: key})
		for _, r := range key.Replicas {
			load[n.w.nodeIndex(r)].Replicas++
		}
	}
	for i, r := range n.live {
		if r.incarnation != 0 && !r.handingOver && len(r.unreachable) == 0 {
			load[i].Node = n.w.nodes[i].name
			s.Live = append(s.Live, load[i])
		}
	}
	return s
}

func (n *node) execute(a plan.Action) {
	switch a := a.(type) {
	case plan.TransferLeadership:
		leader := n.w.nodes[n.w.nodeIndex(a.From)]
		if h := leader.hosts[a.Partition.Number]; h != nil && n.w.net.both(n.index, leader.index) {
			leader.post(leader.boot, func() { h.step(replica.TransferLeadership{To: a.To}) })
		}
	case plan.Rewrite:
		part, e := int(a.Partition.Number), &n.w.etcd
		e.request(n, true, func() {
			if now := e.parts[part]; now.Revision == a.State.Revision {
				if len(now.Target) > 0 && len(a.State.Target) == 0 {
					n.w.cover[StateMove]++
				}
				e.put(part, a.State)
			}
		}, func() {}, func() {})
	}
}

// move has an operator ask for other replicas of a partition: the controller
// adds, waits, transfers leadership and drops until they are there.
func (w *world) move(f fault) bool {
	e, key := &w.etcd, w.etcd.parts[f.part]
	spare := slices.Clone(key.Replicas)
	for _, n := range w.nodes {
		if !slices.Contains(key.Replicas, n.name) {
			spare = append(spare, n.name)
		}
	}
	if e.down || len(spare) <= w.rf || len(key.Target) > 0 {
		return false
	}
	s := key.Clone()
	from := int(f.draw % uint64(len(spare)))
	s.Target = append(spare[from:len(spare):len(spare)], spare[:from]...)[:w.rf]
	e.put(f.part, s)
	return true
}

// changeTopic has an operator ask for another number of replicas, or of those that
// must be in sync. With a partition that nobody serves, or one of whose members has lost its disk or a
// bit, the operator asks for no fewer replicas: the one that would be dropped may have the only whole
// copy, when another member has lost its disk and a third has a bit flipped.
func (w *world) changeTopic(f fault) bool {
	if rf := 2 + int(f.draw%uint64(len(w.nodes)-1)); rf >= w.rf || w.served() && w.undamaged() {
		w.rf = rf
	}
	w.minISR = 1 + int(f.draw/8%uint64(w.rf))
	w.note("world", -1, "wants %d replicas, %d in sync", w.rf, w.minISR)
	return true
}

// undamaged reports whether each member of an in-sync set has all that it had.
func (w *world) undamaged() bool {
	for p, key := range w.etcd.parts {
		for _, m := range key.ISR {
			if s := w.nodes[w.nodeIndex(m.Node)].disk.stores[p]; s == nil || s.id != m.Store || !s.whole() {
				return false
			}
		}
	}
	return true
}

// served reports whether each partition has a leader whose epoch is open.
func (w *world) served() bool {
	for p, key := range w.etcd.parts {
		if h := w.hostOf(p, key.Leader); h == nil || h.view.Role != replica.Leader || h.view.Epoch != key.Epoch {
			return false
		}
	}
	return true
}
