package chaos

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
)

// nemesis is a fault that lasts until it is healed.
type nemesis struct {
	name  string
	lasts [2]time.Duration // shortest and longest
	begin func(r *round) (heal func())
}

// round is what a nemesis works on.
type round struct {
	*cluster
	*rand.Rand
}

// usual is how long most faults last: the longest is beyond the session's TTL
// and the write timeout, so that all the machinery has its turn.
var usual = [2]time.Duration{500 * time.Millisecond, 8 * time.Second}

// nemeses are those for any number of brokers; replicaMoves needs more than three.
var nemeses = []nemesis{
	{"kill one", usual, func(r *round) func() { return r.killed(r.any()) }},
	{"kill leader", usual, func(r *round) func() { return r.killed(r.leader()) }},
	{"kill all", [2]time.Duration{0, 2 * time.Second}, func(r *round) func() { return r.killed(r.brokers...) }},
	{"stop one", [2]time.Duration{time.Second, 60 * time.Second}, func(r *round) func() { return r.paused(r.any()) }},
	{"stop leader", [2]time.Duration{time.Second, 12 * time.Second}, func(r *round) func() { return r.paused(r.leader()) }},
	{"stop followers", [2]time.Duration{time.Second, 8 * time.Second}, func(r *round) func() { return r.paused(r.except(r.leader())...) }},
	{"isolate leader", usual, func(r *round) func() { return r.isolated(r.leader(), bothLanes, drop) }},
	{"isolate one", usual, func(r *round) func() { return r.isolated(r.any(), bothLanes, drop) }},
	{"isolate leader, reset", usual, func(r *round) func() { return r.isolated(r.leader(), bothLanes, reset) }},
	{"leader without etcd", usual, func(r *round) func() { return r.isolated(r.leader(), []lane{etcdLane}, drop) }},
	{"leader without brokers", usual, func(r *round) func() { return r.isolated(r.leader(), []lane{rpcLane}, drop) }},
	{"brokers apart, etcd whole", usual, (*round).brokersApart},
	{"etcd apart, brokers whole", usual, (*round).etcdApart},
	{"halves", usual, (*round).halves},
	{"ring", usual, (*round).ring},
	{"leader apart, then killed", usual, (*round).apartThenKilled},
	{"leader unheard", usual, func(r *round) func() { return r.oneSided(true) }},
	{"leader deaf", usual, func(r *round) func() { return r.oneSided(false) }},
	{"loss", usual, (*round).loss},
	{"slow network", usual, (*round).slowNetwork},
	{"slow leader", usual, (*round).slowLeader},
	{"flapping", usual, (*round).flapping},
	{"rolling restart", [2]time.Duration{0, 0}, (*round).rolling},
	{"etcd paused", [2]time.Duration{500 * time.Millisecond, 10 * time.Second}, (*round).etcdPaused},
	{"etcd killed", usual, (*round).etcdKilled},
	{"disk below its reserve", usual, func(r *round) func() { return r.fill(diskReserve / 2) }},
	{"disk full", usual, (*round).diskFull},
	{"growth with a lost answer", [2]time.Duration{time.Second, 3 * time.Second}, (*round).lostGrowth},
	{"wipe one", [2]time.Duration{0, time.Second}, (*round).wiped},
}

func (r *round) numbers(brokers ...*broker) (ns []int) {
	for _, b := range brokers {
		ns = append(ns, b.number())
	}
	return ns
}

func (r *round) any() *broker { return r.brokers[r.IntN(len(r.brokers))] }

// leader is the leader of some partition, or any broker if none is known.
func (r *round) leader() *broker {
	for _, asked := range r.brokers {
		if asked.process == nil || asked.stopped {
			continue
		}
		all := r.topicsAt(asked)
		if len(all) == 0 {
			continue
		}
		v := all[r.IntN(len(all))]
		p := v.Partitions[r.IntN(len(v.Partitions))]
		for _, b := range r.brokers {
			if b.name == string(p.Leader) {
				return b
			}
		}
		break
	}
	return r.any()
}

func (r *round) except(b *broker) (rest []*broker) {
	for _, x := range r.brokers {
		if x != b {
			rest = append(rest, x)
		}
	}
	return rest
}

