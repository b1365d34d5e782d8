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
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replica/dedupe"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

// openers is how many stores are created at once: each takes a few syncs, which the file system combines.
const openers = 32

// RetryEvery is how often the caller calls Retry.
const RetryEvery = time.Second

// peers notifies machines of the state of the other brokers (liveness.Peers).
type peers interface {
	LiveEvent(s metadata.PartitionState, n ident.Node) replica.Event
	Introduce(p ident.Partition, nodes []ident.Node)
}

// space posts which brokers are below their disk reserve (maintenance.Space).
type space interface {
	Introduce(nodes []ident.Node, post func(replica.Event))
}

// Options: all fields except Space are required.
type Options struct {
	Self        ident.Node
	Incarnation func() ident.Incarnation // of the newest registration
	Engine      *engine.Engine
	Store       *store.Store
	Catalog     *catalog.Catalog
	Meta        metadata.Store
	Keys        metadata.Keys
	Peers       peers
	Space       space           // nil: every broker has space
	MayCache    bool            // topics may be acknowledged from the page cache here (--durability=replicated)
	Replica     replica.Options // Partition and Self are set for each replica
	Queue       nsqd.Options    // Policy is filled in
	Group       *concurrency.Group
	Log         logrus.FieldLogger
}

// Local opens and closes the replicas on this broker.
type Local struct {
	o          Options
	locks      [openers]sync.Mutex            // by partition; see lock
	durability sync.Mutex                     // held while the store's durability is checked and changed
	introduced map[ident.Partition]introduced // owned by the goroutine that applies the metadata
	waiting    map[ident.Partition]bool       // replicas that wait for disk space; owned by the same goroutine
}

// introduced is the list of a partition's replicas whose brokers its machine has been notified of.
type introduced struct {
	to       *engine.Partition
	replicas []ident.Node
}

// New returns a Local without replicas.
func New(o Options) *Local {
	return &Local{o: o, introduced: map[ident.Partition]introduced{}, waiting: map[ident.Partition]bool{}}
}

// lock serialises the goroutines that create, open or close a partition's store.
func (l *Local) lock(p ident.Partition) (unlock func()) {
	mu := &l.locks[(uint64(p.Topic)+uint64(p.Number))%openers]
	mu.Lock()
	return mu.Unlock
}

// PartitionsChanged creates the stores that are missing here, many concurrently, because each takes a few syncs and no
// other change of the metadata is processed until it returns. Then it opens or notifies each replica.
func (l *Local) PartitionsChanged(ids []ident.Partition) {
	l.makeStores(ids)
	for _, p := range ids {
		l.partitionChanged(p)
	}
}

// Retry opens the replicas that found the disk full. The goroutine that calls PartitionsChanged
// calls it every RetryEvery.
func (l *Local) Retry() {
	if len(l.waiting) == 0 {
		return
	}
	ids := slices.Collect(maps.Keys(l.waiting))
	l.PartitionsChanged(ids)
	if opened := len(ids) - len(l.waiting); opened > 0 {
		l.o.Log.WithField("count", opened).Info("replicas opened after disk space recovered")
	}
}

func (l *Local) makeStores(of []ident.Partition) {
	var missing []ident.Partition
	for _, p := range of {
		s, _ := l.o.Catalog.Partition(p)
		if _, stored := l.o.Store.Partition(p); !stored && slices.Contains(s.Replicas, l.o.Self) {
			missing = append(missing, p)
		}
	}
	if len(missing) < 2 {
		return
	}
	concurrency.Each(len(missing), openers, func(i int) {
		defer l.lock(missing[i])()
		if topic, ok := l.o.Catalog.Name(missing[i].Topic); ok {
			_, _ = l.storeLocked(topic, missing[i]) // open reports the error
		}
	})
}

func (l *Local) storeLocked(topic string, p ident.Partition) (*store.Partition, error) {
	if st, ok := l.o.Store.Partition(p); ok {
		return st, nil
	}
	st, err := l.o.Store.Create(topic, p)
	if err != nil {
		return nil, fmt.Errorf("create the store of %s: %w", p, err)
	}
	return st, nil
}

// partitionChanged opens a replica that is placed here, notifies one that is open, and removes one that was moved away,
// even while this broker was down.
func (l *Local) partitionChanged(id ident.Partition) {
	s, ok := l.o.Catalog.Partition(id)
	waited := l.waiting[id]
	delete(l.waiting, id)
	if !ok {
		delete(l.introduced, id)
		return // the key is gone: only a tombstone would prove that the topic was deleted
	}
	if slices.Contains(s.Replicas, l.o.Self) {
		p, err := l.open(id)
		if err != nil {
			if errors.Is(err, store.ErrDiskFull) {
				l.waiting[id] = true
			}
			if !waited {
				l.o.Log.WithError(err).WithField("partition", id).Error("cannot open a replica")
			}
			return
		}
		p.Unmute()
		l.introduce(p, s)
	} else {
		delete(l.introduced, id) // a replica that is moved back is introduced to its peers again
	}
	l.o.Engine.Post(id, replica.Meta{State: s})
	if _, stored := l.o.Store.Partition(id); stored && l.isAway(s) {
		l.o.Group.Go(func(ctx context.Context) { l.moveAway(ctx, id) })
	}
}

