package controller

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
)

// raiseLevel lifts the cluster's feature level to the one that all brokers have, those
// that do not run included: they would have to be refused when they come back. The
// transaction compares every broker's key, so that no broker comes back unnoticed with an older
// build: a broker that starts looks at the level after it has
// written that key. fence is the controller's.
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
func least(nodes []metadata.NodeState) (level int) {
	for i, n := range nodes {
		if i == 0 || n.Level < level {
			level = n.Level
		}
	}
	return level
}
