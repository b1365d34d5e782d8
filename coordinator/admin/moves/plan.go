package moves

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Plan reports the changes that an operation on the placement would make, and makes none (api.Planner). It applies the
// controller's rules to the cluster as this broker sees it, and leaves out the changes that are in progress already.
func (m *Moves) Plan(ctx context.Context, op api.Operation) (api.Plan, error) {
	if err := api.Validate(op); err != nil {
		return api.Plan{}, err
	}
	now := m.o.Snapshot()
	then, err := m.wished(ctx, now, op)
	if err != nil {
		return api.Plan{}, err
	}
	without, with := plan.Foresee(now), plan.Foresee(then.Snapshot)
	p := api.Plan{Steps: []api.PlanStep{}, Blocked: []string{}}
	loads := map[ident.Node]*api.PlanBroker{}
	for _, n := range m.o.Catalog.Nodes() {
		loads[n.Name] = &api.PlanBroker{Broker: n.Name}
	}
	load := func(n ident.Node) *api.PlanBroker {
		return cmp.Or(loads[n], &api.PlanBroker{}) // the leader may be unknown
	}
	for i, x := range now.Partitions {
		was, will := without[i].State, with[i].State
		for _, n := range x.State.Replicas {
			load(n).Replicas++
		}
		for _, n := range will.Replicas {
			load(n).ReplicasAfter++
		}
		load(x.State.Leader).Leads++
		load(will.Leader).LeadsAfter++
		name, _ := m.o.Catalog.Name(x.ID.Topic)
		if blocked := then.keeps(will); blocked != "" {
			p.Blocked = append(p.Blocked, fmt.Sprintf("%s/%d %s", name, x.ID.Number, blocked))
		}
		if slices.Equal(was.Replicas, will.Replicas) && was.Leader == will.Leader {
			continue
		}
		p.Steps = append(p.Steps, api.PlanStep{
			Topic: name, Partition: int(x.ID.Number), Replicas: x.State.Replicas, ReplicasAfter: will.Replicas,
			Leader: x.State.Leader, LeaderAfter: will.Leader,
		})
	}
	for _, n := range m.o.Catalog.Nodes() {
		p.Brokers = append(p.Brokers, *loads[n.Name])
	}
	slices.SortFunc(p.Steps, func(a, b api.PlanStep) int { return a.Compare(b) })
	slices.Sort(p.Blocked)
	return p, nil
}

// wish is the cluster after an operation, and the brokers that the operation empties.
type wish struct {
	plan.Snapshot
	free, relieve ident.Node
}

// keeps returns the reason why a partition stays on a broker that the operation empties; "": it does not stay.
func (w wish) keeps(s metadata.PartitionState) string {
	switch {
	case w.free != "" && slices.Contains(s.Replicas, w.free):
		return fmt.Sprintf("keeps its replica on %s: no other broker can take it", w.free)
	case w.relieve != "" && s.Leader == w.relieve:
		return fmt.Sprintf("keeps its leader on %s: no other in-sync replica lives", w.relieve)
	}
	return ""
}

func (m *Moves) wished(ctx context.Context, s plan.Snapshot, op api.Operation) (wish, error) {
	w := wish{Snapshot: s}
	w.Partitions = slices.Clone(s.Partitions)
	switch op := op.(type) {
	case api.Balance:
		aims := m.balanced()
		for i, p := range w.Partitions {
			if aim, ok := aims[p.ID]; ok {
				w.Partitions[i].State.Target = aim.after
			}
		}
		return w, nil
	case api.MoveReplica:
		id, change, err := m.moved(op)
		if err != nil {
			return w, err
		}
		for i, p := range w.Partitions {
			if p.ID != id {
				continue
			}
			if w.Partitions[i].State.Target, err = change(aimed(p.State)); err != nil {
				return w, err
			}
		}
		return w, nil
	case api.Decommission:
		return w, m.without(&w, op.Node, true, false)
	case api.Drain:
		if _, err := m.otherLeader(ctx, op.Node); err != nil {
			return w, err
		}
		return w, m.without(&w, op.Node, op.Replicas, true)
	}
	return w, fmt.Errorf("%w: operation %T has no plan", outcome.ErrInvalid, op)
}

func (m *Moves) without(w *wish, n ident.Node, replicas, drain bool) error {
	if err := m.checkBroker(n); err != nil {
		return err
	}
	runs := slices.ContainsFunc(w.Live, func(b plan.Broker) bool { return b.Node == n }) || slices.Contains(w.Drained, n)
	w.Live = slices.DeleteFunc(slices.Clone(w.Live), func(b plan.Broker) bool { return b.Node == n })
	if replicas {
		w.free, w.Leaving = n, append(slices.Clone(w.Leaving), n)
		if !runs {
			w.Gone = append(slices.Clone(w.Gone), n)
		}
	}
	if drain && runs {
		w.relieve, w.Drained = n, append(slices.Clone(w.Drained), n)
	}
	return nil
}
