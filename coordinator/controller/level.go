package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// raiseLevel raises the cluster's feature level to the highest that all brokers support. This includes stopped brokers,
// which would otherwise be refused when they come back. The transaction compares every broker's key, so that no broker
// comes back unnoticed with an older build: a starting broker reads the level after it has written its key.
func (c *controller) raiseLevel(ctx context.Context, fence metadata.Compare) error {
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

// least is the highest feature level that all brokers support.
func least(nodes []metadata.NodeState) int {
	if len(nodes) == 0 {
		return 0
	}
	return slices.MinFunc(nodes, func(a, b metadata.NodeState) int { return cmp.Compare(a.Level, b.Level) }).Level
}

// Snapshot is the cluster as input of a plan. A broker that publishes that it cannot reach others (EL-6) gets neither replicas
// nor leaderships: its followers would replace it at once, and the next plan would transfer the leadership back. Nor does a
// broker below its disk reserve (low), which transfers its leaderships away.
func Snapshot(catalog *catalog.Catalog, up, low func(ident.Node) bool) plan.Snapshot {
	s := plan.Snapshot{NowMS: time.Now().UnixMilli()}
	for _, name := range catalog.Records() {
		if t, ok := catalog.Record(name); ok {
			s.Topics = append(s.Topics, plan.Topic{Name: name, State: t})
		}
	}
	for _, t := range catalog.Trash() {
		s.Trash = append(s.Trash, t.Topic)
	}
	for _, p := range catalog.Partitions() {
		if state, ok := catalog.Partition(p); ok {
			s.Partitions = append(s.Partitions, plan.Partition{ID: p, State: state})
		}
	}
	for _, n := range catalog.Nodes() {
		if _, runs := catalog.LiveNode(n.Name); n.Drain != "" && runs && up(n.Name) {
			s.Drained = append(s.Drained, n.Name)
		}
		if !n.Leaving && n.Drain != metadata.DrainReplicas {
			continue
		}
		s.Leaving = append(s.Leaving, n.Name)
		if !n.Leaving {
			s.Staying = append(s.Staying, n.Name)
		}
		if _, runs := catalog.LiveNode(n.Name); !runs {
			s.Gone = append(s.Gone, n.Name)
		}
	}
	for _, b := range catalog.Candidates(0, low) {
		if r, _ := catalog.LiveNode(b.Node); up(b.Node) && len(r.Unreachable) == 0 {
			s.Live = append(s.Live, b)
		}
	}
	return s
}
