package moves

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// transactions is how many transactions of one operation run at once: etcd writes them with one sync.
const transactions = 16

// Moves decides the placement of replicas. The controller carries it out, step by step.
type Moves struct{ o Options }

// Options: all fields are required.
type Options struct {
	Store    metadata.Store
	Keys     metadata.Keys
	Catalog  *catalog.Catalog
	Snapshot func() plan.Snapshot  // the cluster as the controller sees it
	Low      func(ident.Node) bool // whether a broker is below its disk reserve
}

// New makes the Moves of a broker.
func New(o Options) *Moves { return &Moves{o: o} }

// Do carries out an operation on the placement; it returns outcome.ErrInvalid for any other operation. A decommissioned
// broker may be stopped permanently once it appears in no partition; then the cluster forgets it. The controller
// transfers the leaderships of a drained broker and, if requested, moves its replicas. The request is in the broker's
// key, so it survives a crash of any broker.
func (m *Moves) Do(ctx context.Context, op api.Operation) error {
	switch op := op.(type) {
	case api.MoveReplica:
		id, change, err := m.moved(op)
		if err != nil {
			return err
		}
		return m.aim(ctx, id, change)
	case api.Balance:
		return m.balance(ctx)
	case api.Decommission:
		return m.editNode(ctx, op.Node, func(s *metadata.NodeState) { s.Leaving = !op.Cancel }, nil)
	case api.Drain:
		if op.Cancel {
			return m.editNode(ctx, op.Node, func(s *metadata.NodeState) { s.Drain = "" }, nil)
		}
		drain := metadata.DrainLeaders
		if op.Replicas {
			drain = metadata.DrainReplicas
		}
		return m.editNode(ctx, op.Node, func(s *metadata.NodeState) { s.Drain = drain }, m.otherLeader)
	}
	return fmt.Errorf("%w: operation %T", outcome.ErrInvalid, op)
}

// moved checks a move, and returns its partition and the change: one replica is replaced by a replica on another
// broker, at the same position in the list. The controller then adds the new replica, waits until it is in sync,
// transfers the leadership if necessary, and drops the old one.
func (m *Moves) moved(op api.MoveReplica) (id ident.Partition, change func(now []ident.Node) ([]ident.Node, error), err error) {
	t, ok := m.o.Catalog.Topic(op.Topic)
	if !ok {
		return id, nil, outcome.ErrTopicNotFound
	}
	if op.Partition < 0 || op.Partition >= t.Partitions {
		return id, nil, fmt.Errorf("%w: partition must be 0 to %d", outcome.ErrInvalid, t.Partitions-1)
	}
	if err := m.mayReceive(op.To); err != nil {
		return id, nil, err
	}
	if err := m.checkBroker(op.From); err != nil {
		return id, nil, err
	}
	return t.Partition(op.Partition), func(now []ident.Node) ([]ident.Node, error) {
		at := slices.Index(now, op.From)
		switch {
		case at < 0 && slices.Contains(now, op.To):
			return now, nil // moved already
		case at < 0:
			return nil, fmt.Errorf("%w: %q has no replica of it; %v have", outcome.ErrInvalid, op.From, now)
		case slices.Contains(now, op.To):
			return nil, fmt.Errorf("%w: %q has a replica of it already", outcome.ErrInvalid, op.To)
		}
		target := slices.Clone(now)
		target[at] = op.To
		return target, nil
	}, nil
}

func (m *Moves) checkBroker(n ident.Node) error {
	if !slices.ContainsFunc(m.o.Catalog.Nodes(), func(s metadata.NodeState) bool { return s.Name == n }) {
		return fmt.Errorf("%w: %q", outcome.ErrBrokerNotFound, n)
	}
	return nil
}

// mayReceive returns the reason why a broker may not receive replicas; nil: it may.
func (m *Moves) mayReceive(n ident.Node) error {
	if err := m.checkBroker(n); err != nil {
		return err
	}
	r, live := m.o.Catalog.LiveNode(n)
	if !live || r.Transferring {
		return fmt.Errorf("%w: broker %q does not run", outcome.ErrInvalid, n)
	}
	if m.o.Catalog.Leaving(n) {
		return fmt.Errorf("%w: broker %q is being decommissioned", outcome.ErrInvalid, n)
	}
	if m.o.Catalog.Drain(n) != "" {
		return fmt.Errorf("%w: broker %q is drained: it gets no replica before `nsqctl broker undrain %s`", outcome.ErrInvalid, n, n)
	}
	if m.o.Low(n) {
		return fmt.Errorf("%w: broker %q is below its disk reserve: free or add disk space there first", outcome.ErrInvalid, n)
	}
	return nil
}

