package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// fault is a nemesis with its time.
type fault struct {
	nemesis
	after, lasts time.Duration // begins so long after the one before
}

// pair is two faults at the same time.
type pair [2]fault

// String prints the pair.
func (p pair) String() string {
	return fmt.Sprintf("{%s %s + %s %s}", p[0].name, p[0].lasts.Round(100*time.Millisecond), p[1].name, p[1].lasts.Round(100*time.Millisecond))
}

// Plan is what a seed stands for: the brokers of a round, and its faults.
type Plan struct {
	seed       uint64
	random     *rand.Rand
	brokers    int
	partitions int
	external   bool // etcd
	replicated bool // the durability
	short      bool // all pairs one after the other, however long that takes; the load is measured once
	pairs      []pair
}

// NewPlan draws a plan: of three brokers, or, in a large series, of five in a third of the rounds. LOCKSTEP_NEMESIS
// names its first fault.
func NewPlan(seed uint64, large bool) *Plan {
	p := &Plan{seed: seed, random: rand.New(rand.NewPCG(seed, 0)), brokers: 3, partitions: 1}
	all := slices.Concat(nemeses, grayHere())
	if p.random.IntN(3) == 0 && large {
		p.brokers = 5
		all = append(all, replicaMoves)
	}
	if p.random.IntN(2) == 0 {
		p.partitions = 8
	}
	p.external = p.random.IntN(3) == 0
	p.replicated = p.random.IntN(3) == 0
	p.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if wanted := os.Getenv("LOCKSTEP_NEMESIS"); wanted != "" {
		n := named(all, wanted)
		all[0], all[n] = all[n], all[0]
	}
	for two := range slices.Chunk(all, 2) {
		if len(two) == 2 {
			p.pairs = append(p.pairs, pair{p.fault(two[0]), p.fault(two[1])})
		}
	}
	return p
}

func (p *Plan) fault(n nemesis) fault {
	return fault{
		nemesis: n, after: time.Duration(p.random.Int64N(int64(2 * time.Second))),
		lasts: n.lasts[0] + time.Duration(p.random.Int64N(int64(n.lasts[1]-n.lasts[0]+1))),
	}
}

// named finds a nemesis. An unknown name is an error of the environment variable.
func named(all []nemesis, name string) int {
	n := slices.IndexFunc(all, func(x nemesis) bool { return x.name == name })
	if n < 0 {
		panic("no nemesis " + name)
	}
	return n
}

// String prints the plan.
func (p *Plan) String() string {
	etcd := "embedded"
	if p.external {
		etcd = "external"
	}
	return fmt.Sprintf("seed %d %d brokers %d partitions %s etcd %s", p.seed, p.brokers, p.partitions, etcd, p.durability())
}

func (p *Plan) durability() string {
	if p.replicated {
		return "replicated"
	}
	return "sync"
}