// introduce notifies a machine of each broker that has a replica, once. Brokers that report others as unreachable are
// posted again at every change of the partition, because that decides whether their replicas are replaced.
func (l *Local) introduce(p *engine.Partition, s metadata.PartitionState) {
	was := l.introduced[p.ID()]
	known := was.to == p && slices.Equal(was.replicas, s.Replicas)
	l.introduced[p.ID()] = introduced{p, s.Replicas}
	for _, n := range s.Replicas {
		if r, _ := l.o.Catalog.LiveNode(n); !known || len(r.Unreachable) > 0 {
			p.Post(l.o.Peers.LiveEvent(s, n))
		}
	}
	if known {
		return
	}
	if !slices.Contains(s.Replicas, s.Leader) && s.Leader != "" {
		p.Post(l.o.Peers.LiveEvent(s, s.Leader))
	}
	l.o.Peers.Introduce(p.ID(), s.Replicas)
	if l.o.Space != nil {
		l.o.Space.Introduce(s.Replicas, p.Post)
	}
}

// open finds a partition, or starts it from its store, which is created if this broker does not have it.
func (l *Local) open(id ident.Partition) (*engine.Partition, error) {
	defer l.lock(id)()
	if p, ok := l.o.Engine.Partition(id); ok {
		return p, nil
	}
	topic, ok := l.o.Catalog.Name(id.Topic)
	if !ok {
		return nil, fmt.Errorf("partition %s has no topic", id)
	}
	st, err := l.storeLocked(topic, id)
	if err == nil {
		err = l.requireSync(topic, id.Topic)
	}
	if err != nil {
		return nil, err
	}
	var options engine.TopicOptions // the defaults until the catalog has the topic
	if t, ok := l.o.Catalog.Hosted(id.Topic); ok {
		options = optionsOf(t)
	}
	q := l.o.Queue
	q.Policy = func(channel string) nsqd.Policy { return l.o.Catalog.Policy(id.Topic, channel) }
	p := l.o.Engine.NewPartition(engine.Config{ID: id, Topic: topic, Store: st, Queue: q, Options: options})
	o := l.o.Replica
	o.Partition = id
	o.Self = replica.Peer{Node: l.o.Self, Incarnation: l.o.Incarnation(), Store: st.StoreID()}
	o.DedupeMS = cmp.Or(options.DedupeWindowMS, dedupe.DefaultMS)
	r := st.Restored()
	st.LoadIdentities(&r)
	m := replica.New(r, st.Index(), p.Queue(), o)
	st.ReleaseRestored()
	_, trashed := l.o.Catalog.Trashed(id.Topic)
	p.SetTrashed(trashed)
	l.o.Engine.Add(p, m)
	return p, nil
}

// Compact merges the channel state into one full version for a checkpoint (store.Options). The channels that it builds
// never serve, so it needs neither a log nor other replicas.
func Compact(topic string, id ident.Partition, confirms []queue.StateVersion) ([]byte, bool) {
	q := nsqd.NewPartition(topic, id, nil, nil, nsqd.Options{})
	replica.Replay(q, confirms)
	return q.Snapshot(), true
}

// Prepare creates the stores of a topic that is about to be created (calls.Prepare).
func (l *Local) Prepare(req calls.PrepareRequest) (calls.Prepared, error) {
	resp := calls.Prepared{Stores: make([]ident.StoreID, len(req.Partitions))}
	errs := make([]error, len(req.Partitions))
	concurrency.Each(len(req.Partitions), openers, func(i int) {
		p := ident.Partition{Topic: req.Topic, Number: req.Partitions[i]}
		defer l.lock(p)()
		st, err := l.storeLocked(req.Name, p)
		if errs[i] = err; err == nil {
			resp.Stores[i] = st.StoreID()
		}
	})
	if req.Durability == string(metadata.DurabilitySync) { // do it here, not in the goroutine that applies the metadata
		errs = append(errs, l.requireSync(req.Name, req.Topic))
	}
	return resp, errors.Join(errs...)
}

// Release trashes stores that were prepared and never used (calls.Release): no key names
// the partition, read linearizably, and nothing was ever promised or written.
func (l *Local) Release(ctx context.Context, req calls.PrepareRequest) error {
	for _, n := range req.Partitions {
		p := ident.Partition{Topic: req.Topic, Number: n}
		if !l.unused(p) || !txn.Absent(ctx, l.o.Meta, l.o.Keys.Partition(p)) {
			continue
		}
		if err := l.trashUnused(p); err != nil {
			return err
		}
	}
	return nil
}

func (l *Local) unused(p ident.Partition) bool {
	st, ok := l.o.Store.Partition(p)
	if _, hosted := l.o.Engine.Partition(p); !ok || hosted {
		return false
	}
	r := st.Restored()
	return r.Epoch == 0 && r.End == ident.Position{}
}

// trashUnused does nothing if the partition has been opened in the meantime, because its key arrived late.
func (l *Local) trashUnused(p ident.Partition) error {
	defer l.lock(p)()
	if !l.unused(p) {
		return nil
	}
	return l.o.Store.Trash(p)
}
