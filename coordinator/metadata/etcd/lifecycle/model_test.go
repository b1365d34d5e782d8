package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The model: a few members with disks, the real Decide, and a reduced raft. An election and
// the replication of one entry are one step: a leader, the voters that elect it, and those
// that store its entry. The step fails the run if the leader lacks an entry that was committed
// before, or if a voter gives up an entry that it has as committed, which etcd does not survive.
//
// In a world with lives the members count their starts, and disks are replaced by copies without
// marks. If no member that saw the later life answers at such a start, the loss cannot be noticed:
// the metadata then has a second history. It must never meet the first one.

// disk is the content of one member's data path.
type disk struct {
	id         DiskID
	foundation *Foundation
	started    bool
	hasLog     bool
	generation int // of the member's identity in the cluster: 0 founder, then counted by joins
	log        []entry
	committed  int // entries of the log that are committed, as far as this member has heard
	copied     bool
	state      DiskState            // its id is id
	seen       map[string]DiskState // immutable
	replaced   bool                 // by a copy without marks
}

type entry struct {
	term   int
	number int    // of the commit or append, unique
	joins  string // the member that joins as a new one with this entry, "" = none
}

type mode byte

const (
	off mode = iota
	asking
	voting
)

// world is one state of the model.
type world struct {
	names   []string
	members Members
	disks   []disk
	copies  []*disk
	modes   []mode
	starts  []string                     // ids of the starts; "": not announced yet
	nodes   map[int]map[string]DiskState // of a world with lives: the members' states in the metadata, by entry
	fresh   int                          // ids given so far
	term    int
	commits []entry // the one history
	budget  budget
	broken  string // violation of the invariant, "" = none
}

// budget bounds the remaining events.
type budget struct{ commits, appends, wipes, restores, removals, crashes, snapshots int }

func newWorld(n int, b budget) *world {
	w := &world{members: Members{}, budget: b, copies: make([]*disk, n), modes: make([]mode, n), starts: make([]string, n)}
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		w.names = append(w.names, name)
		w.members[name] = "http://" + name
		w.disks = append(w.disks, disk{id: w.newDisk()})
	}
	return w
}

func (w *world) newDisk() DiskID { w.fresh++; return DiskID("d" + strconv.Itoa(w.fresh)) }

func (w *world) clone() *world {
	c := *w
	c.disks, c.copies, c.modes, c.starts = slices.Clone(w.disks), slices.Clone(w.copies), slices.Clone(w.modes), slices.Clone(w.starts)
	return &c // logs and foundations are immutable; a world with lives is never cloned
}

// key identifies a state up to the numbering of disks and entries.
func (w *world) key() string {
	var b strings.Builder
	rename := map[string]int{}
	short := func(s string) int {
		if s == "" {
			return -1
		}
		if _, ok := rename[s]; !ok {
			rename[s] = len(rename)
		}
		return rename[s]
	}
	show := func(d *disk) {
		if d == nil {
			b.WriteString("-|")
			return
		}
		fmt.Fprintf(&b, "%d,%t,%t,%d,%t,", short(string(d.id)), d.started, d.hasLog, d.generation, d.copied)
		if f := d.foundation; f != nil {
			fmt.Fprintf(&b, "f%d", short(f.ID))
			for _, n := range slices.Sorted(maps.Keys(f.Disks)) {
				fmt.Fprintf(&b, ":%d", short(string(f.Disks[n])))
			}
		}
		for _, e := range d.log {
			fmt.Fprintf(&b, ";%d%s", short("e"+strconv.Itoa(e.number)), e.joins)
		}
		b.WriteByte('|')
	}
	for i := range w.disks {
		show(&w.disks[i])
		show(w.copies[i])
		b.WriteByte('0' + byte(w.modes[i]))
	}
	for _, e := range w.commits {
		fmt.Fprintf(&b, "/%d", short("e"+strconv.Itoa(e.number)))
	}
	fmt.Fprintf(&b, "%v", w.budget)
	return b.String()
}

// generation returns a member's generation by the joins in a log.
func generation(log []entry, name string) (g int) {
	for _, e := range log {
		if e.joins == name {
			g++
		}
	}
	return g
}

// belongs reports whether process i votes as a member of the cluster of a log.
func (w *world) belongs(i, leader int) bool {
	d, l := w.disks[i], w.disks[leader]
	if w.modes[i] != voting || d.foundation == nil || l.foundation == nil || d.generation != generation(l.log, w.names[i]) {
		return false
	}
	return d.foundation.ID == l.foundation.ID
}

