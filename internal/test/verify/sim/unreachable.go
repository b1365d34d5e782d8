package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// publishUnreachable notifies the others, through the metadata, which brokers this one
// cannot reach, while a partition led here lacks its minimum because of them.
func (n *node) publishUnreachable() {
	w, e := n.w, &n.w.etcd
	if w.now < n.missedAt {
		return
	}
	n.missedAt = w.now + w.times.isr/4
	missed, inc := n.missed(), n.incarnation
	published := n.live[n.index]
	if n.stopping || inc == 0 || published.incarnation != inc || slices.Equal(missed, published.unreachable) {
		return
	}
	e.request(n, true, func() {
		if r := e.live[n.index]; r.incarnation == inc {
			r.unreachable, r.handingOver = missed, false
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
		if s := n.keys[p]; h != nil && s.Leader == n.name && replica.BelowMinimum(s, silent) {
			return silent
		}
	}
	return nil
}

// partitioned reports whether a partition's living leader is another node that is to be
// replaced although it lives.
func (n *node) partitioned(s metadata.PartitionState, i int) bool {
	r, name := n.live[i], n.w.nodes[i].name
	return name == s.Leader && i != n.index && r.incarnation == s.LeaderIncarnation && replica.Partitioned(s, r.unreachable, n.reaches)
}

func (n *node) reaches(name ident.Node) bool {
	i := n.w.nodeIndex(name)
	return i == n.index || n.peers[i].up
}

// judgeLeaders judges again the leaders that publish unreachable brokers.
func (n *node) judgeLeaders() {
	for i := range n.live {
		if len(n.live[i].unreachable) > 0 {
			n.notifyLive(i)
		}
	}
}
