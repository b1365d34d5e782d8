package catalog

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/placement"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Candidates are the brokers to place replicas on, with their load: the live ones, or
// if these are fewer than the replicas wanted, all that ever registered. The
// replication factor never shrinks to the brokers that happen to be up: the replica of
// a dead broker joins the in-sync set when the broker is back.
func (c *Catalog) Candidates(replicas int) []placement.Broker {
	var live, away []placement.Broker
	for _, b := range c.loads() {
		if r, ok := c.LiveNode(b.Node); ok && !r.Transferring {
			live = append(live, *b)
		} else {
			away = append(away, *b)
		}
	}
	slices.SortFunc(away, func(x, y placement.Broker) int {
		return cmp.Or(cmp.Compare(x.Replicas, y.Replicas), cmp.Compare(x.Node, y.Node))
	})
	missing := max(replicas-len(live), 0) // all that run, and no more of the others than are missing
	return append(live, away[:min(missing, len(away))]...)
}

// loads counts the replicas and leaderships of the brokers that stay.
func (c *Catalog) loads() map[ident.Node]*placement.Broker {
	load := map[ident.Node]*placement.Broker{}
	for _, n := range c.Nodes() {
		if !n.Leaving {
			load[n.Name] = &placement.Broker{Node: n.Name, Zone: n.Zone}
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
	return slices.ContainsFunc(c.Nodes(), func(s meta.NodeState) bool { return s.Name == n && s.Leaving })
}

// Left reports whether a broker is decommissioned and has no replica any more: if it
// stops, it is for good.
func (c *Catalog) Left(n ident.Node) bool {
	return c.Leaving(n) && !slices.ContainsFunc(c.Partitions(), func(p ident.Partition) bool {
		s, _ := c.Partition(p)
		return slices.Contains(s.Replicas, n)
	})
}

// Addresses gives the brokers that n connects to: every other one that ever registered,
// at the address of its present registration if it has one.
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
