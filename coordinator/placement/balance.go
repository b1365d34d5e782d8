package placement

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Balance spreads replicas that are placed already, and then their preferred
// leaders, evenly over the brokers: for each partition the replicas that it
// should have. It moves no more than that takes, nothing to a zone that has a
// replica while there are others, and nothing that lies on other brokers. What
// brokers say of their load does not count.
func Balance(brokers []Broker, partitions [][]ident.Node) [][]ident.Node {
	b := balance{zones: map[ident.Node]string{}, out: make([][]ident.Node, len(partitions))}
	for _, x := range brokers {
		b.nodes = append(b.nodes, x.Node)
		b.zones[x.Node] = x.Zone
	}
	slices.Sort(b.nodes)
	for i, replicas := range partitions {
		b.out[i] = slices.Clone(replicas)
	}
	for b.step(b.replicas(), b.move) {
	}
	for b.step(b.leads(), b.lead) {
	}
	return b.out
}

type balance struct {
	nodes []ident.Node // to balance over, sorted
	zones map[ident.Node]string
	out   [][]ident.Node // by partition, preferred leader first
}

// step takes one partition from a broker with a greater load to one with a load
// that is less by two or more, the greatest difference first.
func (b *balance) step(load map[ident.Node]int, give func(partition int, from, to ident.Node) bool) bool {
	order := slices.Clone(b.nodes)
	slices.SortStableFunc(order, func(x, y ident.Node) int { return cmp.Compare(load[x], load[y]) })
	for _, from := range slices.Backward(order) {
		for _, to := range order {
			if load[from]-load[to] < 2 {
				break
			}
			for p := range b.out {
				if give(p, from, to) {
					return true
				}
			}
		}
	}
	return false
}

func (b *balance) replicas() map[ident.Node]int {
	load := map[ident.Node]int{}
	for _, replicas := range b.out {
		for _, n := range replicas {
			load[n]++
		}
	}
	return load
}

func (b *balance) leads() map[ident.Node]int {
	load := map[ident.Node]int{}
	for _, replicas := range b.out {
		if len(replicas) > 0 {
			load[replicas[0]]++
		}
	}
	return load
}

// move puts a partition's replica on another broker, in the same place.
func (b *balance) move(p int, from, to ident.Node) bool {
	at := slices.Index(b.out[p], from)
	if at < 0 || slices.Contains(b.out[p], to) {
		return false
	}
	next := slices.Clone(b.out[p])
	next[at] = to
	if b.spread(next) < b.spread(b.out[p]) {
		return false
	}
	b.out[p] = next
	return true
}

// spread is the number of zones that a partition's replicas lie in.
func (b *balance) spread(replicas []ident.Node) int {
	zones := map[string]bool{}
	for _, n := range replicas {
		zones[b.zones[n]] = true
	}
	return len(zones)
}

// lead makes another of its replicas a partition's preferred leader.
func (b *balance) lead(p int, from, to ident.Node) bool {
	at := slices.Index(b.out[p], to)
	if at < 0 || b.out[p][0] != from {
		return false
	}
	b.out[p][0], b.out[p][at] = to, from
	return true
}
