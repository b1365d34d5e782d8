package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Config is one run.
type Config struct {
	Seed  uint64
	Break string // a rule of the machine to switch off
	Check bool   // the machine's own assertions and alarms count too
	Trace bool   // keep a readable trace
	Skip  []bool // faults to leave out, by their number in the plan
}

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

// world is one run: the only thing in it that happens by itself is the agenda.
type world struct {
	config   Config
	scenario scenario
	times    times
	pace     micros
	now      micros
	agenda   agenda
	rand     *rand.Rand
	ids      *rand.Rand

	nodes     []*node
	net       network
	etcd      etcd
	ledgers   []ledger
	puts      []*put
	byRequest map[ident.RequestID]*put
	producers []*producer
	consumers []*consumer
	replaced  []ident.StoreID // stores that took a lost one's place

	check   checker
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
			w.failure = w.newFailure("panic", -1, fmt.Sprintf("%v\n%s", p, debug.Stack()))
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
		rand: stream(c.Seed, 2), ids: stream(c.Seed, 3),
		byRequest: make(map[ident.RequestID]*put),
		ledgers:   make([]ledger, s.partitions),
	}
	w.check.w = w
	w.trace.hash, w.trace.on = fnvOffset, c.Trace
	w.net = network{w: w, links: make([][]link, s.nodes)}
	w.etcd = etcd{
		w: w, parts: make([]meta.PartitionState, s.partitions), live: make([]registration, s.nodes),
		cut: make([]int, s.nodes), lag: make([]micros, s.nodes), gap: make([]bool, s.nodes),
	}
	for i := range s.nodes {
		w.net.links[i] = make([]link, s.nodes)
		w.addNode(i)
	}
	for p := range w.ledgers {
		w.ledgers[p] = ledger{placed: make(map[ident.RequestID]ident.Sequence), consumed: newConsumed()}
	}
	return w
}

func (w *world) addNode(i int) {
	n := &node{
		w: w, index: i, name: ident.Node(fmt.Sprintf("n%d", i+1)), clock: clock{rate: 1},
		hosts: make([]*host, w.scenario.partitions), keys: make([]meta.PartitionState, w.scenario.partitions),
		live:  make([]registration, w.scenario.nodes),
		heard: make([]micros, w.scenario.nodes), peers: make([]peerView, w.scenario.nodes),
	}
	n.disk = &disk{n: n, stores: make([]*store, w.scenario.partitions)}
	w.nodes = append(w.nodes, n)
}

// begin starts all brokers and makes the partitions, as creating a topic does:
// stores first, then the keys with leaders that are registered.
func (w *world) begin() {
	for _, n := range w.nodes {
		n.start()
	}
	w.runUntil(50*millisecond, func() bool { return w.allRegistered() })
	for p := range w.ledgers {
		w.create(p)
	}
	w.startClients()
	w.expireLeases()
	w.control()
}

// create makes a partition: first its stores, a moment later its key. In between
// the brokers' watches may start over.
func (w *world) create(p int) {
	s := meta.PartitionState{V: 1, Epoch: 1, MinInSync: w.scenario.minISR, Durability: meta.DurabilitySync}
	for i := range w.scenario.rf {
		n := w.nodes[(p+i)%len(w.nodes)]
		n.disk.stores[p] = &store{id: w.newStoreID()}
		s.Replicas = append(s.Replicas, n.name)
		s.ISR = append(s.ISR, ident.Member{Node: n.name, Store: n.disk.stores[p].id})
	}
	if w.rand.IntN(2) == 0 {
		w.etcd.compact()
		w.etcd.announce()
		w.runUntil(w.now+20*millisecond, nil)
	}
	leader := w.nodes[p%len(w.nodes)]
	s.Leader, s.LeaderIncarnation = leader.name, leader.incarnation
	w.etcd.put(p, s)
}

func (w *world) allRegistered() bool {
	return !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.incarnation == 0 })
}

func (w *world) startClients() {
	for i := range w.scenario.producers {
		c := &producer{w: w, id: uint64(i + 1), rand: stream(w.config.Seed, 100+uint64(i))}
		w.producers = append(w.producers, c)
		w.after(micros(i)*millisecond, c.next)
	}
	for p := range w.ledgers {
		c := &consumer{w: w, part: p, rand: stream(w.config.Seed, 1000+uint64(p))}
		w.consumers = append(w.consumers, c)
		w.after(w.pace, c.next)
	}
}

func (w *world) expireLeases() {
	w.etcd.expire()
	w.after(5*millisecond, w.expireLeases)
}

