package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/meta"
)

// ErrTooOld means that the cluster uses what this build does not understand: its
// brokers were all newer once.
var ErrTooOld = errors.New("coordinator: this build is too old for the cluster")

// checkLevel asks whether the cluster's feature level is above this build's.
func (b *Broker) checkLevel(ctx context.Context) error {
	e, err := b.meta.Get(ctx, b.keys.Config())
	if errors.Is(err, meta.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the feature level: %w", err)
	}
	s, err := meta.DecodeCluster(e)
	if err == nil && s.Level > b.o.Node.Level {
		err = fmt.Errorf("%w: it has feature level %d, the cluster %d", ErrTooOld, b.o.Node.Level, s.Level)
	}
	return err
}

// raiseLevel lifts the cluster's feature level to what all brokers have, those
// that do not run included: they would have to be refused when they come back.
// The transaction compares every broker's key, so that none comes back with an
// older build meanwhile and is not noticed: who starts looks after it has
// written that key. fence is the controller's.
func (b *Broker) raiseLevel(ctx context.Context, fence meta.Compare) error {
	now := b.catalog.cluster()
	if least(b.catalog.nodes()) <= now.Level {
		return nil
	}
	entries, _, err := b.meta.List(ctx, b.keys.Nodes())
	if err != nil {
		return err
	}
	var nodes []meta.NodeState
	compares := []meta.Compare{fence, {Key: b.keys.Config(), Create: -1, Mod: now.Revision}}
	for _, e := range entries {
		n, err := meta.DecodeNode(e)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
		compares = append(compares, meta.Compare{Key: e.Key, Create: -1, Mod: e.Mod})
	}
	level := least(nodes)
	if level <= now.Level {
		return nil
	}
	ok, _, err := b.meta.Txn(ctx, compares, []meta.Put{{Key: b.keys.Config(), Value: meta.Encode(meta.ClusterState{V: meta.Version, Level: level})}})
	if err == nil && ok {
		b.log.Infof("LEVEL of the cluster is %d now: older builds are refused", level)
	}
	return err
}

// least is the feature level that all brokers have.
func least(nodes []meta.NodeState) (level int) {
	for i, n := range nodes {
		if i == 0 || n.Level < level {
			level = n.Level
		}
	}
	return level
}
