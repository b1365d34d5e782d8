package plan

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Balance distributes existing replicas, and then their preferred leaders, evenly over the brokers, and returns the replicas
// of each partition. It moves as few as possible, nothing to a zone that has a replica while there are others, and nothing
// from brokers that are not listed. It ignores Broker's load.
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
	b.spreadOut(func(p int) []ident.Node { return b.out[p] }, b.move)
	b.spreadOut(func(p int) []ident.Node { return b.out[p][:min(1, len(b.out[p]))] }, b.lead)
	return b.out
}

type balance struct {
	nodes []ident.Node // to balance over, sorted
	zones map[ident.Node]string
	out   [][]ident.Node // by partition, preferred leader first
}

// spreadOut moves partitions from brokers with a greater load to ones with a load that is less by two or more, one at a time
// and the greatest difference first. of returns the brokers that a partition loads.
func (b *balance) spreadOut(of func(partition int) []ident.Node, give func(partition int, from, to ident.Node) bool) {
	s := spreading{load: map[ident.Node][]int{}, give: give, stuck: map[pair]int{}, touched: map[ident.Node]int{}, changed: make([]int, len(b.out))}
	for p := range b.out {
		for _, n := range of(p) {
			s.load[n] = append(s.load[n], p)
		}
	}
	for {
		p, ok := s.step(slices.Clone(b.nodes))
		if !ok {
			return
		}
		s.turn++ // what was stuck in this step has not seen the change
		s.changed[p] = s.turn
		for _, n := range b.out[p] {
			s.touched[n] = s.turn
		}
	}
}

// spreading remembers the pairs of brokers without a possible move. With a hundred brokers most pairs have none, and a search
// of all partitions for each pair at each step would take hours.
type spreading struct {
	load    map[ident.Node][]int // partitions, ascending
	give    func(partition int, from, to ident.Node) bool
	turn    int                // number of steps
	stuck   map[pair]int       // the turn at which nothing could be moved
	touched map[ident.Node]int // the turn at which one of its partitions changed last
	changed []int              // the turn at which a partition changed last
}

type pair struct{ from, to ident.Node }

// step moves one partition.
func (s *spreading) step(order []ident.Node) (partition int, ok bool) {
	slices.SortStableFunc(order, func(x, y ident.Node) int { return cmp.Compare(len(s.load[x]), len(s.load[y])) })
	for _, from := range slices.Backward(order) {
		for _, to := range order {
			if len(s.load[from])-len(s.load[to]) < 2 {
				break
			}
			if p, ok := s.try(pair{from, to}); ok {
				return p, true
			}
		}
	}
	return 0, false
}

// try moves the first partition that can be moved, among those that have changed since it found none.
func (s *spreading) try(x pair) (partition int, ok bool) {
	since, before := s.stuck[x]
	if before && s.touched[x.from] <= since {
		return 0, false
	}
	for at, p := range s.load[x.from] {
		if before && s.changed[p] <= since || !s.give(p, x.from, x.to) {
			continue
		}
		s.load[x.from] = slices.Delete(s.load[x.from], at, at+1)
		at, _ = slices.BinarySearch(s.load[x.to], p)
		s.load[x.to] = slices.Insert(s.load[x.to], at, p)
		return p, true
	}
	s.stuck[x] = s.turn
	return 0, false
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

// spread is the number of zones of a partition's replicas.
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
