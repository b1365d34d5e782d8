package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replica/dedupe"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/sirupsen/logrus"
)

// openers is how many stores are made at once: each takes some syncs, which the
// file system carries out together.
const openers = 32

// RetryEvery is how often the caller calls Retry.
const RetryEvery = time.Second

// Peers are the other brokers, as a machine is notified of them; *liveness.Peers has them.
type Peers interface {
	// LiveEvent is a broker's registration as the machine of a partition in this state is
	// notified of it.
	LiveEvent(s metadata.PartitionState, n ident.Node) replica.Event
	// Introduce posts which of these brokers answer.
	Introduce(p ident.Partition, nodes []ident.Node)
}

// Space has the brokers that are below their disk reserve; *maintenance.Space is one.
type Space interface {
	// Introduce posts which of these brokers are.
	Introduce(nodes []ident.Node, post func(replica.Event))
}

// Options are all required but Space.
type Options struct {
	Self        ident.Node
	Incarnation func() ident.Incarnation // of the newest registration
	Engine      *engine.Engine
	Store       *store.Store
	Catalog     *catalog.Catalog
	Meta        metadata.Store
	Keys        metadata.Keys
	Peers       Peers
	Space       Space           // nil: every broker has room
	MayCache    bool            // topics may be acknowledged from the page cache here (--durability=replicated)
	Replica     replica.Options // Partition and Self are filled in
	Queue       nsqd.Options    // Policy is filled in
	Group       *concurrency.Group
	Log         logrus.FieldLogger
}

// Hosting opens and lets go of replicas.
type Hosting struct {
	o          Options
	locks      [openers]sync.Mutex            // by partition; see lock
	durability sync.Mutex                     // held while the store's durability is judged and changed
	introduced map[ident.Partition]introduced // the goroutine that applies the metadata has it
	waiting    map[ident.Partition]bool       // for room on the disk; the same goroutine has it
}

// introduced is the list of replicas that a partition's machine was notified of.
type introduced struct {
	to       *engine.Partition
	replicas []ident.Node
}

// New makes a hosting without replicas.
func New(o Options) *Hosting {
	return &Hosting{o: o, introduced: map[ident.Partition]introduced{}, waiting: map[ident.Partition]bool{}}
}

// lock waits for the goroutine that creates, opens or lets go of a partition's store, and
// keeps others from it until unlock.
func (h *Hosting) lock(p ident.Partition) (unlock func()) {
	mu := &h.locks[(uint64(p.Topic)+uint64(p.Number))%openers]
	mu.Lock()
	return mu.Unlock
}

// PartitionsChanged makes the stores that are missing here, many at once, because each
// takes some syncs, and no other change is received until then; it then opens or notifies each
// replica.
func (h *Hosting) PartitionsChanged(ids []ident.Partition) {
	h.makeStores(ids)
	for _, p := range ids {
		h.partitionChanged(p)
	}
}

// Retry opens the replicas that found the disk full. The goroutine that calls PartitionsChanged
// calls it now and then.
func (h *Hosting) Retry() {
	if len(h.waiting) == 0 {
		return
	}
	ids := slices.Collect(maps.Keys(h.waiting))
	h.PartitionsChanged(ids)
	if opened := len(ids) - len(h.waiting); opened > 0 {
		h.o.Log.WithField("count", opened).Info("replicas opened after disk space recovered")
	}
}

func (h *Hosting) makeStores(of []ident.Partition) {
	var missing []ident.Partition
	for _, p := range of {
		s, _ := h.o.Catalog.Partition(p)
		if _, stored := h.o.Store.Partition(p); !stored && slices.Contains(s.Replicas, h.o.Self) {
			missing = append(missing, p)
		}
	}
	if len(missing) < 2 {
		return
	}
	concurrency.Each(len(missing), openers, func(i int) {
		defer h.lock(missing[i])()
		if topic, ok := h.o.Catalog.Name(missing[i].Topic); ok {
			_, _ = h.storeLocked(topic, missing[i]) // open reports the error
		}
	})
}

// storeLocked finds or creates the store of a partition.
func (h *Hosting) storeLocked(topic string, p ident.Partition) (*store.Partition, error) {
	if st, ok := h.o.Store.Partition(p); ok {
		return st, nil
	}
	st, err := h.o.Store.Create(topic, p)
	if err != nil {
		return nil, fmt.Errorf("create the store of %s: %w", p, err)
	}
	return st, nil
}