func newer(a, b []entry) bool { // a is at least as up to date as b
	if len(a) == 0 || len(b) == 0 {
		return len(b) == 0
	}
	x, y := a[len(a)-1], b[len(b)-1]
	return x.term > y.term || x.term == y.term && len(a) >= len(b)
}

// electorate lists the members that would vote for a leader.
func (w *world) electorate(leader int) (voters []int) {
	for i := range w.names {
		if w.belongs(i, leader) && newer(w.disks[leader].log, w.disks[i].log) {
			voters = append(voters, i)
		}
	}
	return voters
}

func (w *world) running(i int) bool {
	if w.modes[i] != voting {
		return false
	}
	for l := range w.names {
		if w.modes[l] == voting && w.belongs(i, l) && len(w.electorate(l)) > len(w.names)/2 {
			return true
		}
	}
	return false
}

// replicate appends one entry of a leader, stored by a set of its voters.
func (w *world) replicate(leader int, stored []int, joins string) {
	w.term++
	w.fresh++
	e := entry{term: w.term, number: w.fresh, joins: joins}
	log := append(slices.Clone(w.disks[leader].log), e)
	before := w.disks[leader].log
	for _, i := range stored {
		if d := w.disks[i]; !continues(before, d.log[:d.committed]) {
			w.broken = fmt.Sprintf("%s follows %s with the log %v, and has %v as committed", w.names[i], w.names[leader], before, d.log[:d.committed])
			return
		}
	}
	committed := len(stored) > len(w.names)/2
	if committed {
		replaced := slices.ContainsFunc(stored, func(i int) bool { return w.disks[i].replaced })
		if !continues(before, w.commits) && !replaced {
			w.broken = fmt.Sprintf("%s leads with the log %v, committed is %v", w.names[leader], before, w.commits)
			return
		}
		w.commits = log
	}
	for _, i := range stored {
		w.disks[i].log = log
		if committed {
			w.disks[i].committed = len(log)
		}
	}
	if w.nodes != nil {
		w.nodes[e.number] = w.nodes[last(before)]
	}
}

// continues reports whether a log begins with entries.
func continues(log, entries []entry) bool {
	return len(log) >= len(entries) && slices.Equal(log[:len(entries)], entries)
}

func last(log []entry) (number int) {
	if len(log) > 0 {
		number = log[len(log)-1].number
	}
	return number
}

// count raises the boot counters of the voters of a leader, and begins the starts of those that
// were not announced yet. All of them see it.
func (w *world) count(leader int, voters []int) {
	w.replicate(leader, voters, "")
	if w.broken != "" {
		return
	}
	at := last(w.disks[leader].log)
	nodes := maps.Clone(w.nodes[at])
	if nodes == nil {
		nodes = map[string]DiskState{}
	}
	for _, i := range voters {
		d := &w.disks[i]
		d.state.Disk = d.id
		if w.starts[i] == "" {
			w.fresh++
			w.starts[i] = "s" + strconv.Itoa(w.fresh)
			known := nodes[w.names[i]]
			known.Disk = d.id
			d.state = d.state.Begin(w.starts[i], known)
		} else {
			d.state.Boot++
		}
		nodes[w.names[i]] = d.state
	}
	w.nodes[at] = nodes
	for _, i := range voters {
		w.disks[i].seen = nodes
	}
}

func (w *world) self(i int) Self {
	d := w.disks[i]
	s := Self{Name: w.names[i], Members: w.members, State: d.state, Foundation: d.foundation, Started: d.started, HasLog: d.hasLog, Seen: d.seen}
	s.State.Disk = d.id
	if d.copied {
		s.Doubt = DoubtCopied
	}
	return s
}

// report is the answer of member i to another one.
func (w *world) report(i, to int) Report {
	d := w.disks[i]
	r := Report{DiskState: d.state, Foundation: d.foundation, Started: d.started, Members: w.members,
		Votes: w.modes[i] == voting, Running: w.running(i), SeenYou: d.seen[w.names[to]], Seen: d.seen}
	r.Disk = d.id
	return r
}

// decide is one round of queries of member i; the link to one other member may be cut.
func (w *world) decide(i, cut int) {
	reports := map[string]Report{}
	for k := range w.names {
		if k != i && k != cut && w.modes[k] != off {
			reports[w.names[k]] = w.report(k, i)
		}
	}
	d := Decide(w.self(i), reports, true, func() string { w.fresh++; return "f" + strconv.Itoa(w.fresh) })
	switch d.Action {
	case Found:
		w.disks[i].foundation = d.Foundation
	case Start:
		w.disks[i].started, w.disks[i].hasLog, w.disks[i].copied, w.modes[i] = true, true, false, voting
		w.starts[i] = ""
	case Join:
		for l := range w.names {
			if voters := w.electorate(l); l != i && w.modes[l] == voting && len(voters) > len(w.names)/2 {
				w.join(i, l, voters)
				return
			}
		}
	}
}

