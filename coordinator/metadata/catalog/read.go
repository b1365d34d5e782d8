package catalog

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// read returns a part of the state, which f must not change.
func read[T any](c *Catalog, f func(s *state) T) T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return f(&c.mu.state)
}

// Topic finds a topic that is not deleted.
func (c *Catalog) Topic(name string) (metadata.TopicState, bool) {
	s, ok := c.Record(name)
	return s, ok && !s.Deleted
}

// Record returns a topic's record, even if the topic is deleted.
func (c *Catalog) Record(name string) (metadata.TopicState, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, ok := c.mu.topics[name]
	return s, ok
}

// Name is the name of a topic by its id, also of a deleted topic with a record, and of one in the trash.
func (c *Catalog) Name(id ident.TopicID) (string, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n, ok := c.mu.names[id]; ok {
		return n, true
	}
	t, ok := c.mu.trash[id]
	return t.Name, ok
}

// Trashed finds a topic in the trash.
func (c *Catalog) Trashed(id ident.TopicID) (metadata.TrashState, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.mu.trash[id]
	return t, ok
}

// Trash lists the topics in the trash, oldest deletion first.
func (c *Catalog) Trash() []metadata.TrashState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Values(c.mu.trash), func(a, b metadata.TrashState) int { return cmp.Compare(a.Created, b.Created) })
}

// ClockMS is the last written time of the cluster's clock.
func (c *Catalog) ClockMS() int64 { return read(c, func(s *state) int64 { return s.clockMS }) }

// Hosted finds a topic that has replicas, by id: one that is not deleted, or is in the trash.
func (c *Catalog) Hosted(id ident.TopicID) (metadata.TopicState, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t, ok := c.mu.trash[id]; ok {
		return t.Topic, true
	}
	name, ok := c.mu.names[id]
	t := c.mu.topics[name]
	return t, ok && t.ID == id && !t.Deleted
}

// Topics lists the names of the topics that are not deleted, sorted.
func (c *Catalog) Topics() []string {
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

// Records lists the names of all topics, deleted ones included, sorted.
func (c *Catalog) Records() []string {
	return read(c, func(s *state) []string { return slices.Sorted(maps.Keys(s.topics)) })
}

// Partition is the state in a partition's key.
func (c *Catalog) Partition(p ident.Partition) (metadata.PartitionState, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, ok := c.mu.partitions[p]
	return s, ok
}

// Partitions lists all partition ids, sorted.
func (c *Catalog) Partitions() []ident.Partition {
	return read(c, func(s *state) []ident.Partition {
		return slices.SortedFunc(maps.Keys(s.partitions), ident.Partition.Compare)
	})
}

// Channels is the map of a topic's channels by name. It is shared: the caller must not change it.
func (c *Catalog) Channels(id ident.TopicID) map[string]metadata.ChannelState {
	return read(c, func(s *state) map[string]metadata.ChannelState { return s.channels[id] })
}

// Usage is what quotas count.
type Usage struct{ Topics, Partitions, Channels int }

// Usage counts the topics and partitions of the cluster, and what a user created. It omits the topics and channels that the
// caller counts itself (pending; channel "" means the topic). The partitions of topics in the trash count: they have replicas.
// Its time grows with the number of topics and, for a user, of channels.
func (c *Catalog) Usage(user string, pending func(topic, channel string) bool) (all, own Usage) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, t := range c.mu.trash {
		all.Partitions += t.Topic.Span()
		if user != "" && t.Topic.Owner == user {
			own.Partitions += t.Topic.Span()
		}
	}
	for name, t := range c.mu.topics {
		if t.Deleted {
			continue
		}
		if user != "" {
			for channel, s := range c.mu.channels[t.ID] {
				if s.Owner == user && !pending(name, channel) {
					own.Channels++
				}
			}
		}
		if pending(name, "") {
			continue
		}
		all.Topics, all.Partitions = all.Topics+1, all.Partitions+t.Span()
		if user != "" && t.Owner == user {
			own.Topics, own.Partitions = own.Topics+1, own.Partitions+t.Span()
		}
	}
	return all, own
}

// HadChannel reports whether a topic has a channel, or lost it less than lately ago.
func (c *Catalog) HadChannel(id ident.TopicID, name string, lately time.Duration) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, has := c.mu.channels[id][name]
	return has || time.Since(c.mu.gone[goneChannel{id, name}]) < lately
}

// DeletedLately reports whether this broker saw the deletion in a topic's key less than lately ago, or has not seen it
// yet. It uses this broker's clock, because the time in the key may be wrong by years. atMS is 0 in the key of a topic
// that was created explicitly. Such a topic does not count as deleted lately.
func (c *Catalog) DeletedLately(name string, atMS int64, lately time.Duration) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.mu.deleted[name]
	return atMS != 0 && (d.atMS != atMS || time.Since(d.seen) < lately)
}

// LiveNode is the current registration of a broker.
func (c *Catalog) LiveNode(n ident.Node) (Registration, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, ok := c.mu.live[n]
	return r, ok
}

// LiveNodes lists the registrations, sorted by name.
func (c *Catalog) LiveNodes() []Registration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Values(c.mu.live), func(a, b Registration) int { return cmp.Compare(a.Name, b.Name) })
}

// Nodes lists all brokers that ever registered and were not removed, sorted by name.
func (c *Catalog) Nodes() []metadata.NodeState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Values(c.mu.nodes), func(a, b metadata.NodeState) int { return cmp.Compare(a.Name, b.Name) })
}

// Controller is the elected controller, "" if there is none.
func (c *Catalog) Controller() ident.Node {
	return read(c, func(s *state) ident.Node { return s.controller })
}

// Cluster is the state of the config key.
func (c *Catalog) Cluster() metadata.ClusterState {
	return read(c, func(s *state) metadata.ClusterState { return s.cluster })
}

// Census counts the brokers and partitions of the cluster.
type Census struct {
	Brokers, Registered int
	Partitions          int
	Leaderless          int // partitions whose leader's registration has ended
	UnderReplicated     int // partitions with a replica that is not in the in-sync set
}

// Census counts at one moment.
func (c *Catalog) Census() Census {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := Census{Brokers: len(c.mu.nodes), Registered: len(c.mu.live), Partitions: len(c.mu.partitions)}
	for _, s := range c.mu.partitions {
		if r, live := c.mu.live[s.Leader]; !live || r.Incarnation != s.LeaderIncarnation {
			n.Leaderless++
		}
		if s.UnderReplicated() {
			n.UnderReplicated++
		}
	}
	return n
}

// Policy is the policy in a channel's key, for its queue.
func (c *Catalog) Policy(t ident.TopicID, channel string) nsqd.Policy {
	s := c.Channels(t)[channel]
	p := s.Policy
	return nsqd.Policy{
		MaxAttempts: p.MaxAttempts,
		DeadLetters: p.DeadLetterTopic != "",
		Backoff:     p.Backoff,
		Filter:      p.Filter,
		Revision:    s.Revision,
		Channel:     s.ID,
	}
}
