package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/placement"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// moveReplica asks for a replica of one partition on another broker than now, in
// the same place: it returns when that is written, and the controller adds,
// waits until it is in sync, hands over, and drops.
func (b *Broker) moveReplica(ctx context.Context, op edge.AdminOp) error {
	t, ok := b.catalog.topic(op.Topic)
	if !ok {
		return edge.ErrTopicNotFound
	}
	n, err := strconv.Atoi(op.Args["partition"])
	if err != nil || n < 0 || n >= t.Partitions {
		return fmt.Errorf("%w: partition must be 0 to %d", edge.ErrInvalid, t.Partitions-1)
	}
	from, to := ident.Node(op.Args["from"]), ident.Node(op.Args["to"])
	if err := b.mayReceive(to); err != nil {
		return err
	}
	if !slices.ContainsFunc(b.catalog.nodes(), func(s meta.NodeState) bool { return s.Name == from }) {
		return fmt.Errorf("%w: no broker %q", edge.ErrInvalid, from)
	}
	return b.aim(ctx, ident.Partition{Topic: t.ID, Number: uint16(n)}, func(now []ident.Node) ([]ident.Node, error) {
		at := slices.Index(now, from)
		switch {
		case at < 0 && slices.Contains(now, to):
			return now, nil // moved already
		case at < 0:
			return nil, fmt.Errorf("%w: %q has no replica of it; %v have", edge.ErrInvalid, from, now)
		case slices.Contains(now, to):
			return nil, fmt.Errorf("%w: %q has a replica of it already", edge.ErrInvalid, to)
		}
		wanted := slices.Clone(now)
		wanted[at] = to
		return wanted, nil
	})
}

// mayReceive reports whether replicas may be put on a broker.
func (b *Broker) mayReceive(n ident.Node) error {
	r, live := b.catalog.liveNode(n)
	if !live || r.HandingOver {
		return fmt.Errorf("%w: broker %q does not run", edge.ErrInvalid, n)
	}
	if slices.ContainsFunc(b.catalog.nodes(), func(s meta.NodeState) bool { return s.Name == n && s.Leaving }) {
		return fmt.Errorf("%w: broker %q is being decommissioned", edge.ErrInvalid, n)
	}
	return nil
}

// balance spreads the replicas of all topics, and their preferred leaders, over
// the brokers that run. What is on its way already keeps its target.
func (b *Broker) balance(ctx context.Context) error {
	var ids []ident.Partition
	var before [][]ident.Node
	for _, p := range b.catalog.partitions() {
		if s, ok := b.catalog.partition(p); ok {
			ids, before = append(ids, p), append(before, aimed(s))
		}
	}
	after := placement.Balance(slices.DeleteFunc(b.candidates(0), func(c placement.Broker) bool {
		return b.mayReceive(c.Node) != nil
	}), before)
	errs := make([]error, len(ids))
	parallel(len(ids), transactions, func(i int) {
		errs[i] = b.aim(ctx, ids[i], func(now []ident.Node) ([]ident.Node, error) {
			if !slices.Equal(now, before[i]) {
				return now, nil // somebody else has other plans
			}
			return after[i], nil
		})
		if errors.Is(errs[i], meta.ErrNotFound) {
			errs[i] = nil // its topic was deleted
		}
	})
	return errors.Join(errs...)
}

// aimed lists the replicas that a partition has, or is to have.
func aimed(s meta.PartitionState) []ident.Node {
	if len(s.Target) > 0 {
		return s.Target
	}
	return s.Replicas
}

// aim writes down which replicas a partition is to have, and returns when this
// broker knows it. change is asked again when somebody else was faster; what it
// leaves as it was is not written.
func (b *Broker) aim(ctx context.Context, p ident.Partition, change func(now []ident.Node) ([]ident.Node, error)) error {
	key := b.keys.Partition(p)
	s, _ := b.catalog.partition(p)
	for {
		wanted, err := change(aimed(s))
		if err != nil || slices.Equal(wanted, aimed(s)) {
			return err
		}
		s.V, s.Target = meta.Version, wanted
		ok, rev, err := b.tryTxn(ctx, []meta.Compare{{Key: key, Create: -1, Mod: s.Revision}}, []meta.Put{{Key: key, Value: meta.Encode(s)}})
		if err == nil && ok {
			return b.await(ctx, func() bool { now, there := b.catalog.partition(p); return !there || now.Revision >= rev })
		}
		var e meta.Entry
		if err == nil {
			e, err = b.meta.Get(ctx, key)
		}
		if err == nil {
			s, err = meta.DecodePartition(e)
		}
		if err != nil {
			return fmt.Errorf("%w: partition %s: %w", edge.ErrUnavailable, p, err)
		}
	}
}
