package catalog

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
