package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// ErrTooFewBrokers means that there are fewer candidates than replicas.
var ErrTooFewBrokers = errors.New("placement: fewer brokers than replicas")

// Broker is a candidate with its present load: numbers of replicas and of preferred leaderships.
type Broker struct {
	Node     ident.Node
	Zone     string
	Replicas int
	Leads    int
}

// Placement is a number of partitions with a number of replicas each.
type Placement struct{ Partitions, Replicas int }

// Place chooses the brokers of each partition's replicas, preferred leader first; its caller chooses the candidates. The error
// wraps ErrTooFewBrokers.
//
//  1. The same input gives the same answer, in any order of its lists.
//  2. No broker has two replicas of one partition.
//  3. A zone gets a second replica only when all others have one.
//  4. The preferred leaderships are distributed evenly.
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
