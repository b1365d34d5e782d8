package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// watchful is what liveness remembers of one partition.
type watchful struct {
	members   []memberSince
	key       metadata.PartitionState // as seen last
	served    micros                  // puts were served, or need not be, at that time
	committed ident.Offset            // then
	leader    ident.Node              // served under this leadership, by this process
	run       ident.Incarnation
	delivered micros // its channels served then, or need not have
}

// memberSince is since when a broker is a member with its present store.
type memberSince struct {
	ident.Member
	since micros
}

// lively checks, while faults continue, what the cluster must still do:
//
//   - If a minimum of members is well, and these reach each other and the metadata, a
//     leader takes puts and commits them within servesWithin. Faults of others and
//     faults before do not count.
//   - A leader that has served continues delivering as long as the metadata names it and
//     it reaches the metadata.
//   - A machine stops only because of its disk.
//   - A delivery that its consumer does not answer is in flight for no longer than twice its timeout,
//     by the right clock, whatever the broker's clock says. Twice, because a clock that is set back
//     by less than a timeout cannot be told from a delivery that has just begun. If the broker stood still
//     it is counted from then on: what the clock was set back by in the meantime is less by the time it stood.
type lively struct {
	w     *world
	nodes []micros   // since when each broker is well
	links [][]micros // since when each direction is
	parts []watchful
}

// servesWithin is the longest that the times of coordinator/replica/DESIGN.md allow, and
// one T_isr, which stands for a second: a session runs out, or a disk is reported as
// stalled; a new leader is elected, and members that are late leave.
func (t times) servesWithin() micros { return t.ttl + t.lag + 2*t.isr + t.election*8 + t.isr }

func newLively(w *world) *lively {
	l := &lively{w: w, nodes: make([]micros, len(w.nodes)), parts: make([]watchful, len(w.ledgers))}
	for range w.nodes {
		l.links = append(l.links, make([]micros, len(w.nodes)))
	}
	return l
}

// look is called every few milliseconds.
func (l *lively) look() {
	w := l.w
	for i, n := range w.nodes {
		if !n.well() {
			l.nodes[i] = w.now
		}
		for j := range w.nodes {
			if x := &w.net.links[i][j]; x.cut > 0 || x.loss > 0 || x.dup > 0 || x.delay > 0 {
				l.links[i][j] = w.now
			}
		}
	}
	for p := range l.parts {
		if w.etcd.parts[p].Revision != 0 {
			l.partition(p, &w.etcd.parts[p])
		}
	}
	for _, c := range w.consumers {
		l.timesOut(c)
	}
}

// tickSlack is what a broker's timers take besides.
const tickSlack = 50 * millisecond

// timesOut checks the deliveries to a consumer.
func (l *lively) timesOut(c *consumer) {
	h, now := c.at, l.w.now
	if h == nil || h.gone || h.leads == 0 || h.n.paused || now-h.n.wokeAt < tickSlack || c.ch.Err(c.sub) != nil {
		return
	}
	for n, at := range c.out {
		if now-max(at, h.n.wokeAt) > 2*l.w.times.msgTimeout()+tickSlack {
			delete(c.out, n)
		}
	}
	if held := c.ch.InFlight(c.sub); held > len(c.out) {
		l.w.failf("liveness", c.part, "%s holds %d deliveries in flight, %d of them for longer than twice their timeout", h.n.name, held, held-len(c.out))
	}
}

// well reports that nothing is wrong with a broker and its way to the metadata.
func (n *node) well() bool {
	e, d := &n.w.etcd, n.disk
	return n.up && !n.paused && !n.stopping && n.crashIn == 0 && n.incarnation != 0 &&
		e.reachable(n) && e.loseP == 0 && e.lateP == 0 && e.lag[n.index] == 0 && !e.gap[n.index] &&
		!d.failed && n.w.now >= max(d.stallUntil, d.slowUntil, d.fullUntil, d.shortUntil)
}

