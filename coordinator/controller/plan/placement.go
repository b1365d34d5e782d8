package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// errTooFewBrokers means that there are fewer candidates than replicas.
var errTooFewBrokers = errors.New("plan: fewer brokers than replicas")

// Broker is a candidate with its current load: numbers of replicas and of preferred leaderships.
type Broker struct {
	Node     ident.Node
	Zone     string
	Replicas int
	Leads    int
}

// Placement is a number of partitions with a number of replicas each.
type Placement struct{ Partitions, Replicas int }

// Place chooses the brokers of each partition's replicas, preferred leader first; its caller chooses the candidates. The error
// wraps errTooFewBrokers.
//
//  1. The same input gives the same answer, in any order of its lists.
//  2. No broker has two replicas of one partition.
//  3. A zone gets a second replica only when all others have one.
//  4. The preferred leaderships are distributed evenly.
func Place(brokers []Broker, t Placement) ([][]ident.Node, error) {
	if len(brokers) < t.Replicas {
		return nil, fmt.Errorf("%w: %d of %d", errTooFewBrokers, len(brokers), t.Replicas)
	}
	load := slices.Clone(brokers)
	out := make([][]ident.Node, t.Partitions)
	for p := range out {
		out[p] = placeOne(load, t.Replicas)
	}
	return out, nil
}

// placeOne chooses one partition's replicas and adds them to the load.
func placeOne(load []Broker, replicas int) []ident.Node {
	chosen := make([]int, 0, replicas)
	for len(chosen) < replicas {
		chosen = append(chosen, best(load, chosen))
	}
	lead := slices.MinFunc(chosen, func(a, b int) int {
		return cmp.Or(cmp.Compare(load[a].Leads, load[b].Leads), cmp.Compare(load[a].Node, load[b].Node))
	})
	load[lead].Leads++
	nodes := []ident.Node{load[lead].Node}
	for _, i := range chosen {
		load[i].Replicas++
		if i != lead {
			nodes = append(nodes, load[i].Node)
		}
	}
	return nodes
}

// best is the candidate in the least used zone, then with the fewest replicas, then leaderships, then by name.
func best(load []Broker, chosen []int) int {
	zones := map[string]int{}
	for _, i := range chosen {
		zones[load[i].Zone]++
	}
	at := -1
	for i, b := range load {
		if slices.Contains(chosen, i) {
			continue
		}
		if at < 0 || compare(b, load[at], zones) < 0 {
			at = i
		}
	}
	return at
}

func compare(a, b Broker, zones map[string]int) int {
	return cmp.Or(
		cmp.Compare(zones[a.Zone], zones[b.Zone]),
		cmp.Compare(a.Replicas, b.Replicas),
		cmp.Compare(a.Leads, b.Leads),
		cmp.Compare(a.Node, b.Node))
}

// Balance distributes existing replicas, and then their preferred leaders, evenly over the brokers, and returns the
// replicas of each partition. It moves as few replicas as possible. It moves none to a zone that has a replica while
// other zones have none, and none from brokers that are not listed. It ignores Broker's load.
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

// spreadOut moves partitions from brokers with a greater load to brokers whose load is lower by at least two, one
// partition at a time and the greatest difference first. of returns the brokers that a partition loads.
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
		s.turn++ // pairs that were stuck in this step have not seen the change
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
	stuck   map[pair]int       // the step at which nothing could be moved
	touched map[ident.Node]int // the step at which one of its partitions changed last
	changed []int              // the step at which a partition changed last
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

// try moves the first partition that can be moved, among those that have changed since the last attempt failed.
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

// lead makes another replica the partition's preferred leader.
func (b *balance) lead(p int, from, to ident.Node) bool {
	at := slices.Index(b.out[p], to)
	if at < 0 || b.out[p][0] != from {
		return false
	}
	b.out[p][0], b.out[p][at] = to, from
	return true
}
