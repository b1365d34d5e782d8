package sim

import (
	"math/rand/v2"

	"github.com/lockstepmq/lockstep/coordinator/replica"
)

// times are the cluster's, shortened so that a hundred faults fit into a run.
type times struct {
	lag, isr, hold, write, grace, retry, election micros
	ttl, etcdTimeout, putLimit                    micros
}

// profile is the kind of trouble that prevails in a run: without one, seeds
// would all be alike and mild.
type profile int

const (
	crashStorm profile = iota
	stalledFollower
	metadataTrouble
	partitionedNetwork
	everything
	profileCount
)

// grayProfile is what reports call a gray seed.
const grayProfile = "gray"

// String names the profile as reports print it.
func (p profile) String() string {
	return [...]string{"crashes", "stalled followers", "metadata", "partitions", "everything"}[p]
}

// scenario is what a seed stands for.
type scenario struct {
	profile    profile
	nodes      int
	partitions int
	rf, minISR int
	ordered    bool // the channels
	producers  int
	times      times
	options    replica.Options
	pace       micros // mean time between a producer's puts, about
	faults     []fault
	more
}

const faultsPlanned = 150

// stream gives each consumer of chance its own sequence, so that leaving a
// fault out changes as little as possible of the rest.
func stream(seed, number uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, number)) }

// draw works a seed out.
func draw(seed uint64) scenario {
	r := stream(seed, 1)
	s := scenario{
		profile: profile(seed % uint64(profileCount)), nodes: 3, partitions: 1, rf: 3, minISR: 2,
		producers: 3 + r.IntN(4), pace: micros(4000 + r.IntN(30_000)),
	}
	s.ordered = r.IntN(3) == 0
	switch r.IntN(12) {
	case 0:
		s.nodes, s.minISR = 5, 2+r.IntN(2)
	case 1:
		s.nodes, s.rf, s.minISR = 5, 5, 2+r.IntN(2)
	case 2:
		s.minISR = 3
	case 3:
		s.rf, s.minISR = 2, 2
	case 4:
		s.rf, s.minISR = 2, 1
	case 5:
		s.minISR = 1
	case 6, 7:
		s.nodes = 5
	}
	if r.IntN(10) == 0 {
		s.partitions = 8
	}
	if s.ordered {
		s.pace *= 2
	}
	s.times = drawTimes(r)
	s.options = s.times.options(r)
	s.faults = drawFaults(r, &s)
	s.more = drawMore(seed, &s)
	if ills := drawGray(seed, &s); ills != nil {
		s.more, s.faults = grayMore(seed, &s, ills), nil
	}
	s.options.Epochs = s.epochs
	return s
}

// lastFault is when the last fault of the plan begins, and the last illness has ended.
func (s *scenario) lastFault() (at micros) {
	if n := len(s.faults); n > 0 {
		at = s.faults[n-1].at
	}
	if n := len(s.ills); n > 0 {
		at = max(at, s.ills[n-1].at+s.ills[n-1].lasts)
	}
	return at
}

func drawTimes(r *rand.Rand) times {
	unit := micros(80+r.IntN(120)) * millisecond // T_isr, 1 s in the daemon
	return times{
		lag: unit / 2, isr: unit, hold: 3 * unit, write: 2*unit + micros(r.Int64N(int64(unit))), grace: 2 * unit,
		retry: unit / 5, election: unit / 20, ttl: 3 * unit, etcdTimeout: unit / 2, putLimit: 9 * unit,
	}
}

func (t times) options(r *rand.Rand) replica.Options {
	ms := func(m micros) int64 { return max(1, int64(m/millisecond)) }
	return replica.Options{
		ISRMS: ms(t.isr), HoldMS: ms(t.hold), WriteMS: ms(t.write), GraceMS: ms(t.grace),
		RetryMS: ms(t.retry), ElectionMS: ms(t.election),
		WindowBytes: 2 << (10 + r.IntN(8)), GroupBytes: 1 << (10 + r.IntN(7)),
		TailBytes: 1 << (9 + r.IntN(8)), HeldBytes: 1 << (9 + r.IntN(8)),
	}
}

// options are those of one partition's machines; node and store are filled in
// by the host.
func (w *world) options(part int) replica.Options {
	o := w.scenario.options
	o.Partition = w.partition(part)
	o.Check = w.config.Check
	return o
}
