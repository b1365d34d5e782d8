package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Decommission marks a broker as leaving, or as staying after all. The
// controller moves its replicas to the others, one step of a partition at a
// time: add, catch up, hand over, drop. The broker may be stopped for good when
// it appears in no partition any more; then the cluster forgets it.
func (b *Broker) Decommission(ctx context.Context, n ident.Node, leaving bool) error {
	key := b.keys.Node(n)
	for {
		e, err := b.meta.Get(ctx, key)
		if errors.Is(err, meta.ErrNotFound) {
			return fmt.Errorf("%w: no broker %q", edge.ErrInvalid, n)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", edge.ErrUnavailable, err)
		}
		s, err := meta.DecodeNode(e)
		if err != nil || s.Leaving == leaving {
			return err
		}
		s.V, s.Leaving = meta.Version, leaving
		_, _, err = b.tryTxn(ctx, []meta.Compare{{Key: key, Create: -1, Mod: e.Mod}}, []meta.Put{{Key: key, Value: meta.Encode(s)}})
		if err != nil {
			return fmt.Errorf("%w: %w", edge.ErrUnavailable, err)
		}
	}
}

// Left says whether this broker is decommissioned and has no replica any more: if it
// stops, it is for good.
func (b *Broker) Left() bool {
	leaving := slices.ContainsFunc(b.catalog.nodes(), func(n meta.NodeState) bool { return n.Name == b.self && n.Leaving })
	return leaving && !slices.ContainsFunc(b.catalog.partitions(), func(p ident.Partition) bool {
		s, _ := b.catalog.partition(p)
		return slices.Contains(s.Replicas, b.self)
	})
}

// forget removes a broker that has left: its member of the embedded metadata
// store, then its key, unless it has come back meanwhile.
func (b *Broker) forget(ctx context.Context, fence meta.Compare, n ident.Node) error {
	if m := b.o.Members; m != nil {
		if err := m.Remove(ctx, n); err != nil {
			return fmt.Errorf("remove the metadata member of %s: %w", n, err)
		}
	}
	ok, _, err := b.meta.Txn(ctx, []meta.Compare{fence, {Key: b.keys.Live(n)}}, []meta.Put{{Key: b.keys.Node(n), Delete: true}})
	if err == nil && !ok {
		err = errCompare
	}
	if err == nil {
		b.log.WithField("node", n).Info("FORGOTTEN: a decommissioned broker has gone; its data path is of no use any more")
	}
	return err
}

// decommission marks the broker that op names.
func (b *Broker) decommission(ctx context.Context, op edge.AdminOp) error {
	stay := false
	if err := boolean(op.Args, "cancel", &stay); err != nil {
		return err
	}
	return b.Decommission(ctx, ident.Node(op.Args["node"]), !stay)
}
