package replica

import "slices"

// Clone copies the machine, for tools that try several continuations of one state. The caller gives the copy its own
// index and register. Batches are immutable and shared; drafts that wait without an offset are copied.
func (m *Machine) Clone(ix Index, reg Register) *Machine {
	c := *m
	c.index, c.register, c.out = ix, reg, nil
	c.log.epochs = slices.Clone(m.log.epochs)
	c.log.pending = slices.Clone(m.log.pending)
	c.log.tail.batches, c.log.tail.head = slices.Clone(m.log.tail.all()), 0
	c.recent = m.recent.Clone()
	c.dedupe = m.dedupe.Clone()
	c.nodes = slices.Clone(m.nodes)
	if m.lead != nil {
		c.lead = m.lead.clone()
	}
	if m.campaign != nil {
		k := *m.campaign
		k.asked, k.replies = slices.Clone(k.asked), slices.Clone(k.replies)
		c.campaign = &k
	}
	if m.cas != nil {
		p := *m.cas
		c.cas = &p
	}
	return &c
}

func (l *leadership) clone() *leadership {
	c := *l
	c.followers = slices.Clone(l.followers)
	c.pending = slices.Clone(l.pending)
	c.held = slices.Clone(l.held)
	for i := range c.held {
		c.held[i].put.Draft = c.held[i].put.Draft.Clone()
	}
	c.unresolved = slices.Clone(l.unresolved)
	c.rolledBack = slices.Clone(l.rolledBack)
	c.changes = slices.Clone(l.changes)
	return &c
}
