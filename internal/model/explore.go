package model

import (
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/meta"
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
	states       table[meta.PartitionState]
	transactions table[replica.CAS]
	changes      table[change]
	histories    table[*history]

	drafts     []queue.Draft
	outcomes   []outcome
	steps      map[stepKey]uint32
	judgements map[judgeKey]judged
	holdings   map[judgeKey]bool

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

// Result of a search.
type Result struct {
	States      int
	Transitions int
	Depth       int // of the breadth-first search
	BrokerSteps int // Steps of the real machine that were computed
	Complete    bool
	Failure     string // "" = no violation
	Trace       []string
}

// Explore searches breadth first until everything was seen, a property fails or
// the bound on states is reached.
func Explore(c Config) Result {
	x := newExplorer(c)
	first, failure := x.first()
	r := Result{States: 1, Failure: failure}
	if failure != "" {
		return r
	}
	x.visited.add(first.hash())
	x.parents, x.via = append(x.parents, 0), append(x.via, action{})
	level, base := []world{first}, uint32(0)
	var buffer []action
	for len(level) > 0 {
		r.Depth++
		var deeper []world
		for i := range level {
			buffer = x.actions(&level[i], buffer[:0])
			for _, a := range buffer {
				to, failure, ok := x.next(level[i], a)
				r.Transitions++
				if failure != "" {
					r.Failure, r.States, r.BrokerSteps = failure, len(x.parents), len(x.outcomes)
					r.Trace = x.trace(first, base+uint32(i), a)
					return r
				}
				if !ok || !x.visited.add(to.hash()) {
					continue
				}
				x.parents, x.via = append(x.parents, base+uint32(i)), append(x.via, a)
				deeper = append(deeper, to)
			}
			if c.MaxStates > 0 && len(x.parents) >= c.MaxStates {
				r.States, r.BrokerSteps = len(x.parents), len(x.outcomes)
				return r
			}
		}
		base += uint32(len(level))
		level = deeper
	}
	r.States, r.BrokerSteps, r.Complete = len(x.parents), len(x.outcomes), true
	return r
}

func newExplorer(c Config) *Explorer {
	return &Explorer{
		c: c, nodes: newTable[*node](), envelopes: newTable[envelope](), etcds: newTable[*etcd](),
		states: newTable[meta.PartitionState](), transactions: newTable[replica.CAS](),
		changes: newTable[change](), histories: newTable[*history](),
		drafts: drafts(c.Puts), steps: map[stepKey]uint32{}, judgements: map[judgeKey]judged{},
		holdings: map[judgeKey]bool{}, visited: newSeen(),
	}
}

func (x *Explorer) keep(o outcome) uint32 {
	x.outcomes = append(x.outcomes, o)
	return uint32(len(x.outcomes) - 1)
}

// first is the cluster at rest under n1, everything told and synced.
func (x *Explorer) first() (world, string) {
	c := &x.c
	s := meta.PartitionState{V: 1, MinInSync: c.MinISR, Leader: names[0], LeaderIncarnation: incarnation(0, 1), Epoch: 1, Revision: 1}
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
			return w, "start: " + failure
		}
	}
	failure := x.settle(&w)
	w.left = c.budget()
	return w, failure
}

// settle lets everything happen that needs neither time nor a fault.
func (x *Explorer) settle(w *world) string {
	w.left[ticksLeft] = 1 // followers hear of the marker's commit
	for range 1000 {
		moved := false
		for _, a := range x.actions(w, nil) {
			if a.kind == doStart || a.kind == doTick || a.kind == doExpire {
				continue
			}
			to, failure, ok := x.next(*w, a)
			if !ok || failure != "" {
				return fmt.Sprintf("start: %v: %s", a, failure)
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
	return "start: the cluster does not come to rest"
}