// balance spreads the replicas of all topics, and their preferred leaders, over the running brokers. A partition that
// is being moved already has its target.
func (m *Moves) balance(ctx context.Context) error {
	aims := m.balanced()
	ids := slices.SortedFunc(maps.Keys(aims), func(a, b ident.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
	})
	errs := make([]error, len(ids))
	concurrency.Each(len(ids), transactions, func(i int) {
		aim := aims[ids[i]]
		errs[i] = m.aim(ctx, ids[i], func(now []ident.Node) ([]ident.Node, error) {
			if !slices.Equal(now, aim.before) {
				return now, nil // another operator has changed the target
			}
			return aim.after, nil
		})
		if errors.Is(errs[i], metadata.ErrNotFound) {
			errs[i] = nil // its topic was deleted
		}
	})
	return errors.Join(errs...)
}

// aim is the target of a partition: its replicas before and after a change.
type aim struct{ before, after []ident.Node }

func (m *Moves) balanced() map[ident.Partition]aim {
	var ids []ident.Partition
	var before [][]ident.Node
	for _, p := range m.o.Catalog.Partitions() {
		if s, ok := m.o.Catalog.Partition(p); ok {
			ids, before = append(ids, p), append(before, aimed(s))
		}
	}
	after := plan.Balance(slices.DeleteFunc(m.o.Catalog.Candidates(0, m.o.Low), func(c plan.Broker) bool {
		return m.mayReceive(c.Node) != nil
	}), before)
	out := map[ident.Partition]aim{}
	for i, id := range ids {
		if !slices.Equal(before[i], after[i]) {
			out[id] = aim{before[i], after[i]}
		}
	}
	return out
}

// aimed lists the target replicas of a partition or, without a target, its current ones.
func aimed(s metadata.PartitionState) []ident.Node {
	if len(s.Target) > 0 {
		return s.Target
	}
	return s.Replicas
}

// aim writes the target replicas of a partition, and returns when this broker's catalog has them. change is called
// again if another writer came first. An unchanged target is not written.
func (m *Moves) aim(ctx context.Context, p ident.Partition, change func(now []ident.Node) ([]ident.Node, error)) error {
	key := m.o.Keys.Partition(p)
	s, _ := m.o.Catalog.Partition(p)
	for {
		target, err := change(aimed(s))
		if err != nil || slices.Equal(target, aimed(s)) {
			return err
		}
		s.V, s.Target = metadata.Version, target
		ok, rev, err := txn.Try(ctx, m.o.Store, []metadata.Compare{{Key: key, Create: -1, Mod: s.Revision}}, []metadata.Put{{Key: key, Value: metadata.Encode(s)}})
		if err == nil && ok {
			return m.o.Catalog.Await(ctx, func() bool { now, there := m.o.Catalog.Partition(p); return !there || now.Revision >= rev })
		}
		var e metadata.Entry
		if err == nil {
			e, err = m.o.Store.Get(ctx, key)
		}
		if err == nil {
			s, err = metadata.DecodePartition(e)
		}
		if err != nil {
			return fmt.Errorf("%w: partition %s: %w", outcome.ErrUnavailable, p, err)
		}
	}
}

// otherLeader refuses to drain the last broker that may lead. It reads the keys, because the catalog may lag behind
// another drain. The compare fails once the remaining broker may not lead either, so one of two concurrent drains that
// would leave none fails.
func (m *Moves) otherLeader(ctx context.Context, than ident.Node) (compare metadata.Compare, err error) {
	entries, _, err := m.o.Store.List(ctx, m.o.Keys.Nodes())
	if err != nil {
		return compare, fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
	}
	for _, e := range entries {
		s, err := metadata.DecodeNode(e)
		if err != nil {
			return compare, err
		}
		if _, runs := m.o.Catalog.LiveNode(s.Name); runs && s.Name != than && !s.Leaving && s.Drain == "" {
			return metadata.Compare{Key: e.Key, Create: -1, Mod: e.Mod}, nil
		}
	}
	return compare, fmt.Errorf("%w: no other broker runs that is neither drained nor being decommissioned: none could take the leaderships of %q", outcome.ErrInvalid, than)
}

// editNode changes the permanent key of a broker, and returns when it is written. If requires is not nil, it adds a
// condition to the change or refuses it.
func (m *Moves) editNode(ctx context.Context, n ident.Node, edit func(*metadata.NodeState), requires func(context.Context, ident.Node) (metadata.Compare, error)) error {
	key := m.o.Keys.Node(n)
	for {
		e, err := m.o.Store.Get(ctx, key)
		if errors.Is(err, metadata.ErrNotFound) {
			return fmt.Errorf("%w: %q", outcome.ErrBrokerNotFound, n)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
		}
		was, err := metadata.DecodeNode(e)
		if err != nil {
			return err
		}
		s := was
		edit(&s)
		if s.Leaving == was.Leaving && s.Drain == was.Drain {
			return nil
		}
		s.V = metadata.Version
		compares := []metadata.Compare{{Key: key, Create: -1, Mod: e.Mod}}
		if requires != nil {
			c, err := requires(ctx, n)
			if err != nil {
				return err
			}
			compares = append(compares, c)
		}
		if _, _, err = txn.Try(ctx, m.o.Store, compares, []metadata.Put{{Key: key, Value: metadata.Encode(s)}}); err != nil {
			return fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
		}
	}
}