// join makes member i a new member of the cluster of a leader.
func (w *world) join(i, leader int, voters []int) {
	w.replicate(leader, voters, w.names[i])
	l := w.disks[leader]
	w.disks[i] = disk{id: w.newDisk(), foundation: l.foundation, started: true, hasLog: true,
		generation: generation(l.log, w.names[i]), log: l.log, committed: len(l.log), state: w.disks[i].state, seen: l.seen}
	w.modes[i], w.starts[i] = voting, ""
}

// step is one action of the model.
type step struct {
	name string
	do   func(w *world)
}

// steps lists the possible next steps.
func (w *world) steps() (out []step) {
	add := func(name string, do func(*world)) { out = append(out, step{name, do}) }
	for i, n := range w.names {
		switch w.modes[i] {
		case off:
			add("start "+n, func(w *world) { w.modes[i] = asking })
			if w.budget.wipes > 0 {
				add("wipe "+n, func(w *world) { w.budget.wipes--; w.disks[i] = disk{id: w.newDisk()} })
			}
			if w.budget.removals > 0 && w.disks[i].hasLog {
				add("remove the directory of "+n, func(w *world) {
					w.budget.removals--
					w.disks[i].hasLog, w.disks[i].log, w.disks[i].committed = false, nil, 0
				})
			}
			if w.budget.restores > 0 && w.copies[i] != nil {
				add("restore "+n, func(w *world) {
					w.budget.restores--
					w.disks[i] = *w.copies[i]
					w.disks[i].copied = true
				})
			}
			if w.budget.snapshots > 0 && w.copies[i] != nil {
				add("restore the snapshot of "+n, func(w *world) {
					w.budget.snapshots--
					w.disks[i] = *w.copies[i]
					w.disks[i].replaced = true
				})
			}
		case asking:
			for cut := -1; cut < len(w.names) && (cut < 0 || w.nodes == nil); cut++ {
				if cut != i {
					add(fmt.Sprintf("%s decides (cut %d)", n, cut), func(w *world) { w.decide(i, cut) })
				}
			}
		}
		if w.modes[i] != off && w.budget.crashes > 0 {
			add("crash "+n, func(w *world) { w.budget.crashes--; w.modes[i] = off })
		}
		if w.budget.restores+w.budget.snapshots > 0 && w.copies[i] == nil && (w.disks[i].hasLog || w.disks[i].foundation != nil) {
			add("copy "+n, func(w *world) { d := w.disks[i]; w.copies[i] = &d })
		}
		out = append(out, w.entries(i)...)
	}
	return out
}

// entries lists the entries that a member could replicate as the leader.
func (w *world) entries(leader int) (out []step) {
	if w.modes[leader] != voting {
		return nil
	}
	voters := w.electorate(leader)
	if len(voters) <= len(w.names)/2 {
		return nil
	}
	if w.nodes != nil {
		// A commit raises the counters: the window between the two is not of interest here.
		fresh := slices.ContainsFunc(voters, func(i int) bool { return w.starts[i] == "" })
		if fresh || w.budget.commits > 0 {
			out = append(out, step{w.names[leader] + " commits and counts", func(w *world) {
				if !fresh {
					w.budget.commits--
				}
				w.count(leader, voters)
			}})
		}
		return out
	}
	if w.budget.commits > 0 {
		for _, stored := range majorities(voters, leader, len(w.names)/2+1) {
			out = append(out, step{fmt.Sprintf("%s commits on %v", w.names[leader], stored), func(w *world) {
				w.budget.commits--
				w.replicate(leader, stored, "")
			}})
		}
	}
	if w.budget.appends > 0 {
		out = append(out, step{w.names[leader] + " appends alone", func(w *world) {
			w.budget.appends--
			w.replicate(leader, []int{leader}, "")
		}})
	}
	return out
}

// majorities lists the smallest sets of voters that commit, with their leader.
func majorities(voters []int, leader, size int) (out [][]int) {
	others := slices.DeleteFunc(slices.Clone(voters), func(i int) bool { return i == leader })
	var pick func(from int, chosen []int)
	pick = func(from int, chosen []int) {
		if len(chosen) == size {
			out = append(out, slices.Clone(chosen))
			return
		}
		for k := from; k < len(others); k++ {
			pick(k+1, append(chosen, others[k]))
		}
	}
	pick(0, []int{leader})
	return out
}

