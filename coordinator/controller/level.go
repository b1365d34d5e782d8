package controller

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
)

// raiseLevel raises the cluster's feature level to the one that all brokers have, stopped ones included: they would be
// refused when they come back. The transaction compares every broker's key, so that none comes back unnoticed with an
// older build: a starting broker reads the level after it has written that key.
func (c *Control) raiseLevel(ctx context.Context, fence metadata.Compare) error {
	now := c.o.Catalog.Cluster()
	if least(c.o.Catalog.Nodes()) <= now.Level {
		return nil
	}
	entries, _, err := c.o.Store.List(ctx, c.o.Keys.Nodes())
	if err != nil {
		return err
	}
	var nodes []metadata.NodeState
	compares := []metadata.Compare{fence, {Key: c.o.Keys.Config(), Create: -1, Mod: now.Revision}}
	for _, e := range entries {
		n, err := metadata.DecodeNode(e)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
		compares = append(compares, metadata.Compare{Key: e.Key, Create: -1, Mod: e.Mod})
	}
	level := least(nodes)
	if level <= now.Level {
		return nil
	}
	state := metadata.ClusterState{V: metadata.Version, Level: level}
	ok, _, err := c.o.Store.Txn(ctx, compares, []metadata.Put{{Key: c.o.Keys.Config(), Value: metadata.Encode(state)}})
	if err == nil && ok {
		c.o.Log.WithField("feature_level", level).Info("cluster feature level raised: older builds are refused")
	}
	return err
}

// least is the feature level that all brokers have.
func least(nodes []metadata.NodeState) int {
	if len(nodes) == 0 {
		return 0
	}
	return slices.MinFunc(nodes, func(a, b metadata.NodeState) int { return cmp.Compare(a.Level, b.Level) }).Level
}
