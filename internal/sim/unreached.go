package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// tellUnreached tells the others, through the metadata, which brokers this one cannot
// reach, while a partition led here lacks its minimum because of them.
func (n *node) tellUnreached() {
	w, e := n.w, &n.w.etcd
	if w.now < n.missedAt {
		return
	}
	n.missedAt = w.now + w.times.isr/4
	missed, inc := n.missed(), n.incarnation
	told := n.live[n.index]
	if n.stopping || inc == 0 || told.incarnation != inc || slices.Equal(missed, told.unreached) {
		return
	}
	e.request(n, true, func() {
		if r := e.live[n.index]; r.incarnation == inc {
			r.unreached, r.handingOver = missed, false
			e.setLive(n.index, r, false)
		}
	}, func() {}, func() {})
}

func (n *node) missed() (silent []ident.Node) {
	for i, p := range n.peers {
		if i != n.index && !p.up && n.w.now-p.since >= n.w.times.isr {
			silent = append(silent, n.w.nodes[i].name)
		}
	}
	for p, h := range n.hosts {
		if s := n.keys[p]; h != nil && s.Leader == n.name && replica.Lacks(s, silent) {
			return silent
		}
	}
	return nil
}

// cutOff reports whether a partition's living leader is another node that is to be
// replaced although it lives.
func (n *node) cutOff(s meta.PartitionState, i int) bool {
	r, name := n.live[i], n.w.nodes[i].name
	return name == s.Leader && i != n.index && r.incarnation == s.LeaderIncarnation && replica.CutOff(s, r.unreached, n.reaches)
}

func (n *node) reaches(name ident.Node) bool {
	i := n.w.nodeIndex(name)
	return i == n.index || n.peers[i].up
}

// judgeLeaders looks again at the leaders that say they are cut off.
func (n *node) judgeLeaders() {
	for i := range n.live {
		if len(n.live[i].unreached) > 0 {
			n.tellLive(i)
		}
	}
}