// disturbAndHeal injects the plan, then undoes all of it.
func (w *world) disturbAndHeal() {
	for i, f := range w.scenario.faults {
		if i < len(w.config.Skip) && w.config.Skip[i] {
			continue
		}
		w.at(f.at, func() {
			w.note("fault", f.part, "%s", f)
			if w.inject(f) {
				w.faults++
			}
		})
	}
	w.runUntil(w.scenario.faults[len(w.scenario.faults)-1].at+w.times.isr, nil)
	w.heal()
}

// heal ends all faults and starts all that is down.
func (w *world) heal() {
	w.note("world", -1, "healed")
	w.healed = true
	for i := range w.net.links {
		clear(w.net.links[i])
	}
	e := &w.etcd
	e.down, e.loseP, e.lateP = false, 0, 0
	clear(e.cut)
	clear(e.lag)
	for _, n := range w.nodes {
		n.resume()
		n.crashIn = 0
		n.clock.wall = 0
		n.disk.slowUntil, n.disk.stallUntil, n.disk.fullUntil, n.disk.shortUntil = 0, 0, 0, 0
		if n.disk.failed || n.stopping {
			n.crash()
		}
		n.start()
	}
}

// finish lets the cluster recover, checks that it did, and then the history.
func (w *world) finish() {
	w.runUntil(w.now+5*w.times.isr, nil)
	w.scrub()
	for _, c := range w.producers {
		c.rest = true
	}
	w.awaitSettled("recovery")
	w.probe()
	w.drain()
	w.awaitSettled("recovery after the last put")
	w.check.final()
}

func (w *world) awaitSettled(what string) {
	limit := w.now + 40*w.times.isr
	ok := w.runUntil(limit, func() bool {
		missing, _ := w.check.settled()
		return missing == "" && w.clientsIdle()
	})
	if !ok {
		missing, part := w.check.settled()
		if missing == "" {
			missing = "a put is not answered"
		}
		w.failf("liveness", part, "%s: %s after %.0f ms; %s", what, missing, float64(40*w.times.isr)/1000, w.standing(part))
	}
}

func (w *world) clientsIdle() bool {
	return !slices.ContainsFunc(w.producers, func(c *producer) bool { return c.put != nil && !c.put.over })
}

// probe puts one more message into every partition: it must be committed.
func (w *world) probe() {
	r := stream(w.config.Seed, 4)
	open := len(w.ledgers)
	for p := range w.ledgers {
		put := w.newPut(r, p, ident.RequestID{Producer: 1 << 32, N: uint64(p + 1)})
		h := w.hostOf(p, w.etcd.parts[p].Leader)
		a := &attempt{h: h, at: w.now}
		put.attempts = append(put.attempts, a)
		h.propose(put.draft.Clone(), func(c replica.Completion) {
			a.outcome = c.Outcome
			w.check.answered(h, put, c)
			if c.Outcome != replica.Committed {
				w.failf("liveness", p, "a put to the healed cluster is %s", outcomeText[c.Outcome])
			}
			open--
		})
	}
	if !w.runUntil(w.now+10*w.times.isr, func() bool { return open == 0 }) {
		w.failf("liveness", -1, "%d puts to the healed cluster are not answered", open)
	}
}

// drain lets the consumers finish everything.
func (w *world) drain() {
	for _, c := range w.consumers {
		c.drain = true
	}
	limit := w.now + 60*w.times.isr
	for p := range w.ledgers {
		limit = max(limit, w.now+micros(w.ledgers[p].end().Sequence)*5*millisecond)
	}
	ok := w.runUntil(limit, func() bool { _, left := w.check.undrained(); return !left })
	if part, left := w.check.undrained(); !ok && left {
		w.failf("liveness", part, "the channel is not empty; %s", w.standing(part))
	}
}

// standing tells how the replicas of a partition stand.
func (w *world) standing(part int) string {
	if part < 0 {
		return ""
	}
	text := stateText{w.etcd.parts[part]}.String()
	for _, n := range w.nodes {
		if h := n.hosts[part]; h != nil {
			text += fmt.Sprintf("; %s/%d store %x %s epoch %d committed %d end %d, channel passed %d of %d, %d put aside", n.name, n.incarnation,
				uint64(h.store.id)&0xffff, h.view.Role, h.view.Epoch, h.view.Committed.Offset, h.view.End.Offset,
				h.queue.Floor(), h.view.Committed.Sequence, h.queue.AsideCount())
		}
	}
	return text
}

// runUntil plays the agenda until the time is reached or done holds; it tells
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
		if len(w.agenda.heap) == 0 || w.agenda.heap[0].at > limit {
			w.now = limit
			return done != nil && done()
		}
		a, _ := w.agenda.pop()
		w.now = a.at
		a.do()
	}
}

func (w *world) at(t micros, do func())    { w.agenda.push(max(t, w.now), do) }
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
