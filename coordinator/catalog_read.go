package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// topic finds a topic that is not deleted.
func (c *catalog) topic(name string) (meta.TopicState, bool) {
	s, ok := c.record(name)
	return s, ok && !s.Deleted
}

// record finds a topic's key, a tombstone too.
func (c *catalog) record(name string) (meta.TopicState, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, ok := c.mu.topics[name]
	return s, ok
}

// name is the name of a topic id, also of a deleted one while its key is there.
func (c *catalog) name(id ident.TopicID) (string, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n, ok := c.mu.names[id]
	return n, ok
}

// topics lists the names that are not deleted, sorted.
func (c *catalog) topics() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []string
	for name, s := range c.mu.topics {
		if !s.Deleted {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// records lists all names, tombstones too, sorted.
func (c *catalog) records() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.mu.topics))
}

// partition is a partition's key; Revision 0 stands in none.
func (c *catalog) partition(p ident.Partition) (meta.PartitionState, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, ok := c.mu.partitions[p]
	return s, ok
}

// partitions lists all partition ids, sorted.
func (c *catalog) partitions() []ident.Partition {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(c.mu.partitions), comparePartitions)
}

// channels is the map of a topic's channels; it must not be changed.
func (c *catalog) channels(id ident.TopicID) map[string]meta.ChannelState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.channels[id]
}

// hadChannel reports whether a topic has a channel as far as is known here, or had
// it so lately.
func (c *catalog) hadChannel(id ident.TopicID, name string, lately time.Duration) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, has := c.mu.channels[id][name]
	return has || time.Since(c.mu.gone[goneKey{id, name}]) < lately
}

// deletion is the time that stands in a topic's key, by the clock of whoever deleted it,
// and when it was seen here; zero: before this broker listened.
type deletion struct {
	atMS int64
	seen time.Time
}

// deletedLately reports whether the deletion that stands in a topic's key was seen so
// lately, or was not heard of yet. It goes by the clock here: the time in the key may be
// years away. A topic that somebody asked for by name has none in its key.
func (c *catalog) deletedLately(name string, atMS int64, lately time.Duration) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.mu.deleted[name]
	return atMS != 0 && (d.atMS != atMS || time.Since(d.seen) < lately)
}

// liveNode is the present registration of a broker.
func (c *catalog) liveNode(n ident.Node) (registration, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, ok := c.mu.live[n]
	return r, ok
}

// lives lists the registrations, sorted by name.
func (c *catalog) lives() []registration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Values(c.mu.live), func(a, b registration) int { return cmp.Compare(a.Name, b.Name) })
}

// nodes lists all brokers ever registered, sorted by name.
func (c *catalog) nodes() []meta.NodeState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Values(c.mu.nodes), func(a, b meta.NodeState) int { return cmp.Compare(a.Name, b.Name) })
}

// controller is the elected controller, "" if there is none.
func (c *catalog) controllerNode() ident.Node {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.controller
}

// cluster is what holds for the whole cluster.
func (c *catalog) cluster() meta.ClusterState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.cluster
}

func comparePartitions(a, b ident.Partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
}