// partitionChanged opens a replica that is placed here, notifies one that is open, and lets
// go of one that was moved away, also while this broker was down.
func (h *Hosting) partitionChanged(id ident.Partition) {
	s, ok := h.o.Catalog.Partition(id)
	waited := h.waiting[id]
	delete(h.waiting, id)
	if !ok {
		delete(h.introduced, id)
		return // gone: only a tombstone proves that the topic was deleted
	}
	if slices.Contains(s.Replicas, h.o.Self) {
		p, err := h.open(id)
		if err != nil {
			if errors.Is(err, store.ErrDiskFull) {
				h.waiting[id] = true
			}
			if !waited {
				h.o.Log.WithError(err).WithField("partition", id).Error("cannot open a replica")
			}
			return
		}
		p.Unmute()
		h.introduce(p, s)
	} else {
		delete(h.introduced, id) // a replica that is moved back is introduced to its peers again
	}
	h.o.Engine.Post(id, replica.Meta{State: s})
	if _, stored := h.o.Store.Partition(id); stored && h.isAway(s) {
		h.o.Group.Go(func(ctx context.Context) { h.moveAway(ctx, id) })
	}
}

// introduce notifies a machine of its replicas' brokers, once for each; and about those
// that say that they cannot reach others whenever the partition changes, for that decides
// whether they are to be replaced.
func (h *Hosting) introduce(p *engine.Partition, s metadata.PartitionState) {
	was := h.introduced[p.ID()]
	known := was.to == p && slices.Equal(was.replicas, s.Replicas)
	h.introduced[p.ID()] = introduced{p, s.Replicas}
	for _, n := range s.Replicas {
		if r, _ := h.o.Catalog.LiveNode(n); !known || len(r.Unreachable) > 0 {
			p.Post(h.o.Peers.LiveEvent(s, n))
		}
	}
	if known {
		return
	}
	if !slices.Contains(s.Replicas, s.Leader) && s.Leader != "" {
		p.Post(h.o.Peers.LiveEvent(s, s.Leader))
	}
	h.o.Peers.Introduce(p.ID(), s.Replicas)
	if h.o.Space != nil {
		h.o.Space.Introduce(s.Replicas, p.Post)
	}
}

// open finds a partition or hosts it from its store, which is created if this broker does
// not have it.
func (h *Hosting) open(id ident.Partition) (*engine.Partition, error) {
	defer h.lock(id)()
	if p, ok := h.o.Engine.Partition(id); ok {
		return p, nil
	}
	topic, ok := h.o.Catalog.Name(id.Topic)
	if !ok {
		return nil, fmt.Errorf("partition %s has no topic", id)
	}
	st, err := h.storeLocked(topic, id)
	if err == nil {
		err = h.requireSync(topic, id.Topic)
	}
	if err != nil {
		return nil, err
	}
	q := h.o.Queue
	q.Policy = func(channel string) nsqd.Policy { return h.o.Catalog.Policy(id.Topic, channel) }
	p := h.o.Engine.NewPartition(engine.Config{ID: id, Topic: topic, Store: st, Queue: q, Limits: h.limits(id.Topic)})
	o := h.o.Replica
	o.Partition = id
	o.Self = replica.Peer{Node: h.o.Self, Incarnation: h.o.Incarnation(), Store: st.StoreID()}
	o.DedupeMS = cmp.Or(h.limits(id.Topic).Options.DedupeWindowMS, dedupe.DefaultMS)
	m := machineOf(st, p.Queue(), o)
	_, trashed := h.o.Catalog.Trashed(id.Topic)
	p.SetTrashed(trashed)
	h.o.Engine.Add(p, m)
	return p, nil
}

// machineOf makes the machine of a replica from what its store has found.
func machineOf(st *store.Partition, reg replica.Register, o replica.Options) *replica.Machine {
	r := st.Restored()
	st.LoadIdentities(&r)
	defer st.ReleaseRestored()
	return replica.New(r, st.Index(), reg, o)
}

// Compact makes one full version of the channel state for a checkpoint (store.Options). No
// channel of it ever serves, so it needs neither a log nor other replicas.
func Compact(topic string, id ident.Partition, confirms []queue.StateVersion) ([]byte, bool) {
	q := nsqd.NewPartition(topic, id, nil, nil, nsqd.Options{})
	replica.Replay(q, confirms)
	return q.Snapshot(), true
}
