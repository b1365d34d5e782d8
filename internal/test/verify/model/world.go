package model

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/replica"
)

// world is one state of the whole cluster. It holds numbers only, so that
// millions fit and equal ones are equal.
type world struct {
	nodes   [maxReplicas]uint32
	links   [maxReplicas * (maxReplicas - 1)][maxDepth]uint32 // envelopes, oldest first
	etcd    uint32
	history uint32
	left    [budgets]uint8
}

func link(from, to int) int {
	if to > from {
		to--
	}
	return from*(maxReplicas-1) + to
}

func (w *world) hash() [2]uint64 {
	m := newMixer()
	m.word(uint64(w.nodes[0])<<32 | uint64(w.nodes[1]))
	m.word(uint64(w.nodes[2])<<32 | uint64(w.etcd))
	m.word(uint64(w.history))
	for i := range w.links {
		l := &w.links[i]
		m.word(uint64(l[0])<<32 | uint64(l[1]))
		m.word(uint64(l[2])<<32 | uint64(l[3]))
	}
	var word uint64
	for i, b := range w.left {
		word = word<<8 | uint64(b)
		if i%8 == 7 {
			m.word(word)
			word = 0
		}
	}
	m.word(word)
	return m.sum()
}

// post puts an envelope on a link. A full link loses it, and so does one whose
// newest message says the same.
func (w *world) post(l int, e uint32, depth int) {
	q := &w.links[l]
	for i := range depth {
		if q[i] == 0 {
			q[i] = e
			return
		}
		if q[i] == e && (i+1 == depth || q[i+1] == 0) {
			return
		}
	}
}

// drop removes the i-th message of a link.
func (w *world) drop(l, i int) {
	q := &w.links[l]
	copy(q[i:], q[i+1:])
	q[maxDepth-1] = 0
}

// envelope numbers a message of a broker.
func (x *Explorer) envelope(n *node, m replica.Message) uint32 {
	m.Epochs = slices.Clone(m.Epochs)
	m.Batches = slices.Clone(m.Batches)
	var c canon
	bits := uint64(0)
	for i, b := range []bool{m.Reject, m.Restart, m.NeedSnapshot} {
		if b {
			bits |= 1 << i
		}
	}
	c.num(uint64(n.place), uint64(n.inc), uint64(n.disk.store), uint64(m.Kind), uint64(m.Epoch), uint64(m.To), uint64(m.Store), bits)
	c.num(uint64(m.Prev.Offset), uint64(m.PrevCRC), uint64(m.Committed.Offset), uint64(m.Durable.Offset), m.StateVersion, uint64(m.LastEpoch))
	c.num(uint64(len(m.Epochs)))
	for _, e := range m.Epochs {
		c.num(uint64(e.Epoch), uint64(e.Start.Offset), uint64(e.End.Offset))
	}
	c.confirm(m.State)
	c.batches(m.Batches)
	from := replica.Peer{Node: names[n.place], Incarnation: n.inc, Store: n.disk.store}
	return x.envelopes.id(string(c), envelope{from, m})
}
