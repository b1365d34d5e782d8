package sim

import (
	"fmt"
	"math/rand/v2"
)

// fault is one planned disturbance. Everything about it is drawn beforehand, so
// that a failing plan can be shortened by leaving faults out.
type fault struct {
	at     micros
	kind   faultKind
	part   int
	target target
	node   int // for targets that need no role, and as the other end
	lasts  micros
	draw   uint64
}

func (f fault) String() string {
	return fmt.Sprintf("%9.3f ms  %-22s partition %d, %s (n%d), %.1f ms",
		float64(f.at)/1000, f.kind, f.part, f.target, f.node+1, float64(f.lasts)/1000)
}

type target int

const (
	anyNode target = iota
	theLeader
	aMember // of the ISR, not the leader
	targetCount
)

// String names the target.
func (t target) String() string { return [...]string{"any node", "the leader", "a member"}[t] }

type faultKind int

const (
	crashNode faultKind = iota
	crashMidStep
	crashBriefly
	powerCut
	pauseNode
	slowDisk
	stallDisk
	failDisk
	wipeDisk
	restoreDisk
	cutOneWay
	cutPair
	isolateNode
	isolateFully
	splitHalves
	cutRing
	loseMessages
	repeatMessages
	slowLink
	etcdDown
	etcdCut
	etcdLosesAnswers
	etcdLate
	watchLag
	watchGap
	loseRegistration
	jumpClock
	driftClock
	handOver
	stopGracefully
	moveReplica
	trimLogs
	compactMetadata
	flipBit
	shortOfSpace
	fillDisk
	stallBoth // a member dies and the other's disk stalls: forces a rollback
	crashElected
	changeTopic
	faultKindCount
)

// String names the fault as traces print it.
func (k faultKind) String() string {
	return [...]string{
		"crash", "crash within a step", "brief crash", "power cut of all", "stop process", "slow disk",
		"stalled disk", "failing disk", "wiped disk", "restored disk", "one-way cut", "cut pair",
		"isolated node", "isolated from all", "halves", "ring", "lost messages", "repeated messages", "slow link",
		"etcd down", "cut from etcd", "lost answers of etcd", "late requests to etcd", "lagging watch",
		"gap in watch", "lost registration", "clock jump", "clock drift", "hand-over", "graceful stop",
		"moved replica", "trimmed logs", "compacted metadata", "flipped bit",
		"short of space", "full disk", "stalled pair", "crash of the elected", "changed topic",
	}[k]
}

// weights says how often a profile draws each kind, on top of 1 for each.
func (p profile) weights() [faultKindCount]int {
	var w [faultKindCount]int
	for k := range w {
		w[k] = 1
	}
	add := func(n int, kinds ...faultKind) {
		for _, k := range kinds {
			w[k] += n
		}
	}
	add(2, trimLogs)
	switch p {
	case crashStorm:
		add(8, crashNode, crashMidStep, crashBriefly, crashElected)
		add(3, powerCut, wipeDisk, failDisk, slowDisk)
	case stalledFollower:
		add(12, stallBoth)
		add(6, stallDisk, isolateNode, pauseNode)
		add(3, crashMidStep, crashElected, cutPair, crashBriefly)
	case metadataTrouble:
		add(8, etcdLate, etcdLosesAnswers)
		add(5, etcdDown, etcdCut, loseRegistration, stallDisk, isolateNode, stallBoth)
		add(3, watchLag, watchGap, crashNode, handOver)
	case partitionedNetwork:
		add(6, cutOneWay, cutPair, isolateNode, isolateFully)
		add(4, splitHalves, cutRing, loseMessages, repeatMessages, stallBoth)
		add(2, crashNode, etcdCut, crashMidStep)
	case everything:
		add(3, flipBit, shortOfSpace, fillDisk, compactMetadata)
		add(2, stallBoth, crashMidStep, etcdLate, wipeDisk, moveReplica, handOver, trimLogs)
	}
	return w
}

// drawFaults plans the whole run: bursts with calm between them.
func drawFaults(r *rand.Rand, s *scenario) []fault {
	weights, total := s.profile.weights(), 0
	for _, w := range weights {
		total += w
	}
	unit := int64(s.times.isr)
	at := 2 * second / 4
	faults := make([]fault, 0, faultsPlanned)
	for len(faults) < faultsPlanned {
		at += micros(r.Int64N(unit))
		if r.IntN(8) == 0 {
			at += micros(3*unit + r.Int64N(4*unit)) // calm: let it recover
		}
		n, kind := r.IntN(total), faultKind(0)
		for n >= weights[kind] {
			n -= weights[kind]
			kind++
		}
		faults = append(faults, fault{
			at: at, kind: kind, part: r.IntN(s.partitions), target: target(r.IntN(int(targetCount))),
			node: r.IntN(s.nodes), lasts: micros(r.Int64N(unit*4) * int64(1+r.IntN(2)) / 2), draw: r.Uint64(),
		})
	}
	return faults
}