func (l *lively) partition(p int, key *metadata.PartitionState) {
	s, now := &l.parts[p], l.w.now
	if key.Revision != s.key.Revision {
		l.remember(s, key)
	}
	for i, m := range s.members {
		if x := l.w.nodes[l.w.nodeIndex(m.Node)].disk.stores[p]; x == nil || x.id != m.Store {
			s.members[i].since = now // it has another disk
		}
	}
	leader := l.w.hostOf(p, key.Leader)
	if l.serves(s, leader, key) {
		s.served = now
	}
	well, since := l.minimum(s, key)
	if from := max(since, s.served); well && now-from > l.w.times.servesWithin() {
		l.w.failf("liveness", p, "%d members have been well for %.0f ms, and puts were served last %.0f ms ago; %s",
			key.MinInSync, float64(now-since)/1000, float64(now-s.served)/1000, l.w.standing(p))
	}
	l.delivers(p, s, leader, key)
}

// remember takes a new state of the key in.
func (l *lively) remember(s *watchful, key *metadata.PartitionState) {
	var members []memberSince
	for _, m := range key.ISR {
		since := l.w.now
		if i := slices.IndexFunc(s.members, func(x memberSince) bool { return x.Member == m }); i >= 0 {
			since = s.members[i].since
		}
		members = append(members, memberSince{m, since})
	}
	if s.key.MinInSync != key.MinInSync || !slices.Equal(s.key.Replicas, key.Replicas) || len(key.Target) > 0 {
		s.served = l.w.now // an operator's change, which takes its time
	}
	if s.key.Leader != key.Leader || s.key.LeaderIncarnation != key.LeaderIncarnation || key.Epoch > s.key.Epoch+1 {
		s.leader = "" // another leadership: it serves when its marker is committed
	}
	s.members, s.key = members, key.Clone()
}

// serves reports whether a leader takes puts, and commits what it has.
func (l *lively) serves(s *watchful, leader *host, key *metadata.PartitionState) bool {
	if leader == nil || leader.gone || leader.view.Role != replica.Leader || leader.view.Epoch != key.Epoch || !leader.view.Writable {
		return false
	}
	moved := leader.view.Committed.Offset != s.committed
	s.committed = leader.view.Committed.Offset
	return moved || leader.view.Committed == leader.view.End
}

// minimum finds the minimum of members that has been well for the longest.
func (l *lively) minimum(s *watchful, key *metadata.PartitionState) (found bool, since micros) {
	for set := 1; set < 1<<len(s.members); set++ {
		if n, from := l.set(s, set); n == key.MinInSync && (!found || from < since) {
			found, since = true, from
		}
	}
	return found, since
}

// set returns how many members a set has, and since when they are well and reach each other.
func (l *lively) set(s *watchful, set int) (n int, since micros) {
	for a, m := range s.members {
		if set>>a&1 == 0 {
			continue
		}
		i := l.w.nodeIndex(m.Node)
		n, since = n+1, max(since, m.since, l.nodes[i])
		for b, o := range s.members {
			if set>>b&1 == 1 && a != b {
				since = max(since, l.links[i][l.w.nodeIndex(o.Node)])
			}
		}
	}
	return n, since
}

// delivers follows one leadership from when it first served.
func (l *lively) delivers(p int, s *watchful, leader *host, key *metadata.PartitionState) {
	now, named := l.w.now, leader != nil && leader.n.up && leader.n.incarnation == key.LeaderIncarnation && leader.n.wellConnected()
	switch {
	case !named:
		s.leader = ""
	case leader.leads == key.Epoch:
		s.leader, s.run, s.delivered = key.Leader, key.LeaderIncarnation, now
	case s.leader == key.Leader && s.run == key.LeaderIncarnation && now-s.delivered > l.w.times.isr:
		l.w.failf("liveness", p, "%s has led, is named in the metadata, and has not delivered for %.0f ms; %s", key.Leader,
			float64(now-s.delivered)/1000, l.w.standing(p))
	}
}

// wellConnected reports that the metadata's word reaches a running broker.
func (n *node) wellConnected() bool {
	e := &n.w.etcd
	return !n.paused && e.reachable(n) && e.loseP == 0 && e.lateP == 0 && e.lag[n.index] == 0 && !e.gap[n.index] && !n.disk.failed
}

// stopped checks that a machine has stopped because of its disk alone.
func (l *lively) stopped(h *host, v *replica.View) {
	if v.Role == replica.Stopped && !h.n.disk.failed {
		l.w.failf("liveness", h.part, "%s has stopped, and nothing is wrong with its disk", h.n.name)
	}
}
