package catalog

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Candidates are the brokers to place replicas on, with their load: the live ones. If those are fewer than the
// replicas, brokers that are drained or below their disk reserve (low) are added, and then all that ever registered.
// The replication factor never shrinks to the brokers that happen to be up: the replica of a dead broker joins the
// in-sync set when the broker is back.
func (c *Catalog) Candidates(replicas int, low func(ident.Node) bool) []plan.Broker {
	var live, away []plan.Broker
	for _, b := range c.loads() {
		if c.runs(b.Node) && c.Drain(b.Node) == "" && !low(b.Node) {
			live = append(live, *b)
		} else {
			away = append(away, *b)
		}
	}
	rank := func(n ident.Node) int {
		if c.runs(n) {
			return 0 // it is drained, or below its reserve
		}
		return 1
	}
	slices.SortFunc(away, func(x, y plan.Broker) int {
		return cmp.Or(cmp.Compare(rank(x.Node), rank(y.Node)), cmp.Compare(x.Replicas, y.Replicas), cmp.Compare(x.Node, y.Node))
	})
	missing := max(replicas-len(live), 0) // all live brokers, and others to make up the number
	return append(live, away[:min(missing, len(away))]...)
}

// runs reports whether a broker is registered and not stopping.
func (c *Catalog) runs(n ident.Node) bool {
	r, ok := c.LiveNode(n)
	return ok && !r.Transferring
}

// loads counts the replicas and leaderships of the brokers that stay.
func (c *Catalog) loads() map[ident.Node]*plan.Broker {
	load := map[ident.Node]*plan.Broker{}
	for _, n := range c.Nodes() {
		if !n.Leaving {
			load[n.Name] = &plan.Broker{Node: n.Name, Zone: n.Zone}
		}
	}
	for _, p := range c.Partitions() {
		s, _ := c.Partition(p)
		for i, n := range s.Replicas {
			if b := load[n]; b != nil {
				b.Replicas++
				if i == 0 {
					b.Leads++
				}
			}
		}
	}
	return load
}

// Leaving reports whether a broker is being decommissioned.
func (c *Catalog) Leaving(n ident.Node) bool {
	return slices.ContainsFunc(c.Nodes(), func(s metadata.NodeState) bool { return s.Name == n && s.Leaving })
}

// Drain is what an operator drains from a broker.
func (c *Catalog) Drain(n ident.Node) metadata.Drain {
	return read(c, func(s *state) metadata.Drain { return s.nodes[n].Drain })
}

// Decommissioned reports whether n has been fully drained and may be shut down permanently.
func (c *Catalog) Decommissioned(n ident.Node) bool {
	return c.Leaving(n) && !slices.ContainsFunc(c.Partitions(), func(p ident.Partition) bool {
		s, _ := c.Partition(p)
		return slices.Contains(s.Replicas, n)
	})
}

// Addresses are the brokers that n connects to: every other one that ever registered, at the address of its current
// registration if it has one.
func (c *Catalog) Addresses(n ident.Node) map[ident.Node]string {
	book := map[ident.Node]string{}
	for _, s := range c.Nodes() {
		book[s.Name] = s.RPCAddress
	}
	for _, r := range c.LiveNodes() {
		book[r.Name] = r.RPCAddress
	}
	delete(book, n)
	return book
}
