package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Config is one run.
type Config struct {
	Seed  uint64
	Check bool   // the machine's own assertions and alarms count too
	Trace bool   // keep a readable trace
	Skip  []bool // faults to leave out, by their number in the plan

	tamper func(*outcome.Completion) // falsifies answers of the machines: the tests of the checks
}

// panicked is the check that fails if the code under test panics.
const panicked = "panic"

// Result is what came of it.
type Result struct {
	Seed     uint64
	Profile  string
	Hash     uint64 // of everything that happened
	Steps    int
	Faults   int
	Puts     int
	VirtualS float64
	Coverage Coverage
	Failure  *Failure
	Plan     []string // the faults that were not left out
}

// world is one run. Its deadlines are the only source of events.
type world struct {
	config    Config
	scenario  scenario
	times     times
	pace      micros
	now       micros
	deadlines deadlineHeap
	rand      *rand.Rand
	ids       *rand.Rand
	spare     *rand.Rand // of what more adds

	nodes     []*node
	net       network
	etcd      etcd
	ledgers   []ledger
	puts      []*put
	byRequest map[ident.RequestID]*put
	producers []*producer
	consumers []*consumer
	replaced  []ident.StoreID // stores that took a lost one's place
	rf        int             // wanted now
	minISR    int

	check   checker
	lively  *lively
	cover   Coverage
	trace   trace
	steps   int
	faults  int
	healed  bool
	failure *Failure
}

// errFailed unwinds a run at its first failure.
var errFailed = errors.New("sim: failed")

// Run plays one seed from beginning to end.
func Run(c Config) (r Result) {
	w := newWorld(c)
	defer func() {
		if p := recover(); p != nil && p != any(errFailed) {
			w.failure = w.newFailure(panicked, -1, fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
		r = w.result()
	}()
	w.begin()
	w.disturbAndHeal()
	w.finish()
	return r
}

func newWorld(c Config) *world {
	s := draw(c.Seed)
	w := &world{
		config: c, scenario: s, times: s.times, pace: s.pace,
		rand: stream(c.Seed, 2), ids: stream(c.Seed, 3), spare: stream(c.Seed, 6),
		byRequest: make(map[ident.RequestID]*put),
		ledgers:   make([]ledger, s.partitions), rf: s.rf, minISR: s.minISR,
	}
	w.check.w = w
	w.trace.hash, w.trace.on = fnvOffset, c.Trace
	w.net = network{w: w, links: make([][]link, s.nodes)}
	w.etcd = etcd{
		w: w, parts: make([]metadata.PartitionState, s.partitions), proposed: make([][]metadata.PartitionState, s.partitions), live: make([]registration, s.nodes),
		cut: make([]int, s.nodes), lag: make([]micros, s.nodes), gap: make([]bool, s.nodes),
	}
	for i := range s.nodes {
		w.net.links[i] = make([]link, s.nodes)
		w.addNode(i)
	}
	for p := range w.ledgers {
		w.ledgers[p] = ledger{placed: make(map[ident.RequestID]ident.Sequence), consumed: newConsumed()}
	}
	w.lively = newLively(w)
	return w
}

func (w *world) addNode(i int) {
	n := &node{
		w: w, index: i, name: ident.Node(fmt.Sprintf("n%d", i+1)), clock: clock{rate: 1},
		hosts: make([]*host, w.scenario.partitions), keys: make([]metadata.PartitionState, w.scenario.partitions),
		live:  make([]registration, w.scenario.nodes),
		heard: make([]micros, w.scenario.nodes), peers: make([]peerView, w.scenario.nodes),
	}
	n.disk = &disk{n: n, stores: make([]*store, w.scenario.partitions)}
	w.nodes = append(w.nodes, n)
}

// runUntil plays the deadlines until the time is reached or done holds. It reports
// whether done held.
func (w *world) runUntil(limit micros, done func() bool) bool {
	check := w.now
	for {
		if done != nil && w.now >= check {
			if done() {
				return true
			}
			check = w.now + 5*millisecond
		}
		if len(w.deadlines.heap) == 0 || w.deadlines.heap[0].at > limit {
			w.now = limit
			return done != nil && done()
		}
		a, _ := w.deadlines.pop()
		w.now = a.at
		a.do()
	}
}

func (w *world) at(t micros, do func())    { w.deadlines.push(max(t, w.now), do) }
func (w *world) after(d micros, do func()) { w.at(w.now+d, do) }

func (w *world) nodeIndex(name ident.Node) int {
	for i, n := range w.nodes {
		if n.name == name {
			return i
		}
	}
	panic(fmt.Sprintf("sim: no node %q", name))
}

// hostOf is the machine of a partition on a node, nil if there is none.
func (w *world) hostOf(part int, name ident.Node) *host {
	return w.nodes[w.nodeIndex(name)].hosts[part]
}

func (w *world) newStoreID() ident.StoreID { return ident.StoreID(w.ids.Uint64() | 1) }

func (w *world) note(node string, part int, format string, args ...any) {
	if w.trace.on {
		w.trace.add(w.now, node, part, format, args...)
	}
}

// failf records the first failure and ends the run.
func (w *world) failf(check string, part int, format string, args ...any) {
	w.failure = w.newFailure(check, part, fmt.Sprintf(format, args...))
	panic(errFailed)
}

func (w *world) newFailure(check string, part int, text string) *Failure {
	f := &Failure{
		Check: check, Part: part, Text: text, Step: w.steps,
		At: fmt.Sprintf("%.3f ms", float64(w.now)/1000),
	}
	if w.trace.on {
		f.Trace = w.trace.tail(part, tailLines)
	}
	return f
}

func (w *world) result() Result {
	r := Result{
		Seed: w.config.Seed, Profile: w.scenario.profile.String(), Hash: w.trace.hash, Steps: w.steps,
		Faults: w.faults, Puts: len(w.puts), VirtualS: float64(w.now) / float64(second),
		Coverage: w.cover, Failure: w.failure,
	}
	if len(w.scenario.ills) > 0 {
		r.Profile = grayProfile
	}
	for i, f := range w.scenario.faults {
		if i >= len(w.config.Skip) || !w.config.Skip[i] {
			r.Plan = append(r.Plan, f.String())
		}
	}
	return r
}

// expected: alarms that a fault explains.
func (w *world) expected(err error) bool {
	var damage *queue.Damage
	return errors.As(err, &damage) || errors.Is(err, errDisk) || errors.Is(err, errFull) || errors.Is(err, errTrimmed)
}
