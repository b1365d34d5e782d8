package plan

// Place decides which brokers hold the replicas of a partition.
//
// It is pure: brokers and the present load in, names out. It reads no metadata,
// moves nothing, and never looks at which brokers are alive – its caller passes
// the candidates.
//
// Invariants
//
//  1. The same input gives the same answer, in any order of its lists.
//  2. No broker holds two replicas of one partition.
//  3. Replicas lie in as many zones as there are, before a zone gets a second.
//  4. The first replica is the preferred leader; these are dealt evenly.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// ErrTooFewBrokers means that there are fewer candidates than replicas wanted.
var ErrTooFewBrokers = errors.New("placement: fewer brokers than replicas")

// Broker is a candidate with the load it has already: numbers of replicas and
// of preferred leaderships.
type Broker struct {
	Node     ident.Node
	Zone     string
	Replicas int
	Leads    int
}

// Placement asks for places for so many partitions with so many replicas each.
type Placement struct{ Partitions, Replicas int }

// Place gives the replicas of each partition, preferred leader first. The error
// wraps ErrTooFewBrokers.
func Place(brokers []Broker, t Placement) ([][]ident.Node, error) {
	if len(brokers) < t.Replicas {
		return nil, fmt.Errorf("%w: %d of %d", ErrTooFewBrokers, len(brokers), t.Replicas)
	}
	load := slices.Clone(brokers)
	out := make([][]ident.Node, t.Partitions)
	for p := range out {
		out[p] = placeOne(load, t.Replicas)
	}
	return out, nil
}

// placeOne picks one partition's replicas and adds them to the load.
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

// best is the candidate in the least used zone, then with the fewest replicas,
// then with the fewest leaderships, then by name.
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
