package sim

import "math/rand/v2"

// more is what a seed means beyond its plan of faults. It comes from streams of its
// own, and half of all seeds have none of it: they are what they always were.
type more struct {
	cached   bool // durability "replicated": acknowledged from the page cache
	epochs   int  // what the tables of epochs hold; 0 = more than a run has
	deferred int  // per cent of messages that are to be delivered later
	absences []absence
	losses   []loss
	ills     []illness // of a gray seed, which has no other faults
	rolled   bool      // uncommitted batches may begin a new file: the one before it may go whole
}

// absence is that of a replica for so long that retention passes what it has.
type absence struct {
	fault
	how absentKind
}

type absentKind int

const (
	down absentKind = iota
	partitioned
	stopped
	absentKindCount
)

func drawMore(seed uint64, s *scenario) (m more) {
	r := stream(seed, 5)
	if r.IntN(2) == 0 {
		return m
	}
	m.cached = r.IntN(4) == 0
	if r.IntN(4) == 0 {
		m.epochs = 1 + r.IntN(4)
	}
	if r.IntN(3) == 0 && !s.ordered {
		m.deferred = 1 + r.IntN(30)
	}
	last := int64(s.faults[len(s.faults)-1].at)
	at := func() fault {
		return fault{
			at: micros(r.Int64N(last)), part: r.IntN(s.partitions), target: aMember, node: r.IntN(s.nodes),
			lasts: s.times.isr * micros(24+r.IntN(36)), draw: r.Uint64(),
		}
	}
	if r.IntN(2) == 0 {
		for range 2 + r.IntN(3) {
			m.absences = append(m.absences, absence{at(), absentKind(r.IntN(int(absentKindCount)))})
		}
	}
	if s.partitions == 1 && m.deferred == 0 && r.IntN(4) != 0 {
		for range 4 + r.IntN(4) {
			m.losses = append(m.losses, loss{fault: at()})
		}
	}
	m.rolled = r.IntN(2) == 0
	return m
}

// plan schedules the events of the seed beyond its faults.
func (m *more) plan(w *world) {
	for _, a := range m.absences {
		w.at(a.at, func() { w.beAway(a) })
	}
	for _, i := range m.ills {
		w.at(i.at, func() { w.beIll(i) })
	}
	for _, l := range m.losses {
		w.at(l.at, func() { w.loseMembers(l, 20) })
	}
	if m.cached {
		for _, n := range w.nodes {
			n.disk.writeBack()
		}
	}
}

// beAway takes a replica away, and lets retention continue everywhere until it is back
// and copies.
func (w *world) beAway(a absence) {
	n := w.victim(a.fault)
	if w.healed || n == nil || !n.up || n.paused {
		return
	}
	w.faults++
	w.note(string(n.name), a.part, "is away for %.0f ms", float64(a.lasts)/1000)
	switch a.how {
	case down:
		n.awayUntil = w.now + a.lasts
		w.crashFor(n, a.lasts)
	case partitioned:
		w.isolate(a.fault, n)
		if a.draw&1 == 0 {
			w.cutFromEtcd(a.fault, n)
		}
	case stopped:
		n.paused = true
		w.until(a.fault, n.resume)
	}
	w.retainUntil(a.part, w.now+a.lasts+6*w.times.isr)
}

// retainUntil lets retention go as far as it may, again and again.
func (w *world) retainUntil(part int, end micros) {
	if w.now > end {
		return
	}
	for _, n := range w.nodes {
		if h := n.hosts[part]; h != nil {
			n.post(n.boot, func() { h.retain(wholly) })
		}
	}
	w.after(w.times.isr/2+micros(w.spare.Int64N(int64(w.times.isr))), func() { w.retainUntil(part, end) })
}

// later is when a message is to be delivered, 0 = at once: mostly soon, some when
// retention would have passed it.
func (w *world) later(r *rand.Rand) int64 {
	if w.scenario.deferred == 0 || r.IntN(100) >= w.scenario.deferred {
		return 0
	}
	delay := r.Int64N(int64(3 * w.times.isr))
	if r.IntN(8) == 0 {
		delay *= 10
	}
	return epochNS + (int64(w.now)+delay)*1000
}
