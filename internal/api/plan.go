package api

import (
	"cmp"
	"context"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Planner reports what an operation on the placement (Balance, MoveReplica, Decommission, Drain) would change. Errors
// as Admin.
type Planner interface {
	Plan(ctx context.Context, op Operation) (Plan, error)
}

// Plan is the whole change that an operation starts, as the cluster is now.
type Plan struct {
	Steps   []PlanStep   `json:"steps"`   // by topic and partition
	Brokers []PlanBroker `json:"brokers"` // all of them, by name
	Blocked []string     `json:"blocked"` // partitions that cannot be moved as requested, with the reason
}

// PlanStep is a partition that changes.
type PlanStep struct {
	Topic         string       `json:"topic"`
	Partition     int          `json:"partition"`
	Replicas      []ident.Node `json:"replicas"`
	ReplicasAfter []ident.Node `json:"replicas_after"`
	Leader        ident.Node   `json:"leader"`
	LeaderAfter   ident.Node   `json:"leader_after"`
}

// PlanBroker is the load of a broker before and after.
type PlanBroker struct {
	Broker        ident.Node `json:"broker"`
	Replicas      int        `json:"replicas"`
	ReplicasAfter int        `json:"replicas_after"`
	Leads         int        `json:"leads"`
	LeadsAfter    int        `json:"leads_after"`
}

// Compare orders steps by topic and partition.
func (s PlanStep) Compare(o PlanStep) int {
	return cmp.Or(cmp.Compare(s.Topic, o.Topic), cmp.Compare(s.Partition, o.Partition))
}
