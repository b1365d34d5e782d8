package engine

import (
	"maps"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

type registry struct {
	sync.RWMutex
	byID map[ident.Partition]*Partition
	list []*Partition         // sorted; replaced, never changed; nil = to be rebuilt
	past map[string]nsqd.Work // by topic: work of partitions that are no longer hosted
}

// Partition finds a partition that is hosted here.
func (e *Engine) Partition(id ident.Partition) (*Partition, bool) {
	r := &e.partitions
	r.RLock()
	defer r.RUnlock()
	p, ok := r.byID[id]
	return p, ok
}

// Partitions lists the partitions hosted here, sorted. The list is shared: it must not be changed.
func (e *Engine) Partitions() []*Partition {
	r := &e.partitions
	r.RLock()
	list := r.list
	r.RUnlock()
	if list != nil {
		return list
	}
	r.Lock()
	defer r.Unlock()
	if r.list == nil {
		r.list = slices.SortedFunc(maps.Values(r.byID), func(x, y *Partition) int { return x.id.Compare(y.id) })
	}
	return r.list
}

// PartitionsOf lists the partitions hosted here of a topic that has n partitions.
func (e *Engine) PartitionsOf(topic ident.TopicID, n int) []*Partition {
	var list []*Partition
	for i := range n {
		if p, ok := e.Partition(ident.Partition{Topic: topic, Number: uint16(i)}); ok {
			list = append(list, p)
		}
	}
	return list
}

// set adds a partition, or removes it if p is nil. Partitions rebuilds the sorted list once after many calls of set.
func (r *registry) set(id ident.Partition, p *Partition) (was *Partition) {
	r.Lock()
	defer r.Unlock()
	was = r.byID[id]
	switch {
	case p == nil:
		delete(r.byID, id)
	case r.byID == nil:
		r.byID = map[ident.Partition]*Partition{id: p}
	default:
		r.byID[id] = p
	}
	r.list = nil
	return was
}

// Config describes a new partition.
type Config struct {
	ID      ident.Partition
	Topic   string
	Store   *store.Partition
	Queue   nsqd.Options // NewPartition fills in Wake, Fence and Pace
	Options TopicOptions
}

// NewPartition makes a partition with the channels in its store. Add hosts it.
func (e *Engine) NewPartition(c Config) *Partition {
	p := &Partition{id: c.ID, topic: c.Topic, loop: e.loopOf(c.ID), store: c.Store}
	p.view.Store(&replica.View{})
	q := c.Queue
	q.Wake, q.Fence = func(atNS int64) { e.deadlines.put(p, atNS) }, &e.fence
	q.Pace = e.pace
	p.queue = nsqd.NewPartition(c.Topic, c.ID, p, p, q)
	replica.Replay(p.queue, c.Store.States())
	p.SetOptions(c.Options)
	return p
}

// Add hosts a partition. From now on its machine belongs to the core loop.
func (e *Engine) Add(p *Partition, m Machine) {
	p.machine = m
	e.partitions.set(p.id, p)
	p.loop.events.enqueue(event{kind: eventAdd, id: p.id, partition: p})
}

// Remove stops hosting a partition. When it returns, nothing of the partition runs. Its files stay.
func (e *Engine) Remove(id ident.Partition) {
	p := e.partitions.set(id, nil)
	if p == nil {
		return
	}
	<-p.loop.await(event{kind: eventRetire, id: id})
	e.deadlines.forget(p)
	if !p.Trashed() { // otherwise another topic may have the name by now
		e.partitions.addWork(p)
	}
}

func (r *registry) addWork(p *Partition) {
	done := p.queue.Work()
	if done.Messages == 0 && len(done.Channels) == 0 {
		return
	}
	r.Lock()
	defer r.Unlock()
	if r.past == nil {
		r.past = map[string]nsqd.Work{}
	}
	var sum nsqd.Work // a new value: readers have the old one
	sum.Add(r.past[p.topic])
	sum.Add(done)
	r.past[p.topic] = sum
}

// PastWork returns, by topic, the counters of the partitions that are no longer hosted here. It permanently drops those
// of topics for which `there` returns false.
func (e *Engine) PastWork(there func(topic string) bool) map[string]nsqd.Work {
	r := &e.partitions
	r.Lock()
	defer r.Unlock()
	maps.DeleteFunc(r.past, func(topic string, _ nsqd.Work) bool { return !there(topic) })
	return maps.Clone(r.past)
}

// Each calls f for every partition that is hosted here.
func (e *Engine) Each(f func(ident.Partition)) {
	for _, p := range e.Partitions() {
		f(p.id)
	}
}
