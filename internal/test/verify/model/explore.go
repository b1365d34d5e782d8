package model

import (
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Explorer searches one configuration.
type Explorer struct {
	c Config

	nodes        table[*node]
	envelopes    table[envelope]
	etcds        table[*etcd]
	states       table[metadata.PartitionState]
	transactions table[replica.CAS]
	changes      table[change]
	histories    table[*history]

	drafts     []queue.Draft
	outcomes   []stepResult
	steps      map[stepKey]uint32
	judgements map[judgeKey]judged
	holdings   map[judgeKey]bool

	opening []string // what happened before the search
	reached Reached
	visited *seen
	parents []uint32 // of each state, by its number
	via     []action
}

// stepKey names one event in one state of one broker.
type stepKey struct {
	node uint32
	kind kind
	a, b uint32
}

// Reached counts broker steps in which something rare happened. A search that
// never gets there proves nothing about it.
type Reached struct {
	Elections, Rollbacks, RolledBack, InDoubt, Truncations uint64
	Shrinks, Grows, Swaps                                  uint64
	LateLandings                                           uint64 // transactions that landed after their answer was given up
}

// Add sums two counts.
func (r *Reached) Add(o Reached) {
	r.Elections += o.Elections
	r.Rollbacks += o.Rollbacks
	r.RolledBack += o.RolledBack
	r.InDoubt += o.InDoubt
	r.Truncations += o.Truncations
	r.Shrinks += o.Shrinks
	r.Grows += o.Grows
	r.Swaps += o.Swaps
	r.LateLandings += o.LateLandings
}

// stepped counts what one step of a broker added.
func (r *Reached) stepped(was, is replica.Counters) {
	r.Add(Reached{
		Elections: is.Elections - was.Elections, Rollbacks: is.Rollbacks - was.Rollbacks, RolledBack: is.RolledBack - was.RolledBack,
		InDoubt: is.InDoubt - was.InDoubt, Truncations: is.Truncations - was.Truncations,
		Shrinks: is.Shrinks - was.Shrinks, Grows: is.Grows - was.Grows, Swaps: is.Swaps - was.Swaps,
	})
}

// Result of a search.
type Result struct {
	States      int
	Transitions int
	Depth       int // of the breadth-first search
	BrokerSteps int // Steps of the real machine that were computed
	Complete    bool
	Failure     string // "" = no violation
	Trace       []string
	Reached     Reached
}

// Explore searches breadth first until everything was seen, a property fails or
// the bound on states is reached.
func Explore(c Config) Result {
	x := newExplorer(c)
	first, failure := x.first()
	r := Result{Failure: failure}
	if failure == "" {
		x.search(x.given(first), &r)
	} else {
		r.Trace = x.opening
	}
	r.States, r.BrokerSteps, r.Reached = max(len(x.parents), 1), len(x.outcomes), x.reached
	return r
}

func (x *Explorer) search(first world, r *Result) {
	x.visited.add(first.hash())
	x.parents, x.via = append(x.parents, 0), append(x.via, action{})
	var buffer []action
	base := uint32(0) // number of the level's first state
	for level := []world{first}; len(level) > 0; r.Depth++ {
		var deeper []world
		for i := range level {
			n := base + uint32(i)
			buffer = x.actions(&level[i], buffer[:0])
			for _, a := range buffer {
				to, failure, ok := x.next(level[i], a)
				r.Transitions++
				if failure != "" {
					r.Failure, r.Trace = failure, append(x.opening, x.trace(first, n, a)...)
					return
				}
				if ok && x.visited.add(to.hash()) {
					x.parents, x.via = append(x.parents, n), append(x.via, a)
					deeper = append(deeper, to)
				}
			}
			if x.c.MaxStates > 0 && len(x.parents) >= x.c.MaxStates {
				return
			}
		}
		base += uint32(len(level))
		level = deeper
	}
	r.Complete = true
}

// given executes the actions that the configuration puts before the search.
func (x *Explorer) given(w world) world {
	x.opening = nil
	for _, a := range x.c.given {
		if !slices.Contains(x.actions(&w, nil), a) {
			panic(fmt.Sprintf("model: %v is given for %s and cannot happen", a, x.c.Name))
		}
		x.opening = append(x.opening, x.describe(&w, a))
		to, failure, ok := x.next(w, a)
		if !ok || failure != "" {
			panic(fmt.Sprintf("model: %v is given for %s and fails: %s", a, x.c.Name, failure))
		}
		w = to
	}
	return w
}

func newExplorer(c Config) *Explorer {
	return &Explorer{
		c: c, nodes: newTable[*node](), envelopes: newTable[envelope](), etcds: newTable[*etcd](),
		states: newTable[metadata.PartitionState](), transactions: newTable[replica.CAS](),
		changes: newTable[change](), histories: newTable[*history](),
		drafts: drafts(&c), steps: map[stepKey]uint32{}, judgements: map[judgeKey]judged{},
		holdings: map[judgeKey]bool{}, visited: newSeen(),
	}
}

func (x *Explorer) keep(o stepResult) uint32 {
	x.outcomes = append(x.outcomes, o)
	return uint32(len(x.outcomes) - 1)
}

// first is the cluster at rest under n1: all changes are delivered, all writes synced.
func (x *Explorer) first() (world, string) {
	c := &x.c
	s := metadata.PartitionState{V: 1, MinInSync: c.MinISR, Leader: names[0], LeaderIncarnation: incarnation(0, 1), Epoch: 1, Revision: 1}
	e := &etcd{}
	var up [maxReplicas]bool
	for i := range c.Replicas {
		s.Replicas = append(s.Replicas, names[i])
		if up[i] = !c.Away || i < c.Replicas-1; up[i] {
			s.ISR = append(s.ISR, ident.Member{Node: names[i], Store: storeID(i, 1)})
			e.runs[i], e.live[i] = 1, incarnation(i, 1)
		}
	}
	e.state = x.stateID(s)
	w := world{left: [budgets]uint8{}}
	w.history = x.historyID(&history{})
	for i := range c.Replicas {
		n := &node{place: i, disk: disk{store: storeID(i, 1)}}
		w.nodes[i] = x.nodes.id(n.canonical(), n)
	}
	w.etcd = x.etcdID(e)
	for i := range c.Replicas {
		if !up[i] {
			continue
		}
		id := x.keep(x.started(x.nodes.at(w.nodes[i]), e.live[i], e.live, s, up))
		if failure, ok := x.absorb(&w, i, id); !ok {
			return w, failure
		}
	}
	failure := x.settle(&w)
	w.left = c.budget()
	return w, failure
}

// settle lets everything happen that needs neither time nor a fault.
func (x *Explorer) settle(w *world) string {
	w.left[ticksLeft] = 1 // followers receive the marker's commit
	for range 1000 {
		moved := false
		for _, a := range x.actions(w, nil) {
			if a.kind == doStart || a.kind == doTick || a.kind == doExpire {
				continue
			}
			x.opening = append(x.opening, x.describe(w, a))
			to, failure, ok := x.next(*w, a)
			if !ok || failure != "" {
				return failure
			}
			*w, moved = to, true
			break
		}
		if moved {
			continue
		}
		if w.left[ticksLeft] == 0 {
			return ""
		}
		to, failure, _ := x.next(*w, action{kind: doTick})
		if failure != "" {
			return failure
		}
		*w = to
	}
	return "the cluster does not come to rest"
}
