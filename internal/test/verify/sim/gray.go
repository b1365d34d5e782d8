package sim

// Gray failures leave a broker half alive: its links break and come back, its disk
// answers late, its process stands still, its clock is far off. A gray seed plans
// nothing else: one broker at a time is ill, for longer than the cluster may take to do
// without it, so that its other brokers must serve in the meantime (liveness.go).

// gray is how a broker is ill.
type gray int

const (
	flapAll    gray = iota // all its links break and come back
	flapPair               // those to one other broker do
	hangDisk               // no sync ends for a while, again and again
	hangStill              // its process stands still
	loseAll                // it reaches no broker, but the metadata
	loseMeta               // it does not reach the metadata
	clockJumps             // its wall clock jumps within an hour of the right time
	grayCount
)

// String names the illness as traces print it.
func (g gray) String() string {
	return [...]string{
		"flapping broker", "flapping pair", "hanging disk", "standing still", "isolated", "cut from etcd", "clock off by an hour",
	}[g]
}

// illness is one broker's for a time.
type illness struct {
	fault
	how    gray
	period micros // of what comes and goes
}

const (
	// grayEvery is of how many seeds one is gray.
	grayEvery = 6
	illnesses = 10
)

// drawGray plans the illnesses of a gray seed; the other seeds have none. T_isr stands
// for a second: links flap every 100 to 800 ms, disks hang for 0.5 to 30 s.
func drawGray(seed uint64, s *scenario) (ills []illness) {
	r := stream(seed, 7)
	if r.IntN(grayEvery) != 0 {
		return nil
	}
	unit, at := int64(s.times.isr), second/2
	for range illnesses {
		i := illness{how: gray(r.IntN(int(grayCount))), period: micros(unit/10 + r.Int64N(unit*7/10))}
		i.fault = fault{
			at: at, part: r.IntN(s.partitions), target: target(r.IntN(int(targetCount))), node: r.IntN(s.nodes),
			lasts: micros(7*unit + r.Int64N(5*unit)), draw: r.Uint64(),
		}
		if i.how == hangDisk {
			i.period = micros(unit/2) << r.IntN(7)
		}
		ills = append(ills, i)
		at += i.lasts + micros(3*unit+r.Int64N(3*unit))
	}
	return ills
}

// grayMore is what a gray seed has besides: OK from the page cache in a quarter of the seeds, and
// messages that are to be delivered later in some.
func grayMore(seed uint64, s *scenario, ills []illness) more {
	r := stream(seed, 8)
	m := more{ills: ills, cached: r.IntN(4) == 0}
	if r.IntN(2) == 0 && !s.ordered {
		m.deferred = 1 + r.IntN(30)
	}
	return m
}

// beIll makes a broker ill.
func (w *world) beIll(i illness) {
	n := w.victim(i.fault)
	if w.healed || n == nil || !n.up || n.paused {
		return
	}
	end := w.now + i.lasts
	w.note(string(n.name), i.part, "is ill: %s, every %.0f ms, for %.0f ms", i.how, float64(i.period)/1000, float64(i.lasts)/1000)
	other := (n.index + 1 + i.node%(len(w.nodes)-1)) % len(w.nodes)
	switch i.how {
	case flapAll:
		w.flap(n, func(j int) bool { return j != n.index }, i.period, end)
	case flapPair:
		w.flap(n, func(j int) bool { return j == other }, i.period, end)
	case hangDisk:
		w.hang(n, i.period, end)
	case hangStill:
		w.faults++
		n.paused = true
		w.until(i.fault, n.resume)
	case loseAll:
		w.faults++
		w.isolate(i.fault, n)
	case loseMeta:
		w.faults++
		w.cutFromEtcd(i.fault, n)
	case clockJumps:
		w.jump(n, i.period, end)
	}
}

// flap breaks the links of a broker to some others, and heals them a period later, until
// the end. Both sides notice at once: their connections break.
func (w *world) flap(n *node, to func(j int) bool, period, end micros) {
	if w.healed || w.now >= end {
		return
	}
	w.faults++
	links := func(by int) {
		for j := range w.nodes {
			if to(j) {
				w.net.links[n.index][j].cut += by
				w.net.links[j][n.index].cut += by
			}
		}
	}
	links(1)
	for j, x := range w.nodes {
		if to(j) {
			n.heard[j], x.heard[n.index] = -second*1000, -second*1000
		}
	}
	w.after(period, func() {
		if w.healed {
			return
		}
		links(-1)
		w.after(period, func() { w.flap(n, to, period, end) })
	})
}

// hang lets no sync of a disk end for a period, and lets all end for another one, until
// the end.
func (w *world) hang(n *node, period, end micros) {
	if w.healed || w.now >= end {
		return
	}
	w.faults++
	n.disk.stallUntil = max(n.disk.stallUntil, min(w.now+period, end))
	w.after(2*period, func() { w.hang(n, period, end) })
}

// jump lets the wall clock of a broker jump within an hour of the right time, again and again,
// until the end. Half of the clocks keep the difference then.
func (w *world) jump(n *node, period, end micros) {
	if w.healed {
		return
	}
	w.faults++
	n.clock.wall = hourNS - w.spare.Int64N(2*hourNS)
	if w.now >= end {
		n.clock.wall *= w.spare.Int64N(2)
		return
	}
	w.after(period, func() { w.jump(n, period, end) })
}
