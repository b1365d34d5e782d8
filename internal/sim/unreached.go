package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
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
		if s := n.keys[p]; h != nil && s.Leader == n.name && lacks(s, silent) {
			return silent
		}
	}
	return nil
}

// lacks reports whether an in-sync set is below its minimum without some brokers.
func lacks(s meta.PartitionState, without []ident.Node) bool {
	left := 0
	for _, m := range s.ISR {
		if !slices.Contains(without, m.Node) {
			left++
		}
	}
	return left < s.MinInSync
}

// cutOff reports whether a partition's living leader says that it lacks its minimum,
// while this node reaches one without it.
func (n *node) cutOff(s meta.PartitionState, i int) bool {
	r := n.live[i]
	if n.w.nodes[i].name != s.Leader || i == n.index || r.incarnation != s.LeaderIncarnation || !lacks(s, r.unreached) {
		return false
	}
	reached := 0
	for _, m := range s.ISR {
		j := n.w.nodeIndex(m.Node)
		if m.Node != s.Leader && (j == n.index || n.peers[j].up) {
			reached++
		}
	}
	return len(r.unreached) > 0 && reached >= s.MinInSync
}

// judgeLeaders looks again at the leaders that say they are cut off.
func (n *node) judgeLeaders() {
	for i := range n.live {
		if len(n.live[i].unreached) > 0 {
			n.tellLive(i)
		}
	}
}
