package controller

import (
	"time"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Snapshot is the cluster as input of a plan. A broker that publishes that it cannot reach others (EL-6) gets neither
// replicas nor leaderships: its followers would replace it at once, and the next plan would transfer the leadership back.
// Nor does a broker below its disk reserve (low), which transfers its leaderships away.
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