func (r *round) killed(brokers ...*broker) func() {
	r.kill(brokers...)
	return func() {
		for _, b := range brokers {
			r.start(b)
		}
	}
}

func (r *round) paused(brokers ...*broker) func() {
	for _, b := range brokers {
		r.pause(b)
	}
	return func() {
		for _, b := range brokers {
			r.resume(b)
		}
	}
}

// severed puts cuts in force until healed.
func (r *round) severed(cuts []cut) func() {
	r.net.add(cuts...)
	return func() { r.net.mend(cuts...) }
}

func (r *round) isolated(b *broker, lanes []lane, d damage) func() {
	return r.severed(between(r.numbers(b), r.hosts(r.except(b)...), lanes, d))
}

// hosts are those of brokers, and that of an external etcd.
func (r *round) hosts(brokers ...*broker) []int {
	if r.etcd != nil {
		return append(r.numbers(brokers...), r.etcd.number())
	}
	return r.numbers(brokers...)
}

func (r *round) brokersApart() func() {
	all := r.numbers(r.brokers...)
	return r.severed(oneWay(all, all, []lane{rpcLane}, drop))
}

func (r *round) etcdApart() func() {
	all := r.hosts(r.brokers...)
	return r.severed(oneWay(all, all, []lane{etcdLane}, drop))
}

// halves splits the brokers, and an external etcd, in two groups.
func (r *round) halves() func() {
	all := r.hosts(r.brokers...)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return r.severed(between(all[:len(all)/2], all[len(all)/2:], bothLanes, drop))
}

// ring leaves each broker its two neighbours; of three, two lose each other.
func (r *round) ring() func() {
	all := r.numbers(r.brokers...)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if len(all) == 3 {
		return r.severed(between(all[:1], all[1:2], bothLanes, drop))
	}
	var cuts []cut
	for i, a := range all {
		for j, b := range all {
			if d := (i - j + len(all)) % len(all); d > 1 && d < len(all)-1 {
				cuts = append(cuts, oneWay([]int{a}, []int{b}, bothLanes, drop)...)
			}
		}
	}
	return r.severed(cuts)
}

// oneSided: no frame of the leader arrives, or no frame arrives at the leader.
func (r *round) oneSided(unheard bool) func() {
	b := r.leader()
	one, rest := r.numbers(b), r.hosts(r.except(b)...)
	lanes := [][]lane{bothLanes, {rpcLane}, {etcdLane}}[r.IntN(3)]
	if unheard {
		return r.severed(oneWay(one, rest, lanes, drop))
	}
	return r.severed(oneWay(rest, one, lanes, drop))
}

func (r *round) loss() func() {
	all := r.hosts(r.brokers...)
	return r.severed(oneWay(all, all, bothLanes, lossy))
}

// flapping resets the connections of one broker three times.
func (r *round) flapping() func() {
	b := r.any()
	for range 2 {
		heal := r.isolated(b, bothLanes, reset)
		pause(time.Duration(50+r.IntN(700)) * time.Millisecond)
		heal()
		pause(time.Duration(50+r.IntN(700)) * time.Millisecond)
	}
	return r.isolated(b, bothLanes, reset)
}

// rolling restarts every broker, one after the other.
func (r *round) rolling() func() {
	order := slices.Clone(r.brokers)
	r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, b := range order {
		r.stop(b)
		r.start(b)
		within(5*time.Second, func() bool { _, ok := r.viewOf(b); return ok })
	}
	return func() {}
}

// apartThenKilled cuts a leader off and kills it before its followers are given
// up: what it acknowledged alone, if it did, dies with it.
func (r *round) apartThenKilled() func() {
	b := r.leader()
	heal := r.isolated(b, []lane{rpcLane}, drop)
	pause(time.Duration(100+r.IntN(500)) * time.Millisecond)
	r.kill(b)
	heal()
	return func() { r.start(b) }
}

// wiped takes the disk from one broker.
func (r *round) wiped() func() {
	b := r.any()
	r.kill(b)
	require.NoError(r.t, b.clear())
	return func() { r.start(b) }
}