// explore visits all states up to a number of them; it returns the steps to the first
// violation.
func explore(first *world, limit int) (states int, trace []string) {
	type node struct {
		w      *world
		parent int
		name   string
	}
	nodes := []node{{w: first, parent: -1}}
	seen := map[string]bool{first.key(): true}
	for at := 0; at < len(nodes) && len(nodes) < limit; at++ {
		for _, s := range nodes[at].w.steps() {
			next := nodes[at].w.clone()
			s.do(next)
			if k := next.key(); next.broken == "" && seen[k] {
				continue
			} else {
				seen[k] = true
			}
			nodes = append(nodes, node{next, at, s.name})
			if next.broken != "" {
				for k := len(nodes) - 1; k > 0; k = nodes[k].parent {
					trace = append(trace, nodes[k].name)
				}
				slices.Reverse(trace)
				return len(nodes), append(trace, next.broken)
			}
		}
		nodes[at].w = nil // its successors have been made
	}
	return len(nodes), nil
}

// walk takes random steps; it returns the steps to a violation.
func walk(w *world, rnd *rand.Rand, steps int) (trace []string) {
	for range steps {
		all := w.steps()
		if len(all) == 0 {
			return nil
		}
		s := all[rnd.IntN(len(all))]
		s.do(w)
		if trace = append(trace, s.name); w.broken != "" {
			return append(trace, w.broken)
		}
	}
	return nil
}

// founded returns the state after three members have founded their cluster together.
func founded(t *testing.T, n int, b budget) *world {
	w := newWorld(n, b)
	for i := range w.names {
		w.modes[i] = asking
	}
	for range 3 * n {
		for i := range w.names {
			if w.modes[i] == asking {
				w.decide(i, -1)
			}
		}
	}
	for i := range w.names {
		require.Equal(t, voting, w.modes[i], "all members that start together found a cluster")
	}
	return w
}

var modelled = budget{commits: 2, appends: 1, wipes: 1, restores: 1, removals: 1, crashes: 4}

func modelStates() int {
	if n, err := strconv.Atoi(os.Getenv("LOCKSTEP_STATES")); err == nil {
		return n
	}
	if testing.Short() {
		return 10_000
	}
	return 20_000
}

// TestOneHistory explores three members from before and from after their founding, breadth
// first, and five members by random walks.
func TestOneHistory(t *testing.T) {
	for name, w := range map[string]*world{
		"from empty disks": newWorld(3, modelled),
		"founded":          founded(t, 3, modelled),
	} {
		states, trace := explore(w, modelStates())
		require.Empty(t, trace, name)
		t.Logf("%s: %d states", name, states)
	}
	walks := modelStates() / 30
	for seed := range uint64(walks) {
		b := budget{commits: 6, appends: 3, wipes: 2, restores: 2, removals: 1, crashes: 12}
		n := 3 + 2*int(seed%2)
		w := founded(t, n, b)
		if seed%4 < 2 {
			w = newWorld(n, b)
		}
		require.Empty(t, walk(w, rand.New(rand.NewPCG(seed, 1)), 200), "seed %d", seed)
	}
	t.Logf("%d random walks of 200 steps", walks)
}

// TestOneHistoryOfThree walks at random through the lives of three members: the walks
// are short and many, so that they notice the mutants of Decide (internal/test/verify/mutants).
// In half of them no disk is replaced by a copy of it, and none loses its directory.
func TestOneHistoryOfThree(t *testing.T) {
	for seed := range uint64(modelStates() / 3) {
		b := budget{commits: 4, appends: 1, wipes: 1, restores: 1, removals: 1, crashes: 8}
		if seed%2 == 0 {
			b.restores, b.removals = 0, 0
		}
		w := newWorld(3, b)
		if seed%4 < 3 {
			w = founded(t, 3, b)
		}
		require.Empty(t, walk(w, rand.New(rand.NewPCG(seed, 2)), 120), "seed %d", seed)
	}
}

// TestTwoHistoriesDoNotMeet puts copies without marks back, also while the only member that saw the
// later life is down, and lets them live until their boot counters have passed the later life.
func TestTwoHistoriesDoNotMeet(t *testing.T) {
	second := 0
	for seed := range uint64(modelStates() / 6) {
		n := 3 + 2*int(seed%4/3)
		w := founded(t, n, budget{commits: 3, wipes: int(seed % 2), crashes: 3 * n, snapshots: 1})
		w.nodes = map[int]map[string]DiskState{}
		require.Empty(t, walk(w, rand.New(rand.NewPCG(seed, 3)), 150), "seed %d", seed)
		if slices.ContainsFunc(w.disks, func(d disk) bool { return !continues(w.commits, d.log[:d.committed]) }) {
			second++
		}
	}
	t.Logf("%d walks ended with two histories", second)
	require.NotZero(t, second)
}
